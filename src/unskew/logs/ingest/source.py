"""A source as tables of an engine: impressions, click events, and what could not be parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import ConfigError, DataError, Key, Option, printable
from unskew.logs.ingest.advice import SampleRows, parquet_sample
from unskew.logs.ingest.columns import DETAIL, FILE, REASON, ROW, detail, renamed, require, typed, with_page
from unskew.logs.ingest.pages import PageFinding, event_column, how_to_find, split_events
from unskew.logs.ingest.text import TextStream
from unskew.names import REQUIRED
from unskew.tables.engine.engine import Engine, engine_errors, quiet
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import united
from unskew.tables.engine.parquet import alike, float_ids, plain_name, unified, whole_ids
from unskew.tables.reading.files import KINDS, all_files, find_files
from unskew.tables.reading.options import IngestOptions

OF_CLICKS = ("page_id", "doc_id", "position", "timestamp", "dwell_time")
"""Columns that a click event may have, besides serp_*."""
OF_SERVED = {"policy_id", "propensity", "randomized"}
"""Columns by which the events of `unskew serve` are known."""
PLACES = [(FILE, pa.string()), (ROW, pa.int64())]


@dataclass(frozen=True)
class LogSource:
    """What was opened, typed, with a reason at every broken row."""

    impressions: Table
    """Results; until they are typed, the rows as they are."""
    columns: Sequence[str] = ()
    """Names of all columns of the source, also of those that are not read."""
    stream: TextStream | None = None
    """Text that the rows can be made from once; None when it was read."""
    clicks: Table | None = None
    served: bool = False
    """Whether a server of ours wrote the events; anybody may have told it of clicks."""
    parsed: bool = False
    """Whether the columns were text, so that further ones may be numbers."""
    stored: bool = False
    """Whether the impressions were costly to make, and are kept."""
    rejected: tuple[Path, ...] = ()
    """Folders of rows that could not be parsed."""
    lost: int = 0
    """Rows in the files of `rejected`."""
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

    def made_once(self, run: Callable[[Table], Table], table: Table) -> Table:
        """Run a table, without columns that text turns out not to have; errors of the text stay as they are."""
        try:
            made = run(table)
        except Exception:
            if self.stream is not None and self.stream.error is not None:
                raise self.stream.error from None
            raise
        unseen = [] if self.stream is None else [name for name in self.stream.unseen if name in made.columns]
        return made.drop(*unseen) if unseen else made

    def finished(self) -> LogSource:
        """The source with the notes and rejected rows that are known once its text was read to the end."""
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
    opening = _Opening(engine, options, scratch, clicks)
    if kind is not None and kind not in KINDS:
        return opening.named_format(sources, kind)
    if options.reader.model_fields_set:
        hint = ("give ", Option("format"), ", such as ubi")
        raise ConfigError("[reader] is for formats with a reader of their own", hint=hint)
    return opening.typed(opening.read(find_files(sources, kind), "shown"))


def open_memory(
    engine: Engine, table: pa.Table, options: IngestOptions, clicks: Sequence[str | Path] = ()
) -> LogSource:
    """A table in memory, whose rows have numbers from 0."""
    for name in options.ids & {*table.column_names}:
        at = table.column_names.index(name)
        table = table.set_column(at, name, whole_ids(table.column(at), name, "the table"))
    numbered = table.append_column(ROW, pa.array(np.arange(len(table))))
    sample = SampleRows([Path()], options)
    sample.take(Path(), table.column_names, [table])
    rows = LogSource(engine.from_arrow(numbered), table.column_names, sample=sample.table)
    return _Opening(engine, options, None, clicks).typed(rows)


@dataclass(frozen=True)
class _Opening:
    """Options, engine and scratch folder that a source is opened with."""

    engine: Engine
    options: IngestOptions
    scratch: Path | None
    """Where rows are kept that are made once; None: the engine holds them."""
    clicks: Sequence[str | Path]

    def typed(self, raw: LogSource) -> LogSource:
        """Results and clicks of a source, typed; what is costly to make is made once."""
        engine, options, joined = self.engine, self.options, bool(self.clicks)
        event = event_column(raw.columns, options)
        if event is not None and joined:
            raise ConfigError("goes with a source without an event column", argument="clicks")
        if event is not None and raw.stream is not None:  # text is read once, for results and for clicks
            raw = replace(raw, impressions=raw.made_once(engine.keep, raw.impressions)).finished()
        shown, clicked, others = raw.impressions, None, 0
        if event is not None:
            shown, clicked, rest = split_events(shown, event, options)
            others = engine.count(rest)
        maybe = () if raw.stream is None else raw.stream.maybe
        impressions, finding = self.results(shown, joined or event is not None, raw.columns, maybe)
        same = event is None and not joined and _same_columns(raw.impressions, impressions)
        times = options.source("timestamp")
        # times as text take longer to read than all the rest
        text = times in shown.columns and shown[times].type().is_string()
        stored = raw.stream is not None or raw.parsed or text
        made = replace(
            raw,
            impressions=self.stored(impressions, raw) if stored else impressions,
            clicks=None if clicked is None else self.events(clicked, finding),
            served=event is not None and {*raw.columns} >= OF_SERVED,
            stored=stored,
            files=raw.files if same else (),
            finding=finding,
            ignored={"other_event": others} if others else {},
        ).finished()
        return self.with_clicks(made) if joined else made

    def with_clicks(self, made: LogSource) -> LogSource:
        """A source with the click events of other files."""
        beside = self.read(find_files(self.clicks), "clicked", results=False)
        clicked = beside.impressions
        if beside.stream is not None:
            clicked = beside.made_once(self.engine.keep, clicked)
        beside = beside.finished()
        return replace(
            made,
            clicks=self.events(clicked, made.finding),
            parsed=made.parsed or beside.parsed,
            rejected=made.rejected + beside.rejected,
            lost=made.lost + beside.lost,
            notes=made.notes + beside.notes,
        )

    def stored(self, rows: Table, raw: LogSource) -> Table:
        """Typed rows, made once; what a row says is kept of broken ones, and made from its values of others."""
        broken = rows[REASON].cast("string")
        said = ibis.ifelse(broken.notnull(), rows[DETAIL], ibis.null("string"))
        rows = rows.mutate(**{REASON: broken, DETAIL: said})
        run = partial(self.engine.store, folder=self.scratch / "typed") if self.scratch else self.engine.keep
        stored = raw.made_once(run, rows)
        return stored.mutate(**{DETAIL: stored[DETAIL].fill_null(detail(stored, self.options))})

    def results(
        self, raw: Table, joined: bool, present: Sequence[str], maybe: Sequence[str] = ()
    ) -> tuple[Table, PageFinding | None]:
        """Results, typed, and how their pages are found; `maybe` are columns that may turn out to be missing."""
        table = with_page(renamed(raw, self.options, where="impressions", known=present), self.options)
        optional = {"page_id", *(["click"] if joined else [])}
        require(table, tuple(name for name in REQUIRED if name not in optional), present)
        finding = how_to_find([name for name in table.columns if name not in maybe], self.options, present)
        if finding is not None and "page_id" in table.columns:
            table = table.drop("page_id")
        if joined and "click" in table.columns:  # what rows say stays beside events, and may be nothing
            table = table.mutate(click=table.click.fill_null(ibis.literal(0).cast(table.click.type())))
        needed = () if finding is None else finding.needed
        return typed(table, self.options, self.engine.name, needed=needed), finding

    def events(self, raw: Table, finding: PageFinding | None) -> Table:
        """Click events, typed."""
        table = with_page(renamed(raw, self.options, where="clicks"), self.options)
        tied = OF_CLICKS if finding is None else (*OF_CLICKS[1:], "query_id", *finding.by)
        kept = [name for name in table.columns if name in tied or name.startswith("serp_")]
        table = table.select(*kept, *(name for name in (FILE, ROW) if name in table.columns))
        if not kept:
            return table.filter(ibis.literal(False))
        asked = finding is not None and "query_id" in kept
        if asked and not self.engine.count(table.filter(table.query_id.notnull())):
            table = table.drop("query_id")  # of the results alone, where both are rows of one table
        needed = () if finding is None else finding.needed
        return typed(table, self.options, self.engine.name, events=True, needed=needed)

    def read(self, files: Mapping[Path, str], name: str, *, results: bool = True) -> LogSource:
        """Files as one table, its columns as they are; not `results` where they hold click events."""
        texts = {path: holds for path, holds in files.items() if holds != "parquet"}
        columnar = [path for path in files if path not in texts]
        if not texts:
            if self.options.time.format is not None:
                what = "is for text files; Parquet holds times as times, numbers or ISO text"
                raise ConfigError(what, argument=Key("time.format"))
            return self.read_parquet(columnar)
        scratch = (self.scratch or self.engine.scratch) / name
        stream = TextStream(texts, self.options, scratch, joined=bool(self.clicks), results=results)
        reader = pa.RecordBatchReader.from_batches(stream.schema, stream.batches())
        text = LogSource(
            self.engine.from_stream(reader, scratch / "text"), stream.columns, stream, sample=stream.sample
        )
        return self.together(text, self.read_parquet(columnar)) if columnar else text

    def read_parquet(self, files: list[Path]) -> LogSource:
        """Parquet files as one table; of files that differ the columns that are wanted, in types that hold all."""
        groups = alike(files)
        tables = [_read_parquet(self.engine, [Path(file) for file in group]) for group in groups]
        sample, ids = parquet_sample(files, self.options), self.options.ids
        floats = float_ids(files, ids)
        told = [f"{name} came as floats, which were read as whole numbers: 7.0 is 7" for name in floats]
        if len(groups) == 1:
            same = all(pq.read_schema(path).equals(pq.read_schema(files[0])) for path in files[1:])
            known_files = tuple(files) if same else ()
            return LogSource(tables[0], tables[0].columns, files=known_files, notes=tuple(told), sample=sample)
        every = tuple(dict.fromkeys(name for table in tables for name in table.columns))
        schema = unified(files, self.options.wanted(list(every)), ids)
        notes = [
            f"{printable(group[0])} has no {', '.join(name for name in schema.names if name not in table.columns)}"
            for group, table in zip(groups, tables, strict=True)
            if any(name not in table.columns for name in schema.names)
        ]
        notes = [*told, *notes, f"files of {len(groups)} kinds, by columns and types, were read as one"]
        rows = united(tables, pa.schema([*PLACES, *schema]), ids)
        return LogSource(rows, every, notes=tuple(notes), sample=sample)

    def together(self, text: LogSource, columnar: LogSource) -> LogSource:
        """Text and Parquet as one table of text, whose types are then made as those of text are."""
        names = tuple(dict.fromkeys((*text.columns, *columnar.columns)))
        texts = [(name, pa.string()) for name in self.options.wanted(list(names))]
        both = united([text.impressions, columnar.impressions], pa.schema([*PLACES, *texts]), self.options.ids)
        rows = text.made_once(self.engine.keep, both)
        made = replace(text, impressions=rows, columns=names, notes=columnar.notes).finished()
        return replace(made, notes=(*made.notes, "text files and Parquet were read together"))

    def named_format(self, sources: Sequence[str | Path], kind: str) -> LogSource:
        """A log in one of the formats that have a reader of their own."""
        from unskew.logs.ingest.formats import reader_of
        from unskew.logs.ingest.formats.metarank import write_items
        from unskew.logs.ingest.formats.stage import SIDES, Stage
        from unskew.logs.ingest.formats.ubi import ranked_clicks

        reader, scratch = reader_of(kind), self.scratch or self.engine.scratch
        stage, options, engine = Stage(scratch / "staged"), self.options, self.engine
        reader(stage, options).read(all_files(sources))
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
        impressions, finding = self.results(shown, clicked is not None, shown.columns)
        return LogSource(
            impressions=impressions,
            clicks=None if clicked is None else self.events(clicked, finding),
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
