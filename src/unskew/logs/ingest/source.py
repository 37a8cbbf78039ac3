"""A source as tables of an engine: impressions, click events, and what could not be parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import ConfigError, DataError, Key, Option, printable
from unskew.logs.ingest.advice import SampleRows, parquet_sample
from unskew.logs.ingest.clicks import event_column, split_events
from unskew.logs.ingest.columns import DETAIL, FILE, REASON, ROW, detail, renamed, require, typed, with_page
from unskew.logs.ingest.pages import PageFinding, how_to_find
from unskew.logs.ingest.text import TextStream
from unskew.logs.reader import united
from unskew.names import REQUIRED
from unskew.settings import known
from unskew.tables.engine.engine import Engine, engine_errors, quiet
from unskew.tables.engine.parquet import alike, plain_name, unified
from unskew.tables.reading.files import KINDS, all_files, find_files
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table

OF_CLICKS = ("page_id", "doc_id", "position", "timestamp", "dwell_time")
"""Columns that a click event may have, besides serp_*."""
PLACES = {FILE: "string", ROW: "int64"}


@dataclass(frozen=True)
class LogSource:
    """What was opened, typed, with a reason at every broken row."""

    impressions: Table
    clicks: Table | None = None
    parsed: bool = False
    """Whether the columns were text, so that further ones may be numbers."""
    stored: bool = False
    """Whether the impressions were costly to make, and are kept."""
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
    sample: pa.Table | None = None
    """Some rows with all of their columns."""
    finding: PageFinding | None = None
    """How pages are found, where they have no id."""


@dataclass(frozen=True)
class _Raw:
    """Files as one table, its columns as they are."""

    table: Table
    columns: Sequence[str]
    """Names of all columns, also of those that are not read."""
    stream: TextStream | None = None
    """Text that the table can be made from once."""
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    sample: pa.Table | None = None
    parsed: bool = False
    rejected: tuple[Path, ...] = ()
    lost: int = 0

    def finished(self) -> _Raw:
        """With what is known once the text was read."""
        if self.stream is None:
            return self
        rejected, lost = self.stream.close()
        notes = (*self.stream.notes, *self.notes)
        return replace(self, stream=None, parsed=True, rejected=rejected, lost=lost, notes=notes)


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
        hint = ("give ", Option("format"), ", such as ubi")
        raise ConfigError("[reader] is for formats with a reader of their own", hint=hint)
    raw = _open_files(engine, find_files(sources, kind), options, scratch / "shown", joined=bool(clicks))
    made = _opened(raw, engine, options, scratch, joined=bool(clicks))
    return _with_clicks(made, engine, clicks, options, scratch) if clicks else made


def open_memory(
    engine: Engine, table: pa.Table, options: IngestOptions, clicks: Sequence[str | Path] = ()
) -> LogSource:
    """A table in memory, whose rows have numbers from 0."""
    numbered = table.append_column(ROW, pa.array(np.arange(len(table))))
    sample = SampleRows([Path()], options)
    sample.take(Path(), table.column_names, [table])
    raw = _Raw(engine.from_arrow(numbered), table.column_names, sample=sample.table)
    made = _opened(raw, engine, options, None, joined=bool(clicks))
    return _with_clicks(made, engine, clicks, options, engine.scratch) if clicks else made


def _with_clicks(
    made: LogSource, engine: Engine, clicks: Sequence[str | Path], options: IngestOptions, scratch: Path
) -> LogSource:
    """A source with the click events of other files."""
    beside = _open_files(engine, find_files(clicks), options, scratch / "clicked", joined=True, results=False)
    clicked = beside.table if beside.stream is None else _made_once(engine.keep, beside.table, beside.stream)
    beside = beside.finished()
    return replace(
        made,
        clicks=_clicks(clicked, options, engine, made.finding),
        parsed=made.parsed or beside.parsed,
        rejected=made.rejected + beside.rejected,
        lost=made.lost + beside.lost,
        notes=made.notes + beside.notes,
    )


def _opened(raw: _Raw, engine: Engine, options: IngestOptions, scratch: Path | None, *, joined: bool) -> LogSource:
    """Results and clicks of a source, typed; what is costly to make is made once."""
    event = event_column(raw.columns, options)
    if event is not None and joined:
        raise ConfigError("goes with a source without an event column", argument="clicks")
    if event is not None and raw.stream is not None:  # text is read once, for results and for clicks
        raw = replace(raw, table=_made_once(engine.keep, raw.table, raw.stream)).finished()
    shown, clicked, others, stream = raw.table, None, 0, raw.stream
    if event is not None:
        shown, clicked, rest = split_events(shown, event, options)
        others = engine.count(rest)
    maybe = () if stream is None else stream.maybe
    impressions, finding = _impressions(shown, options, engine, joined or event is not None, raw.columns, maybe)
    same = event is None and not joined and _same_columns(raw.table, impressions)
    times = options.source("timestamp")
    # times as text take longer to read than all the rest
    stored = stream is not None or raw.parsed or (times in shown.columns and shown[times].type().is_string())
    if stored:
        impressions = _stored(impressions, engine, options, stream, scratch)
    raw = raw.finished()
    return LogSource(
        impressions=impressions,
        clicks=None if clicked is None else _clicks(clicked, options, engine, finding),
        parsed=raw.parsed,
        stored=stored,
        rejected=raw.rejected,
        lost=raw.lost,
        notes=raw.notes,
        files=raw.files if same else (),
        sample=raw.sample,
        finding=finding,
        ignored={"other_event": others} if others else {},
    )


def _stored(
    rows: Table, engine: Engine, options: IngestOptions, stream: TextStream | None, scratch: Path | None
) -> Table:
    """Typed rows, made once; what a row says is kept of broken ones, and made from its values of others."""
    import ibis

    broken = rows[REASON].cast("string")
    rows = rows.mutate(
        **{REASON: broken, DETAIL: ibis.ifelse(broken.notnull(), rows[DETAIL], ibis.null("string"))}
    )
    run = engine.keep if scratch is None else partial(engine.store, folder=scratch / "typed")
    stored = _made_once(run, rows, stream)
    return stored.mutate(**{DETAIL: stored[DETAIL].fill_null(detail(stored, options))})


def _made_once(run: Callable[[Table], Table], table: Table, stream: TextStream | None) -> Table:
    """Run a table, without columns that text turns out not to have; errors of the text are raised as they are."""
    try:
        made = run(table)
    except Exception:
        if stream is not None and stream.error is not None:
            raise stream.error from None
        raise
    unseen = [] if stream is None else [name for name in stream.unseen if name in made.columns]
    return made.drop(*unseen) if unseen else made


def _impressions(
    raw: Table,
    options: IngestOptions,
    engine: Engine,
    joined: bool,
    present: Sequence[str],
    maybe: Sequence[str] = (),
) -> tuple[Table, PageFinding | None]:
    """Results, typed, and how their pages are found; `maybe` are columns that may turn out to be missing."""
    table = with_page(renamed(raw, options, where="impressions", known=present), options)
    optional = {"page_id", *(["click"] if joined else [])}
    require(table, tuple(name for name in REQUIRED if name not in optional), present)
    finding = how_to_find([name for name in table.columns if name not in maybe], options, present)
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
    engine: Engine,
    files: Mapping[Path, str],
    options: IngestOptions,
    scratch: Path,
    *,
    joined: bool,
    results: bool = True,
) -> _Raw:
    """Files as one table, its columns as they are."""
    texts = {path: holds for path, holds in files.items() if holds != "parquet"}
    columnar = [path for path in files if path not in texts]
    if not texts:
        if options.time.format is not None:
            what = "is for text files; Parquet holds times as times, numbers or ISO text"
            raise ConfigError(what, argument=Key("time.format"))
        return _open_parquet(engine, columnar, options)
    stream = TextStream(texts, options, scratch, joined=joined, results=results)
    reader = pa.RecordBatchReader.from_batches(stream.schema, stream.batches())
    table = engine.from_stream(reader, scratch / "text")
    text = _Raw(table, stream.columns, stream, sample=stream.sample)
    return text if not columnar else _together(text, _open_parquet(engine, columnar, options), options, engine)


def _open_parquet(engine: Engine, files: list[Path], options: IngestOptions) -> _Raw:
    """Parquet files as one table; of files that differ the columns that are wanted, in types that hold all."""
    import ibis

    groups = alike(files)
    tables = [_read_parquet(engine, [Path(file) for file in group]) for group in groups]
    sample = parquet_sample(files, options)
    if len(groups) == 1:
        same = all(pq.read_schema(path).equals(pq.read_schema(files[0])) for path in files[1:])
        return _Raw(tables[0], tables[0].columns, files=tuple(files) if same else (), sample=sample)
    every = tuple(dict.fromkeys(name for table in tables for name in table.columns))
    kinds = dict(ibis.Schema.from_pyarrow(unified(files, options.wanted(list(every)))).items())
    notes = [
        f"{printable(group[0])} has no {', '.join(name for name in kinds if name not in table.columns)}"
        for group, table in zip(groups, tables, strict=True)
        if any(name not in table.columns for name in kinds)
    ]
    notes = [*notes, f"files of {len(groups)} kinds, by columns and types, were read as one"]
    return _Raw(united(tables, PLACES | kinds), every, notes=tuple(notes), sample=sample)


def _together(text: _Raw, columnar: _Raw, options: IngestOptions, engine: Engine) -> _Raw:
    """Text and Parquet as one table of text, whose types are then made as those of text are."""
    names = tuple(dict.fromkeys((*text.columns, *columnar.columns)))
    kinds = dict.fromkeys(options.wanted(list(names)), "string")
    both = united([text.table, columnar.table], PLACES | kinds)
    made = replace(text, table=_made_once(engine.keep, both, text.stream), columns=names, notes=columnar.notes)
    made = made.finished()
    return replace(made, notes=(*made.notes, "text files and Parquet were read together"))


def _same_columns(raw: Table, typed_table: Table) -> bool:
    """Whether a source has our columns and no others, of the types that are written."""
    raw_types = {name: kind for name, kind in raw.schema().items() if name not in (FILE, ROW)}
    types = {name: kind for name, kind in typed_table.schema().items() if not name.startswith("unskew_")}
    fits = types["position"].is_int32() and types["click"].is_int8()
    return fits and {name: str(kind) for name, kind in raw_types.items()} == {n: str(k) for n, k in types.items()}


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
    import ibis

    from unskew.logs.ingest.formats import READERS
    from unskew.logs.ingest.formats.metarank import write_items
    from unskew.logs.ingest.formats.stage import SIDES, Stage
    from unskew.logs.ingest.formats.ubi import ranked_clicks

    known("format", kind, (*KINDS, *READERS))
    stage = Stage(scratch / kind)
    READERS[kind](all_files(sources), stage, options)
    folders = stage.close()
    sides = {name: folders[name] for name in SIDES if name in folders}
    if "impressions" not in folders:
        hint = "give the files of the log together with those of its labels" if sides else None
        what = f"no impressions were found in {stage.rows_read:,} records"
        raise DataError(what, path=sources[0], hint=hint)
    shown = engine.read_parquet(folders["impressions"])
    clicked = engine.read_parquet(folders["clicks"]) if "clicks" in folders else None
    if clicked is not None and "ordinal" in clicked.columns:
        clicked, note = ranked_clicks(shown, clicked, options.positions.base, engine)
        stage.notes.insert(0, note)
    elif clicked is None and "click" not in shown.columns:
        shown = shown.mutate(click=ibis.literal(0, "int8"))  # a log without a single click
    if "item_fields" in sides:
        sides["items"] = scratch / "items"
        write_items(sides["item_fields"], sides["items"], engine)
        if not options.reader.item_fields:
            del sides["item_fields"]
    impressions, finding = _impressions(shown, options, engine, clicked is not None, shown.columns)
    return LogSource(
        impressions=impressions,
        clicks=None if clicked is None else _clicks(clicked, options, engine, finding),
        finding=finding,
        sample=parquet_sample(sorted(folders["impressions"].glob("*.parquet")), options),
        rejected=(folders["rejected"],) if "rejected" in folders else (),
        lost=stage.rows("rejected"),
        records=stage.rows_read,
        ignored=dict(stage.ignored),
        notes=tuple(stage.notes),
        base=1,
        sides=sides,
    )
