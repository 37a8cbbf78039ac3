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

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError, Option, Words, located
from unskew.files import Ours, complete_folder, parts, write_json
from unskew.logs.ingest.advice import advice_warnings, column_advice
from unskew.logs.ingest.clicks import join_clicks
from unskew.logs.ingest.columns import DETAIL, FILE, REASON, ROW, detail, numbers_as_such
from unskew.logs.ingest.facts import moves, page_facts, suspicion, warnings_of
from unskew.logs.ingest.formats.stage import SIDES
from unskew.logs.ingest.pages import counted_on, pages_of_clicks
from unskew.logs.ingest.rejected import (
    Reasons,
    TooMuchAside,
    over_limits,
    page_examples,
    put_aside,
    reasons_of,
    refuse_broken,
    refuse_removed,
    rejected_rows,
)
from unskew.logs.ingest.rules import Cleaned, PageFacts, clean, find_pages, log_numbers, rules_table
from unskew.logs.ingest.source import LogSource, open_memory, open_source
from unskew.names import REQUIRED
from unskew.tables.engine.engine import Engine, engine_errors
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
            made = _FolderRun(source, options, engine, working, aside).run()
        except TooMuchAside:
            (working / "rejected.parquet").replace(aside)
            raise
        shutil.rmtree(scratch, ignore_errors=True)
    aside.unlink(missing_ok=True)  # of an earlier attempt
    return made


def ingest_arrow(
    table: pa.Table, engine: Engine, options: IngestOptions, clicks: Sequence[str | Path] = ()
) -> tuple[pa.Table, dict[str, Any]]:
    """Impressions of a table in memory, and their summary: the same checks and rules, and no files."""
    with engine_errors("the table"):
        run = _Ingest(open_memory(engine, table, options, clicks), options, engine)
        made = run.run()
        return engine.to_arrow(run.written), made


