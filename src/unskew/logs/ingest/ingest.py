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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack, cast

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import ConfigError, DataError, Option, Words, located
from unskew.files import Ours, complete_folder, parts, write_manifest
from unskew.logs.ingest.advice import column_advice
from unskew.logs.ingest.columns import DETAIL, FILE, REASON, ROW, detail, numbers_as_such
from unskew.logs.ingest.formats.stage import SIDES
from unskew.logs.ingest.pages import counted_on, join_clicks, pages_of_clicks
from unskew.logs.ingest.rejected import (
    Reasons,
    TooMuchAside,
    over_limits,
    page_examples,
    put_aside,
    refuse_broken,
    refuse_removed,
)
from unskew.logs.ingest.rules import Cleaned, clean, find_pages
from unskew.logs.ingest.source import LogSource, open_memory, open_source
from unskew.logs.ingest.summary import IngestedLog, RejectedRows, log_numbers, rule_counts, suspicion, warnings_of
from unskew.logs.ingest.visits import add_page_ids
from unskew.names import REQUIRED
from unskew.options.base import EngineConnection
from unskew.settings import checked, read_toml
from unskew.tables.engine.engine import Engine, connect, engine_errors
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.frames import arrow_table, storable
from unskew.tables.reading.options import IngestOptions

INGESTED = Ours("summary.json", ("rejected.parquet", *parts("impressions", "items", *SIDES)))
"""What lies in a folder of an ingested log."""
OURS = (FILE, ROW, REASON, DETAIL)
ARGUMENTS = {
    "columns": "columns",
    "keep": "keep",
    "page_columns": "page",
    "time_zone": "time.zone",
    "positions_from": "positions.base",
    "by": "pages.by",
    "page_gap": "pages.gap",
    "page_number": "positions.page_number",
    "page_size": "positions.page_size",
    "off": "rules.off",
    "max_rejected": "max_rejected",
    "max_removed": "max_removed",
}
"""Which key of a mapping file an argument says."""


class IngestKeywords(EngineConnection, total=False):
    """How a log is read and the engine is reached, as keywords of `ingest` and of who makes a log of a table."""

    mapping: Path | str | None
    clicks: Sequence[str | Path]
    page_columns: Sequence[str]
    time_zone: str | None
    positions_from: int | None
    by: Sequence[str]
    page_gap: str | None
    page_number: str | None
    page_size: int | None
    off: Sequence[str]
    max_rejected: float | None
    max_removed: float | None


def ingest(
    source: str | Path | Sequence[str | Path],
    out: Path | str,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    force: bool = False,
    engine: str = "duckdb",
    **reading: Unpack[IngestKeywords],
) -> IngestedLog:
    """Read a click log into impressions in the folder `out`, whole or not at all; the log in numbers.

    `columns` says theirs for ours, {"position": "rank"}; `reading` are the further flags of the command, such as
    page_gap= and off=, and how the engine is reached.
    """
    options, clicks, connection = _asked({"columns": columns, "keep": keep, **reading})
    with connect(engine, **connection) as opened:
        return ingest_files(source, out, opened, options, kind=format, clicks=clicks, force=force)


def _asked(said: dict[str, Any]) -> tuple[IngestOptions, Sequence[str | Path], EngineConnection]:
    """What keywords say: options, files of clicks, and how the engine is reached."""
    options = ingest_options(said.pop("mapping", None), {name: said.pop(name, None) for name in ARGUMENTS})
    clicks = said.pop("clicks", ())
    return options, clicks, cast(EngineConnection, said)


