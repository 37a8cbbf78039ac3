"""A source as tables of an engine: impressions, click events, and what could not be parsed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.errors import ConfigError, DataError, Option, printable
from unskew.logs.ingest.clicks import split_events
from unskew.logs.ingest.columns import renamed, require, typed, with_page
from unskew.logs.ingest.finding import PageFinding, how_to_find
from unskew.logs.ingest.text import FILE, ROW, stage_text
from unskew.names import REQUIRED
from unskew.settings import known
from unskew.tables.engine.engine import Engine, first_line, quiet
from unskew.tables.engine.parquet import alike, plain_name, unified
from unskew.tables.reading.files import KINDS, all_files, find_files
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from unskew.logs.ingest.formats.stage import Staged

OF_CLICKS = ("page_id", "doc_id", "position", "timestamp", "dwell_time")
"""Columns that a click event may have, besides serp_*."""


@dataclass(frozen=True)
class LogSource:
    """What was opened, typed, with a reason at every broken row."""

    impressions: Table
    clicks: Table | None = None
    parsed: bool = False
    """Whether the types had to be made from text, so that it pays to keep them."""
    rejected: tuple[Path, ...] = ()
    """Folders of rows that could not be parsed."""
    lost: int = 0
    """How many rows those are."""
    records: int | None = None
    """How many records a reader saw, where they are not the rows."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    base: int | None = None
    """What positions count from, where the reader knows."""
    files: tuple[Path, ...] = ()
    """Parquet files whose columns are those of the impressions, in name and type, and no others."""
    sides: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the tables beside the log, such as `labels`."""
    columns: tuple[str, ...] = ()
    """Names of all columns of the source, also of those that are not read."""
    inputs: Mapping[Path, str] = field(default_factory=dict)
    """The files of results, and what each holds."""
    finding: PageFinding | None = None
    """How pages are found, where they have no id."""


def open_source(
    engine: Engine,
    sources: Sequence[str | Path],
    options: IngestOptions,
    scratch: Path,
    *,
    kind: str | None = None,
    clicks: Sequence[str | Path] = (),
) -> LogSource:
    """Open Parquet, CSV or JSON lines, or a log in one of the named formats."""
    if kind is not None and kind not in KINDS:
        return _named_format(engine, sources, options, scratch, kind)
    if options.reader.model_fields_set:
        raise ConfigError(
            ("[reader] is for formats with a reader of their own: give ", Option("format"), ", such as ubi")
        )
    raw = _open_files(engine, sources, options, scratch / "shown", kind)
    shown, clicked, rest = split_events(raw.impressions, options)
    if clicks:
        if clicked is not None:
            raise ConfigError((Option("clicks"), " goes with a source without an event column"))
        beside = _open_files(engine, clicks, options, scratch / "clicked", None)
        clicked = beside.impressions
        added = {name: getattr(raw, name) + getattr(beside, name) for name in ("rejected", "lost", "notes")}
        raw = replace(raw, parsed=raw.parsed or beside.parsed, **added)
    other = 0 if rest is None else engine.count(rest)
    impressions, finding = _impressions(shown, options, engine, clicked is not None, raw.columns)
    same = clicked is None and _same_columns(raw.impressions, impressions)
    return replace(
        raw,
        impressions=impressions,
        clicks=None if clicked is None else _clicks(clicked, options, engine, finding),
        files=raw.files if same else (),
        inputs=find_files(sources, kind),
        finding=finding,
        ignored={"other_event": other} if other else {},
    )


def _impressions(
    raw: Table, options: IngestOptions, engine: Engine, joined: bool, present: Sequence[str]
) -> tuple[Table, PageFinding | None]:
    table = with_page(renamed(raw, options, where="impressions", known=present), options)
    optional = {"page_id", *(["click"] if joined else [])}
    require(table, tuple(name for name in REQUIRED if name not in optional), present)
    finding = how_to_find(table.columns, options, present)
    dropped = [name for name in optional if name in table.columns and (name == "click" or finding)]
    table = table.drop(*dropped) if dropped else table
    return typed(table, options, engine.name, needed=() if finding is None else finding.needed), finding


def _clicks(raw: Table, options: IngestOptions, engine: Engine, finding: PageFinding | None = None) -> Table:
    import ibis

    table = with_page(renamed(raw, options, where="clicks"), options)
    tied = OF_CLICKS if finding is None else (*OF_CLICKS[1:], "query_id", *finding.by)
    kept = [name for name in table.columns if name in tied or name.startswith("serp_")]
    table = table.select(*kept, *(name for name in (FILE, ROW) if name in table.columns))
    if not kept:
        return table.filter(ibis.literal(False))
    if finding is not None and "query_id" in kept and not engine.count(table.filter(table.query_id.notnull())):
        table = table.drop("query_id")  # of the results alone, where both are rows of one table
    needed = () if finding is None else finding.needed
    return typed(table, options, engine.name, events=True, needed=needed)


def _open_files(
    engine: Engine, sources: Sequence[str | Path], options: IngestOptions, scratch: Path, kind: str | None
) -> LogSource:
    """Files as one table, its columns as they are."""
    files = find_files(sources, kind)
    texts = {path: holds for path, holds in files.items() if holds != "parquet"}
    columnar = [path for path in files if path not in texts]
    if not texts:
        if options.time.format is not None:
            raise ConfigError("time.format is for text files; Parquet holds times as times, numbers or ISO text")
        return _open_parquet(engine, columnar, options)
    text = stage_text(texts, options, scratch)
    lost = () if text.rejected is None else (text.rejected,)
    table = engine.read_parquet(text.folder).select(FILE, ROW, *text.read)
    opened = LogSource(table, None, True, lost, text.lost, notes=text.notes, columns=text.columns)
    return opened if not columnar else _together(opened, _open_parquet(engine, columnar, options), options)


def _open_parquet(engine: Engine, files: list[Path], options: IngestOptions) -> LogSource:
    """Parquet files as one table; of files that differ the columns that are wanted, in types that hold all."""
    import ibis

    groups = alike(files)
    tables = [_read_parquet(engine, [Path(file) for file in group]) for group in groups]
    if len(groups) == 1:
        return LogSource(tables[0], files=_one_schema(files), columns=tuple(tables[0].columns))
    every = tuple(dict.fromkeys(name for table in tables for name in table.columns))
    kinds = dict(ibis.Schema.from_pyarrow(unified(files, options.wanted(list(every)))).items())
    notes = [
        f"{printable(group[0])} has no {', '.join(name for name in kinds if name not in table.columns)}"
        for group, table in zip(groups, tables, strict=True)
        if any(name not in table.columns for name in kinds)
    ]
    notes = [*notes, f"files of {len(groups)} kinds, by columns and types, were read as one"]
    return LogSource(ibis.union(*(_cast(table, kinds) for table in tables)), columns=every, notes=tuple(notes))


def _together(text: LogSource, columnar: LogSource, options: IngestOptions) -> LogSource:
    """Text and Parquet as one table of text, whose types are then made as those of text are."""
    import ibis

    names = (*text.columns, *columnar.columns)
    kinds = dict.fromkeys(options.wanted(list(names)), "string")
    tables = [_cast(each.impressions, kinds) for each in (text, columnar)]
    notes = (*text.notes, *columnar.notes, "text files and Parquet were read together")
    return replace(text, impressions=ibis.union(*tables), columns=tuple(dict.fromkeys(names)), notes=notes)


def _cast(table: Table, kinds: Mapping[str, Any]) -> Table:
    """These columns in these types, empty where there is none, and the place of every row."""
    import ibis

    def column(name: str) -> Any:
        return table[name] if name in table.columns else ibis.null()

    wanted = {FILE: "string", ROW: "int64", **kinds}
    return table.select(**{name: column(name).cast(kind) for name, kind in wanted.items()})


def _same_columns(raw: Table, typed_table: Table) -> bool:
    """Whether a source has our columns and no others, of the types that are written."""
    raw_types = {name: kind for name, kind in raw.schema().items() if name not in (FILE, ROW)}
    types = {name: kind for name, kind in typed_table.schema().items() if not name.startswith("unskew_")}
    fits = types["position"].is_int32() and types["click"].is_int8()
    return fits and {name: str(kind) for name, kind in raw_types.items()} == {n: str(k) for n, k in types.items()}


def _one_schema(files: list[Path]) -> tuple[Path, ...]:
    """The files, where all have the same columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        first = pq.read_schema(files[0])
        return tuple(files) if all(pq.read_schema(path).equals(first) for path in files[1:]) else ()
    except (pa.ArrowException, OSError):
        return ()