class _Ingest:
    """One run, from an opened source to impressions that the engine holds."""

    written: Table

    def __init__(self, source: LogSource, options: IngestOptions, engine: Engine) -> None:
        self.source, self.options, self.engine = source, options, engine
        self.rows = source.lost
        self.events = 0
        """How many of the rows are click events."""
        self.aside: list[Table] = []
        self.broken: Table | None = None
        """Results that are broken but name their page."""
        self.found: dict[str, dict[str, int]] = {}
        self.notes = list(source.notes)

    def run(self) -> dict[str, Any]:
        """Every step in turn; the summary."""
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
        self.written = self._write(cleaned.rows, base)
        return self._summary(cleaned, pages, reasons, base, detected=asked is None)

    def _summary(
        self, cleaned: Cleaned, pages: PageFacts, reasons: Reasons, base: int, *, detected: bool
    ) -> dict[str, Any]:
        """The log in numbers, and what its reader should not miss."""
        lost = sum(reasons.broken.values())
        made: dict[str, Any] = {
            **log_numbers(cleaned.pages, self.written, self.engine),
            "page_facts": page_facts(cleaned, pages, base),
            "moves": moves(cleaned, self.written, self.engine),
            "rows_read": self.read,
            "positions_from": base if self.source.base is None else None,
            "positions_detected": detected,
            "pages_found": self.source.finding is not None,
            "rules": rules_table(self.found, (*self.options.rules.off, *cleaned.kept), self.rows),
            "rejected": {"rows": lost, "share": round(lost / self.read, 6), "reasons": dict(reasons.broken)},
            "ignored": dict(self.source.ignored),
            "notes": self.notes,
            "columns": list(self.written.columns),
            "names": dict(self.options.columns),
            "sides": {name: self._side(name, folder) for name, folder in self.source.sides.items()},
        }
        made["source_columns"] = column_advice(self.source.sample, self.options)
        made["warnings"] = warnings_of(made, self.options) + advice_warnings(made["source_columns"], self.options)
        return made

    @property
    def read(self) -> int:
        """Rows that were read; records, where a reader made rows of them."""
        return self.rows if self.source.records is None else self.source.records

    def _read_rows(self) -> Table:
        """The results that are not broken, with their pages and clicks."""
        finding = self.source.finding
        rows = self._whole(self.source.impressions)
        if self.aside and finding is None:
            self.broken = self.aside[0]
        if self.options.positions.page_number is not None:
            rows, note = counted_on(rows, self.options, self.engine)
            self.notes.append(note)
        if finding is not None:
            rows = finding.add_ids(rows.drop(DETAIL), self.engine)
            rows = rows if self.source.stored else self._stored(rows)
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
            rows = joined.impressions
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

    def _judged(self, cleaned: Cleaned, suspected: Words | None) -> Reasons:
        """Put aside what goes, and stop where it is too much."""
        reasons = self._put_aside([*self.aside, *cleaned.removed])
        if not self.read:
            raise DataError("the source has no rows")
        refuse_broken(reasons, self.read, self.options.max_rejected, self.aside_file)
        over = over_limits(reasons.counts, self.rows - self.events, self.events, self.options)
        if over:
            pages = {name: page_examples(cleaned.judged, name, self.options, self.engine) for name in over}
            refuse_removed(over, reasons, pages, self.rows, self.aside_file, suspected)
        if not cleaned.pages["pages"]:
            hint = ("see what was rejected, and ", Option("off", ["RULE"]))
            raise DataError(f"none of {self.read:,} rows is left", hint=hint)
        return reasons

    def _ours(self, rows: Table, base: int) -> Table:
        """The columns of a log, and positions from 1."""
        further = [name for name in rows.columns if name not in (*REQUIRED, *OURS)]
        made: dict[str, Any] = {
            "position": (rows.position + (1 - base)).cast("int32"),
            "click": rows.click.cast("int8"),
        }
        named = [made[name].name(name) if name in made else rows[name] for name in (*REQUIRED, *further)]
        return rows.select(*named)

    # ---- where it goes; `_FolderRun` has files instead ----

    aside_file: Path | None = None
    """Where what was put aside can be seen, where there is such a place."""

    def _put_aside(self, tables: Sequence[Table]) -> Reasons:
        folders = self.source.rejected
        if not tables and not folders:
            return reasons_of(())
        return reasons_of(self.engine.to_arrow(rejected_rows(tables, folders, self.engine)).to_batches())

    def _stored(self, rows: Table) -> Table:
        return self.engine.keep(rows)

    def _write(self, rows: Table, base: int) -> Table:
        return self.engine.keep(self._ours(rows, base))

    def _side(self, name: str, folder: Path) -> int:
        """Put a table beside the log in its place; its rows. Only formats in files have such tables."""
        raise AssertionError(f"a table in memory has no {name} beside it")


class _FolderRun(_Ingest):
    """A run that writes a folder."""

    def __init__(
        self, source: LogSource, options: IngestOptions, engine: Engine, working: Path, aside: Path
    ) -> None:
        super().__init__(source, options, engine)
        self.working, self.aside_file = working, aside

    def run(self) -> dict[str, Any]:
        """Every step in turn; the summary, which is written last."""
        made = super().run()
        write_json(self.working / "summary.json", made)
        return made

    def _put_aside(self, tables: Sequence[Table]) -> Reasons:
        return put_aside(tables, self.source.rejected, self.engine, self.working)

    def _stored(self, rows: Table) -> Table:
        rows = rows.mutate(**{REASON: rows[REASON].cast("string")})
        return self.engine.store(rows, self.working / ".scratch" / "pages")

    def _write(self, rows: Table, base: int) -> Table:
        """Where nothing was renamed, changed or removed, files are copied as they are, which is much faster."""
        folder = self.working / "impressions"
        if self.source.files and base == 1 and rows is self.source.impressions:
            folder.mkdir()
            for at, path in enumerate(self.source.files):
                shutil.copyfile(path, folder / f"part-{at:05d}.parquet")
        else:
            self.engine.write_parquet(self._ours(rows, base), folder)
            for at, path in enumerate(sorted(folder.rglob("*.parquet"))):
                path.rename(folder / f"part-{at:05d}.parquet")
        return self.engine.read_parquet(folder)

    def _side(self, name: str, folder: Path) -> int:
        place = folder.rename(self.working / name)
        return sum(pq.read_metadata(path).num_rows for path in place.glob("*.parquet"))
