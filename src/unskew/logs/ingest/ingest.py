"""Ingest a click log: read it, join clicks, put aside broken rows, apply the rules, write it whole or not at all.

What is written:

out/
  impressions/part-*.parquet    what `unskew learn` reads
  rejected.parquet              what was put aside: file, row, reason, detail
  summary.json                  the log in numbers
  labels/, items/               tables beside the log, where its format has them
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from unskew.errors import DataError, Option, Words, located
from unskew.files import Ours, complete_folder, parts, write_json
from unskew.logs.ingest.advice import advice_warnings, column_advice
from unskew.logs.ingest.aside import (
    Reasons,
    TooMuchAside,
    over_limits,
    page_examples,
    put_aside,
    refuse_broken,
    refuse_removed,
)
from unskew.logs.ingest.clean import Cleaned, clean, find_pages, log_numbers, rules_table
from unskew.logs.ingest.clicks import join_clicks
from unskew.logs.ingest.columns import DETAIL, REASON, detail, numbers_as_such
from unskew.logs.ingest.facts import moves, page_facts, suspicion, warnings_of
from unskew.logs.ingest.finding import pages_of_clicks
from unskew.logs.ingest.formats.stage import SIDES
from unskew.logs.ingest.paging import counted_on
from unskew.logs.ingest.source import LogSource, engine_errors, open_source
from unskew.logs.ingest.text import FILE, ROW
from unskew.names import REQUIRED
from unskew.tables.engine.engine import Engine
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table

INGESTED = Ours("summary.json", ("rejected.parquet", *parts("impressions", "items", *SIDES)))
"""What lies in a folder of an ingested log."""
OURS = (FILE, ROW, REASON, DETAIL)


def ingest(
    sources: Sequence[str | Path] | str | Path,
    out: Path | str,
    engine: Engine,
    options: IngestOptions | None = None,
    *,
    kind: str | None = None,
    clicks: Sequence[str | Path] = (),
    force: bool = False,
) -> dict[str, Any]:
    """Read a log into the folder `out` and return its summary; nothing is at `out` until all of it is."""
    out, options = Path(out), options or IngestOptions()
    several = [sources] if isinstance(sources, str | Path) else list(sources)
    aside = out.with_name(out.name + ".rejected.parquet")
    with (
        complete_folder(out, force=force, ours=INGESTED) as working,
        located(several[0]),
        engine_errors(several[0]),
    ):
        scratch = working / ".scratch"
        source = open_source(engine, several, options, scratch, kind=kind, clicks=clicks)
        try:
            made = _Ingest(source, options, engine, working, aside).run()
        except TooMuchAside:
            (working / "rejected.parquet").replace(aside)
            raise
        shutil.rmtree(scratch, ignore_errors=True)
    aside.unlink(missing_ok=True)  # of an earlier attempt
    return made


class _Ingest:
    """One run, from an opened source to a written folder."""

    def __init__(
        self, source: LogSource, options: IngestOptions, engine: Engine, working: Path, aside: Path
    ) -> None:
        self.aside_file = aside
        self.source, self.options, self.engine, self.working = source, options, engine, working
        self.rows = source.lost
        self.events = 0
        """How many of the rows are click events."""
        self.aside: list[Table] = []
        self.broken: Table | None = None
        """Results that are broken but name their page."""
        self.found: dict[str, dict[str, int]] = {}
        self.notes = list(source.notes)

    def run(self) -> dict[str, Any]:
        """Every step in turn."""
        rows = self._read_rows()
        pages = find_pages(rows, self.engine)
        asked = self.options.positions.base if self.source.base is None else self.source.base
        base = pages.base if asked is None else asked
        if base == 1 and pages.from_zero:
            rows = self._without_zero(rows)
            pages = find_pages(rows, self.engine)
        cleaned = clean(rows, pages, self.options, self.engine, self.broken)
        for name, counts in cleaned.found.items():
            self.found[name] = {**counts, "rows": counts["rows"] + self.found.get(name, {}).get("rows", 0)}
        if "gaps_in_positions" in cleaned.kept:
            self.notes.append(
                f"{pages.gaps / pages.pages:.0%} of the pages have holes between their positions: taken for "
                "places of something else, and kept"
            )
        reasons = self._judged(cleaned, suspicion(pages, base, self.options, self.source.finding is not None))
        if self.source.files and base == 1 and cleaned.rows is self.source.impressions:
            self._copy()
        else:
            self._write(cleaned.rows, base)
        for name, folder in self.source.sides.items():
            folder.rename(self.working / name)
        written = self.engine.read_parquet(self.working / "impressions")
        lost = sum(reasons.broken.values())
        made: dict[str, Any] = {
            **log_numbers(cleaned.pages, written, self.engine),
            "page_facts": page_facts(cleaned, pages, base),
            "moves": moves(cleaned, written, self.engine),
            "rows_read": self.read,
            "positions_from": base if self.source.base is None else None,
            "positions_detected": asked is None,
            "pages_found": self.source.finding is not None,
            "rules": rules_table(self.found, (*self.options.rules.off, *cleaned.kept), self.rows),
            "rejected": {"rows": lost, "share": round(lost / self.read, 6), "reasons": dict(reasons.broken)},
            "ignored": dict(self.source.ignored),
            "notes": self.notes,
            "columns": list(written.columns),
            "names": dict(self.options.columns),
            "sides": {name: _row_count(self.working / name) for name in self.source.sides},
        }
        made["source_columns"] = column_advice(self.source.inputs, self.options)
        made["warnings"] = warnings_of(made, self.options) + advice_warnings(made["source_columns"], self.options)
        write_json(self.working / "summary.json", made)
        return made

    @property
    def read(self) -> int:
        """Rows that were read; records, where a reader made rows of them."""
        return self.rows if self.source.records is None else self.source.records

    def _read_rows(self) -> Table:
        """The results that are not broken, with their pages and clicks."""
        rows, finding = self.source.impressions, self.source.finding
        rows = self._whole(self._stored(rows, "typed") if self.source.parsed else rows)
        if self.aside and finding is None:
            self.broken = self.aside[0]
        if self.options.positions.page_number is not None:
            rows, note = counted_on(rows, self.options, self.engine)
            self.notes.append(note)
        if finding is not None:
            rows = self._stored(finding.add_ids(rows.drop(DETAIL), self.engine), "pages")
            self.notes.append(finding.note(self.options))
        if self.source.clicks is not None:
            before = self.rows
            events = self._whole(self.engine.keep(self.source.clicks))
            self.events = self.rows - before
            if finding is not None:
                events = pages_of_clicks(rows, events, finding, self.engine)
            joined = join_clicks(rows, events, self.options, self.engine)
            self.found |= {name: {"rows": count} for name, count in joined.counts.items()}
            self.aside += joined.removed
            rows = self._stored(joined.impressions, "joined")
        if self.source.parsed:
            rows, commas = numbers_as_such(rows, self.engine)
            self.notes += commas
        return rows if finding is None else rows.mutate(**{DETAIL: detail(rows, self.options, made_id=True)})

    def _whole(self, table: Table) -> Table:
        """The rows that are not broken; the others are counted and put aside."""
        counts = self.engine.rows(table.agg(rows=table.count(), broken=table[REASON].count()))[0]
        self.rows += counts["rows"]
        if not counts["broken"]:
            return table
        self.aside.append(table.filter(table[REASON].notnull()))
        return table.filter(table[REASON].isnull())

    def _without_zero(self, rows: Table) -> Table:
        import ibis

        below = rows.filter(rows.position < 1).drop(REASON)
        self.aside.append(below.mutate(**{REASON: ibis.literal("position_below_1")}))
        return rows.filter(rows.position >= 1)

    def _stored(self, rows: Table, name: str) -> Table:
        """Rows that were costly to make, written once so that they are not made again by every step."""
        folder = self.working / ".scratch" / name
        self.engine.write_parquet(rows.mutate(**{REASON: rows[REASON].cast("string")}), folder)
        return self.engine.read_parquet(folder) if any(folder.rglob("*.parquet")) else rows

    def _judged(self, cleaned: Cleaned, suspected: Words | None) -> Reasons:
        """Write what is put aside, and stop where it is too much."""
        reasons = put_aside([*self.aside, *cleaned.removed], self.source.rejected, self.engine, self.working)
        if not self.read:
            raise DataError("the source has no rows")
        refuse_broken(reasons, self.read, self.options.max_rejected, self.aside_file)
        over = over_limits(reasons.counts, self.rows - self.events, self.events, self.options)
        if over:
            pages = {name: page_examples(cleaned.judged, name, self.options, self.engine) for name in over}
            refuse_removed(over, reasons, pages, self.rows, self.aside_file, suspected)
        if not cleaned.pages["pages"]:
            raise DataError(
                f"none of {self.read:,} rows is left",
                hint=("see what was rejected, and ", Option("off", ["RULE"])),
            )
        return reasons

    def _copy(self) -> None:
        """Nothing was renamed, changed or removed: the files are copied as they are, which is much faster."""
        folder = self.working / "impressions"
        folder.mkdir()
        for at, path in enumerate(self.source.files):
            shutil.copyfile(path, folder / f"part-{at:05d}.parquet")

    def _write(self, rows: Table, base: int) -> None:
        further = [name for name in rows.columns if name not in (*REQUIRED, *OURS)]
        made: dict[str, Any] = {
            "position": (rows.position + (1 - base)).cast("int32"),
            "click": rows.click.cast("int8"),
        }
        named = [made[name].name(name) if name in made else rows[name] for name in (*REQUIRED, *further)]
        folder = self.working / "impressions"
        self.engine.write_parquet(rows.select(*named), folder)
        for at, path in enumerate(sorted(folder.rglob("*.parquet"))):
            path.rename(folder / f"part-{at:05d}.parquet")


def _row_count(folder: Path) -> int:
    """Rows of a folder of part files."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
