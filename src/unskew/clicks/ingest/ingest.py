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
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.clicks.engine.engine import Engine
from unskew.clicks.ingest.clean import clean, find_pages, log_numbers, rules_table
from unskew.clicks.ingest.clicks import join_clicks
from unskew.clicks.ingest.columns import DETAIL, RAW, REASON, numbers_as_such
from unskew.clicks.ingest.formats.stage import REJECTED, SIDES
from unskew.clicks.ingest.options import RULES, IngestOptions
from unskew.clicks.ingest.source import LogSource, engine_errors, open_source
from unskew.clicks.ingest.text import FILE, ROW
from unskew.clicks.schema import REQUIRED
from unskew.disk import Ours, complete_folder, parts, write_json
from unskew.errors import DataError

if TYPE_CHECKING:
    from ibis.expr.types import Table

INGESTED = Ours("summary.json", ("rejected.parquet", *parts("impressions", *SIDES)))
"""What lies in a folder of an ingested log."""
ASIDE = pa.schema(REJECTED)
OURS = (FILE, ROW, REASON, DETAIL)


class TooManyRejected(DataError):
    """More rows are broken than `max_rejected` allows."""

    status = 2


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
    with complete_folder(out, force=force, ours=INGESTED) as working, engine_errors(several[0]):
        scratch = working / ".scratch"
        source = open_source(engine, several, options, scratch, kind=kind, clicks=clicks)
        try:
            made = _Ingest(source, options, engine, working, aside).run()
        except TooManyRejected:
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
        self.aside: list[Table] = []
        self.broken: Counter[str] = Counter()
        self.found: dict[str, dict[str, int]] = {}

    def run(self) -> dict[str, Any]:
        """Every step in turn."""
        rows = self.source.impressions
        rows = self._whole(self._stored(rows, "typed") if self.source.parsed else rows)
        if self.source.clicks is not None:
            events = self._whole(self.engine.keep(self.source.clicks))
            joined = join_clicks(rows, events, self.options, self.engine)
            self.found |= {name: {"rows": count} for name, count in joined.counts.items()}
            self.aside += joined.removed
            rows = self._stored(joined.impressions, "joined")
        if self.source.parsed:
            rows = numbers_as_such(rows, self.engine)
        pages = find_pages(rows, self.engine)
        asked = self.options.positions.base if self.source.base is None else self.source.base
        base = pages.base if asked is None else asked
        if base == 1 and pages.from_zero:
            rows = self._without_zero(rows)
            pages = find_pages(rows, self.engine)
        cleaned = clean(rows, pages, self.options, self.engine)
        for name, counts in cleaned.found.items():
            self.found[name] = {**counts, "rows": counts["rows"] + self.found.get(name, {}).get("rows", 0)}
        self._put_aside([*self.aside, *cleaned.removed])
        if not cleaned.pages["pages"]:
            raise DataError(f"none of {self.read:,} rows is left", hint='see what was rejected, and off=["RULE"]')
        if self.source.files and base == 1 and cleaned.rows is self.source.impressions:
            self._copy()
        else:
            self._write(cleaned.rows, base)
        for name, folder in self.source.sides.items():
            folder.rename(self.working / name)
        written = self.engine.read_parquet(self.working / "impressions")
        lost = sum(self.broken.values())
        made = {
            **log_numbers(cleaned.pages, written, self.engine),
            "rows_read": self.read,
            "positions_from": base if self.source.base is None else None,
            "positions_detected": asked is None,
            "rules": rules_table(self.found, self.options, self.rows),
            "rejected": {"rows": lost, "share": round(lost / self.read, 6), "reasons": dict(self.broken)},
            "ignored": dict(self.source.ignored),
            "notes": list(self.source.notes),
            "columns": list(written.columns),
            "sides": {name: _row_count(self.working / name) for name in self.source.sides},
        }
        write_json(self.working / "summary.json", made)
        return made

    @property
    def read(self) -> int:
        """Rows that were read; records, where a reader made rows of them."""
        return self.rows if self.source.records is None else self.source.records

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

    def _put_aside(self, tables: list[Table]) -> None:
        """Write rejected.parquet, count the broken rows by reason, and stop where they are too many."""
        import ibis

        parts = [_rejected(table) for table in tables]
        parts += [self.engine.read_parquet(folder).select(*REJECTED) for folder in self.source.rejected]
        place = self.working / "rejected.parquet"
        if parts:
            folder = self.working / ".scratch" / "rejected"
            self.engine.write_parquet(ibis.union(*parts), folder, partitions=1)
            next(folder.rglob("*.parquet")).replace(place)
        else:
            pq.write_table(pa.Table.from_batches([], ASIDE), place)  # `empty_table` would load pandas
        counted, examples = _reasons(place)
        self.broken = Counter({name: count for name, count in counted.items() if name not in RULES})
        lost = sum(self.broken.values())
        if self.read and lost / self.read > self.options.max_rejected:
            raise TooManyRejected(
                _too_many(self.broken, examples, self.read, self.options.max_rejected, self.aside_file)
            )
        if not self.read:
            raise DataError("the source has no rows")

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


def _rejected(table: Table) -> Table:
    made = table.select(file=table[FILE], row=table[ROW], reason=table[REASON], detail=table[DETAIL])
    return made.cast({"file": "string", "row": "int64", "reason": "string", "detail": "string"})


def _row_count(folder: Path) -> int:
    """Rows of a folder of part files."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def _reasons(place: Path) -> tuple[Counter[str], dict[str, list[str]]]:
    """How often each reason is given, and the first examples of it."""
    counted: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    with pq.ParquetFile(place) as file:
        for batch in file.iter_batches(columns=list(ASIDE.names)):
            for row in batch.column("reason").value_counts().to_pylist():
                counted[row["values"]] += row["counts"]
            if any(len(examples.get(name, [])) < 3 for name in counted) and len(batch):
                for row in batch.slice(0, 1000).to_pylist():
                    shown = examples.setdefault(row["reason"], [])
                    if len(shown) < 3:
                        where = "" if row["file"] is None else f"{row['file']}:{row['row']}: "
                        shown.append(f"{where}{(row['detail'] or '')[:200]}")
    return counted, examples


def _too_many(broken: Counter[str], examples: dict[str, list[str]], read: int, most: float, aside: Path) -> str:
    lost = sum(broken.values())
    lines = [f"{lost:,} of {read:,} rows are broken ({lost / read:.2%}), more than {most:.2%}:"]
    for name, count in broken.most_common():
        lines.append(f"  {count:,} {name}")
        lines += [f"      {' '.join(text.split())[:RAW]}" for text in examples.get(name, [])]
    return "\n".join([*lines, f"They are kept in {aside}; repair them, or raise max_rejected="])