def ingest_options(mapping: Path | str | None, arguments: Mapping[str, Any]) -> IngestOptions:
    """The options of a mapping file, with the arguments over them that say something."""
    content = {} if mapping is None else read_toml(Path(mapping))
    for name, value in arguments.items():
        *tables, key = ARGUMENTS[name].split(".")
        if value is None or value == () or value == [] or value == {}:
            continue
        place = content
        for table in tables:
            place = place.setdefault(table, {})
        if isinstance(value, Mapping):
            place[key] = {**place.get(key, {}), **value}
        else:
            place[key] = value if isinstance(value, str | int | float) else tuple(value)
    try:
        options: IngestOptions = checked(IngestOptions, content, "")
    except ConfigError as error:
        error.path = mapping
        said = {key: name for name, key in ARGUMENTS.items()}
        if mapping is None and error.argument is not None:
            error.argument = said.get(error.argument, error.argument)
        raise
    return options


def ingest_files(
    sources: Sequence[str | Path] | str | Path,
    out: Path | str,
    engine: Engine,
    options: IngestOptions | None = None,
    *,
    kind: str | None = None,
    clicks: Sequence[str | Path] = (),
    force: bool = False,
) -> IngestedLog:
    """What `ingest` does, on an engine that is open; nothing is at `out` until all of it is."""
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
            made = _Run(source, options, engine, working, aside).run()
        except TooMuchAside:
            (working / "rejected.parquet").replace(aside)
            raise
        write_manifest(working / INGESTED.marker, made, INGESTED.files(working))
        shutil.rmtree(scratch, ignore_errors=True)
    aside.unlink(missing_ok=True)  # of an earlier attempt
    return made


def ingest_table(
    source: object,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    **reading: Unpack[IngestKeywords],
) -> tuple[pa.Table, IngestedLog]:
    """Impressions of a table (pandas, polars, Arrow, a dict of columns) as an Arrow table, and the log in numbers.

    The same checks and rules as for files, and no files are written.
    """
    options, clicks, connection = _asked({"columns": columns, "keep": keep, **reading})
    with connect("duckdb", **connection) as engine, engine_errors("the table"):
        run = _Run(open_memory(engine, storable(arrow_table(source)), options, clicks), options, engine)
        made = run.run()
        return engine.to_arrow(run.written), made