def _read_parquet(engine: Engine, files: list[Path]) -> Table:
    """Parquet files as one table, with the file and row of every row where the engine knows them."""
    for path in files:
        if printable(path) != str(path):
            raise DataError("the file's name cannot be given to an engine", path=path, hint="rename it")
    if engine.name != "duckdb":
        return engine.read_parquet(list(files))
    names = [plain_name(str(path.absolute())) for path in files]
    with quiet(), engine_errors(", ".join(names[:3])):
        table = engine.con.read_parquet(names, union_by_name=len(names) > 1, filename=FILE, file_row_number=True)
    return table.rename({ROW: "file_row_number"})


def _named_format(
    engine: Engine, sources: Sequence[str | Path], options: IngestOptions, scratch: Path, kind: str
) -> LogSource:
    """A log in one of the formats that have a reader of their own."""
    from unskew.logs.ingest.formats import READERS
    from unskew.logs.ingest.formats.stage import Stage

    known("format", kind, (*KINDS, *READERS))
    stage = Stage(scratch / kind)
    READERS[kind](all_files(sources), stage, options)
    staged = stage.close()
    if staged.impressions is None:
        hint = "give the files of the log together with those of its labels" if staged.sides else None
        what = f"no impressions were found in {staged.rows_read:,} records"
        raise DataError(what, path=sources[0], hint=hint)
    shown, clicked = engine.read_parquet(staged.impressions), staged.clicks and engine.read_parquet(staged.clicks)
    if clicked is None and "click" not in shown.columns:
        import ibis

        shown = shown.mutate(click=ibis.literal(0, "int8"))  # a log without a single click
    impressions, finding = _impressions(shown, options, engine, clicked is not None, shown.columns)
    return LogSource(
        impressions=impressions,
        clicks=None if clicked is None else _clicks(clicked, options, engine, finding),
        finding=finding,
        inputs=dict.fromkeys(sorted(staged.impressions.glob("*.parquet")), "parquet"),
        rejected=() if staged.rejected is None else (staged.rejected,),
        lost=staged.rejected_rows,
        records=staged.rows_read,
        ignored=dict(staged.ignored),
        notes=staged.notes,
        base=1,
        sides=_sides(staged, options, engine, scratch),
    )


def _sides(staged: Staged, options: IngestOptions, engine: Engine, scratch: Path) -> dict[str, Path]:
    """Folders of the tables beside the log; the fields of items also as a table of features."""
    sides = {name: path for name, path in staged.sides.items() if path is not None}
    if (fields := sides.get("item_fields")) is not None:
        from unskew.logs.ingest.formats.items import write_items

        sides["items"] = scratch / "items"
        write_items(fields, sides["items"], engine)
        if not options.reader.item_fields:
            del sides["item_fields"]
    return sides


@contextmanager
def engine_errors(place: Any) -> Iterator[None]:
    """What an engine complains about while it reads is an error of the data, unless it lacks memory."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException:
        raise
    except Exception as error:
        spark = getattr(sys.modules.get("pyspark.errors"), "PySparkException", duckdb.Error)
        if not isinstance(error, (duckdb.Error, spark)):  # loading Spark to ask takes a while
            raise
        raise DataError(f"cannot be read ({first_line(error)[:500]})", path=printable(place)) from error