@dataclass
class _Run:
    """An ingest under way: from an opened source to impressions, in a folder or held by the engine."""

    source: LogSource
    options: IngestOptions
    engine: Engine
    folder: Path | None = None
    aside_file: Path | None = None
    """Where what was put aside can be seen when the run was stopped for it."""
    events: int = 0
    """How many of the rows are click events."""
    aside: list[Table] = field(default_factory=list)
    broken: Table | None = None
    """Results that are broken but name their page."""
    found: dict[str, dict[str, int]] = field(default_factory=dict)
    written: Table = field(init=False)

    def __post_init__(self) -> None:
        self.rows, self.notes = self.source.lost, list(self.source.notes)

    def run(self) -> IngestedLog:
        """Every step in turn; the log in numbers."""
        rows = self._read_rows()
        pages = find_pages(rows, self.engine)
        asked = self.options.positions.base if self.source.base is None else self.source.base
        base = pages.base if asked is None else asked
        if base == 1 and pages.from_zero:
            self.aside.append(rows.filter(rows.position < 1).mutate(**{REASON: ibis.literal("position_below_1")}))
            rows = rows.filter(rows.position >= 1)
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
        lost = reasons.broken.total()
        made = IngestedLog(
            format="unskew impressions 1",
            **log_numbers(cleaned, pages, base, self.written, self.engine),
            rows_read=self.read,
            positions_from=base if self.source.base is None else None,
            positions_detected=asked is None,
            pages_found=self.source.finding is not None,
            rules=rule_counts(self.found, (*self.options.rules.off, *cleaned.kept), self.rows),
            rejected=RejectedRows(lost, round(lost / self.read, 6), dict(reasons.broken)),
            ignored=dict(self.source.ignored),
            notes=self.notes,
            columns=list(self.written.columns),
            names=dict(self.options.columns),
            sides={name: self._side(name, folder) for name, folder in self.source.sides.items()},
            source_columns=column_advice(self.source.sample, self.options),
        )
        return replace(made, warnings=warnings_of(made, self.options))

    @property
    def read(self) -> int:
        """Rows that were read; records, where a reader made rows of them."""
        return self.rows if self.source.records is None else self.source.records

    def _read_rows(self) -> Table:
        finding = self.source.finding
        rows = self._whole(self.source.impressions)
        if self.aside and finding is None:
            self.broken = self.aside[0]
        if self.options.positions.page_number is not None:
            rows, note = counted_on(rows, self.options, self.engine)
            self.notes.append(note)
        if finding is not None:
            rows = add_page_ids(rows.drop(DETAIL), self.engine, by=finding.by, gap=finding.gap)
            if not self.source.stored and self.folder is None:
                rows = self.engine.keep(rows)
            elif not self.source.stored and self.folder is not None:
                rows = rows.mutate(**{REASON: rows[REASON].cast("string")})
                rows = self.engine.store(rows, self.folder / ".scratch" / "pages")
            self.notes.append(finding.note(self.options))
        if self.source.clicks is not None:
            before = self.rows
            events = self._whole(self.engine.keep(self.source.clicks))
            self.events = self.rows - before
            if finding is not None:
                events = pages_of_clicks(rows, events, finding, self.engine)
            rows, removed, counts = join_clicks(rows, events, self.options, self.engine)
            self.found |= {name: {"rows": count} for name, count in counts.items()}
            if self.source.served and (unknown := counts["clicks_without_impression"]):
                self.notes.append(
                    f"{unknown:,} of {self.events:,} clicks are on pages or results that the server did not show: "
                    "left out. `unskew serve --signed-pages` refuses them; or files of the log are missing"
                )
            self.aside += removed
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

    def _judged(self, cleaned: Cleaned, suspected: Words | None) -> Reasons:
        """Put aside the rows that rules or errors remove; an error where these are too many."""
        reasons = put_aside([*self.aside, *cleaned.removed], self.source.rejected, self.engine, self.folder)
        if not self.read:
            raise DataError("the source has no rows")
        refuse_broken(reasons, self.read, self.options.max_rejected, self.aside_file)
        over = over_limits(reasons.counts, self.rows - self.events, self.events, self.options, self.source.served)
        if over:
            pages = {name: page_examples(cleaned.judged, name, self.options, self.engine) for name in over}
            refuse_removed(over, reasons, pages, self.rows, self.aside_file, suspected)
        if not cleaned.pages["pages"]:
            hint = ("see what was rejected, and ", Option("off", ["RULE"]))
            raise DataError(f"none of {self.read:,} rows is left", hint=hint)
        return reasons

    def _write(self, rows: Table, base: int) -> Table:
        """The columns of a log, and positions from 1.

        Where nothing was renamed, changed or removed, files are copied as they are, which is much faster.
        """
        further = [name for name in rows.columns if name not in (*REQUIRED, *OURS)]
        ranks, clicks = (rows.position + (1 - base)).cast("int32"), rows.click.cast("int8")
        ours = rows.mutate(position=ranks, click=clicks).select(*REQUIRED, *further)
        if self.folder is None:
            return self.engine.keep(ours)
        folder = self.folder / "impressions"
        if self.source.files and base == 1 and rows is self.source.impressions:
            folder.mkdir()
            for at, path in enumerate(self.source.files):
                shutil.copyfile(path, folder / f"part-{at:05d}.parquet")
        else:
            self.engine.write_parquet(ours, folder)
            for at, path in enumerate(sorted(folder.rglob("*.parquet"))):
                path.rename(folder / f"part-{at:05d}.parquet")
        return self.engine.read_parquet(folder)

    def _side(self, name: str, folder: Path) -> int:
        """Move a table beside the log to its place, and count its rows; only formats in files have such tables."""
        assert self.folder is not None
        place = folder.rename(self.folder / name)
        return sum(pq.read_metadata(path).num_rows for path in place.glob("*.parquet"))
