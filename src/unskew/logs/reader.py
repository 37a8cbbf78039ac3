"""A log is opened here, whatever it is: Parquet files, a table in memory, or a `Log`.

Opened, its columns have our names, numbers are numbers and times are times; what is no log, or lacks a column, is
refused. A log need not come from `unskew ingest`: any Parquet files with the columns will do. A table in memory
goes through its checks and rules here, whatever it is opened for. `open_log` gives a log on an engine, whatever
its size; a `StoredLog` in files and a `TableLog` in memory give its rows as Arrow, or joined to lists.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import Column, DataError, UnskewError, Words, located, parts_of
from unskew.logs.log import TABLE, featured, log_of, log_tables, outside
from unskew.names import KEYS, NO_NAMES, NOT_FEATURES, OURS, REQUIRED, TEXT, Names
from unskew.settings import require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import as_utc, united, whole
from unskew.tables.engine.parquet import (
    alike,
    damage_named,
    float_ids,
    impressions_in,
    parquet_files,
    read_unified,
    row_of,
    unified,
    whole_ids,
)
from unskew.tables.frames import IDS, arrow_table, is_frame, storable
from unskew.tables.joins import SAME_LISTS
from unskew.tables.reading.recognition import refuse_other, require_log
from unskew.tables.schema import required
from unskew.types import Lists, Log

if TYPE_CHECKING:
    from unskew.logs.ingest.ingest import IngestKeywords
    from unskew.logs.ingest.summary import IngestedLog

AnyLog = Any
"""Parquet files, a data frame, an Arrow table, a dict of columns, a `Log`, or one that is opened already."""
WHOLE = ("position", "click")
NUMBERS = (*WHOLE, "display_time", "dwell_time", "propensity", "logging_score")
TIMES = (
    "write them as 2024-03-01T14:00:00Z or as seconds since 1970; `unskew ingest` reads others, with time.format"
)


@contextmanager
def open_log(
    engine: Engine, source: AnyLog, names: Names = NO_NAMES, needed: Sequence[str] = tuple(REQUIRED)
) -> Iterator[Table]:
    """A log on an engine, with the columns that are needed; errors inside the `with` name it and their columns."""
    if is_frame(source) and _can_be_cleaned(source, names, needed):
        source = opened(source, names)
    if isinstance(source, StoredLog | TableLog):
        names = source.names
    place, files = place_of(source), []
    source = source.place if isinstance(source, StoredLog) else source
    with names.told(), located(place):
        if isinstance(source, str | Path):
            refuse_other(source)
            files = parquet_files(str(source) if "://" in str(source) else impressions_in(source))
            tables, ids = [engine.read_parquet(group) for group in alike(files)], ids_of(names)
            float_ids(files, ids)  # refused where they cannot be told apart
            table = tables[0] if len(tables) == 1 else united(tables, unified(files, ids=ids), ids)
        else:
            table = _in_memory(engine, source)
        if not isinstance(source, Log | TableLog):
            names = names.check(table.columns, place)
            table = _select(table, names)
        if files:
            require_log(needed, table.columns, source, names)
        require_columns(needed, table.columns, path=place)
        yield _typed(engine, table, place, files, names)


def ids_of(names: Names) -> set[str]:
    """Their names of all columns of ids."""
    return {names.theirs(name) for name in IDS}


def place_of(source: AnyLog) -> Path | str:
    """What errors call a log."""
    if isinstance(source, str | Path):
        return source
    if isinstance(source, StoredLog | TableLog):
        return source.place
    return f"the log of {source.lists.name}" if isinstance(source, Log) else TABLE


def check_rows(engine: Engine, log: Table, *, weighted: bool = False) -> None:
    """Refuse rows that cannot be counted: empty cells, ranks below 1, clicks but 0 and 1 unless `weighted`."""
    # what is there is asked for apart: the heads of Parquet files tell it without a look at the rows
    there = engine.rows(log.agg(rows=log.count(), **{name: log[name].count() for name in REQUIRED}))[0]
    if not there["rows"]:
        raise DataError("the log has no impressions", hint="check filters and splits")
    for name in REQUIRED:
        if missing := there["rows"] - there[name]:
            what = (f"{missing:,} of {there['rows']:,} rows have no ", Column(name))
            raise DataError(what, hint="remove or repair them, or run `unskew ingest` first")
    clicks: Any = log.click.cast("int64") if log.click.type().is_boolean() else log.click
    found = engine.rows(log.agg(top=log.position.min(), least=clicks.min(), most=clicks.max()))[0]
    if found["top"] < 1:
        raise DataError(("there is a ", Column("position"), f" {found['top']}"), hint="positions are ranks from 1")
    sound = clicks.type().is_integer() and found["least"] >= 0 and found["most"] <= 1
    if not weighted and not sound and (many := engine.count(log.filter(~clicks.isin([0, 1])))):
        raise DataError((f"{many:,} rows have a ", Column("click"), " that is not 0 or 1"), hint="repair them")


def weights(engine: Engine, log: Table, feedback: str) -> tuple[Table, bool]:
    """The log with feedback in the place of click, 0 where missing, and whether it is more than 0 and 1."""
    kind = log[feedback].type()
    if not (kind.is_numeric() or kind.is_boolean()):
        raise DataError((Column(feedback), f" is of type {kind}"), hint="feedback is a number from 0")
    weight = log[feedback].cast("float64").fill_null(0.0)
    weight = ibis.ifelse(weight.isnan(), 0.0, weight)
    asked = {"wrong": (weight < 0) | weight.isinf(), "other": ~weight.isin([0.0, 1.0])}
    found = engine.rows(log.agg(**{name: which.cast("int64").sum() for name, which in asked.items()}))[0]
    if found["wrong"]:
        what = (f"{found['wrong']:,} rows have a ", Column(feedback), " that is no weight")
        raise DataError(what, hint="feedback is a number from 0; clip or repair it")
    weighted = bool(found["other"])
    return log.mutate(click=weight.cast("float64" if weighted else "int64")), weighted


def under_our_names(table: Table, names: Names, path: Path | str, known: Collection[str] = OURS) -> Table:
    """The table with their columns renamed to ours; a column of theirs that has one of our names gives way."""
    return _select(table, names.check(table.columns, path, known))


def _select(table: Table, names: Names) -> Table:
    read = names.renamed(table.columns)
    return table.select(**{ours: table[theirs] for theirs, ours in read.items()}) if names else table


def _in_memory(engine: Engine, source: object) -> Table:
    """A table of memory on the engine; a column without any value is one of text."""
    if isinstance(source, TableLog):
        table = source.shown
    elif isinstance(source, Log):
        table = pa.concat_tables(log_tables(source, max(len(source.row), 1)))
    elif is_frame(source):
        table = arrow_table(source)
    else:
        hint = "give a folder or file of Parquet, a data frame, an Arrow table, or a Log"
        raise DataError(f"cannot take a log from {type(source).__name__}", hint=hint)
    for at, each in enumerate(table.schema):
        if pa.types.is_null(each.type):
            table = table.set_column(at, each.name, table.column(at).cast(pa.string()))
    return engine.from_arrow(storable(table))


def _typed(engine: Engine, table: Table, place: Path | str, files: Sequence[Path | str], names: Names) -> Table:
    """Numbers that are written as text as numbers, times of any kind as UTC; what cannot be read is refused."""
    floats = [name for name in IDS if name in table.columns and table[name].type().is_floating()]
    table = table.mutate(**{name: whole(table[name]) for name in floats})
    made: dict[str, Any] = {}
    for name in NUMBERS:
        if name in table.columns and table[name].type().is_string():
            number = table[name].strip().try_cast("float64")
            made[name] = number.cast("int64") if name in WHOLE else number
    if "timestamp" in table.columns and not table.timestamp.type().is_timestamp():
        made["timestamp"] = as_utc(table.timestamp, "UTC", engine.name)
    for name, read in made.items():
        given = table[name].cast("string")
        wrong = read.isnull() & given.notnull() & (given != "")
        asked = table.agg(rows=wrong.cast("int64").sum(), first=table[name].min(where=wrong))
        found = engine.rows(asked)[0]
        if found["rows"]:
            at = row_of(files, names.theirs(name), found["first"])
            path, row = (place, "") if at is None else (at[0], f" in row {at[1]}")
            such = f" that cannot be read, such as {str(found['first'])[:100]!r}{row}"
            hint = TIMES if name == "timestamp" else f"make it {OURS[name]}"
            raise DataError((f"{found['rows']:,} rows have a ", Column(name), such), path=path, hint=hint)
    return table.mutate(**made) if made else table


# ---- in memory ----


@dataclass(frozen=True)
class StoredLog:
    """A log in Parquet files on this machine: its columns are known, its rows are read when asked for."""

    place: Path | str
    """As it was named."""
    names: Names
    present: Mapping[str, str]
    """Every column as it is called there, to ours."""
    feedback: str | None = None

    @classmethod
    def open(
        cls,
        path: Path | str,
        names: Names = NO_NAMES,
        feedback: str | None = None,
        *,
        keep: Sequence[str] = (),
        shared: bool = False,
    ) -> StoredLog:
        """Refuse what is no log, or lacks a column that is needed or to be kept.

        Where the names are `shared` with other tables, it may lack what features have.
        """
        if "://" in str(path):  # only an engine reads it
            return cls(path, names, {}, feedback)
        present = columns_of(path)
        if shared:
            names.only({*names} - {*NOT_FEATURES, *present}).check(present, path)
        names = names.within(present) if shared else names.check(present, path)
        read = names.renamed(present)
        require_log([*required(feedback), *keep], list(read.values()), path, names)
        return cls(path, names, read, feedback)

    @property
    def path(self) -> Path:
        """Where its impressions are."""
        return impressions_in(self.place)

    @property
    def candidates(self) -> Path | str:
        """What says which documents its queries have."""
        return self.place

    def table(self, keep: Sequence[str] | None = None, *, texts: bool = False) -> Any:
        """Its rows as Arrow under our names, never `label`; `keep` names further columns, None all of them.

        Texts are read where asked for or named.
        """
        usual = [name for name in self.present.values() if texts or name not in TEXT]
        wanted = usual if keep is None else [*required(self.feedback), "randomized", *keep]
        taken = [theirs for theirs, name in self.present.items() if name in wanted and name != "label"]
        files = parquet_files(self.path)
        several, ids = len(alike(files)) > 1, ids_of(self.names)
        with damage_named(self.path):
            whole = None if several else pq.read_table(self.path, columns=taken, page_checksum_verification=True)
            table = read_unified(files, taken, ids) if whole is None else whole
        for name in ids & {*taken}:
            table = table.set_column(taken.index(name), name, whole_ids(table[name], name, self.path))
        return table.rename_columns([self.present[theirs] for theirs in taken])

    def log(
        self, lists: Lists, keep: Sequence[str] | None = None, *, drop: bool = False, hint: Words = SAME_LISTS
    ) -> Log:
        """The log in memory, joined to its lists.

        `drop` leaves out impressions without features, and warns of them; else `hint` says what to do.
        """
        with self.names.told():
            shown = self.table(keep)
            shown = featured(shown, lists, self.path) if drop else shown
            return log_of(shown, lists, self.feedback, self.path, hint)


@dataclass(frozen=True)
class TableLog:
    """A log from a table in memory, as `StoredLog` is one from files."""

    shown: Any
    """Its impressions after the rules of `ingest`, under our names, as Arrow."""
    names: Names
    feedback: str | None
    summary: IngestedLog
    """What `ingest` found."""
    place: ClassVar[str] = TABLE

    @classmethod
    def open(
        cls,
        source: Any,
        names: Names,
        feedback: str | None = None,
        *,
        keep: Sequence[str] | None = None,
        **reading: Unpack[IngestKeywords],
    ) -> TableLog:
        """The impressions of a table; what `ingest` leaves out of it is warned of.

        `keep` names the further columns of a log that is learned from, whose oddities are told too; else all stay.
        """
        from unskew.logs.ingest.ingest import ingest_table  # loads all of ingest, which scoring does without

        table = arrow_table(source)
        wanted = table.column_names if keep is None else keep
        kept = dict.fromkeys([*wanted, *([] if feedback is None else [feedback])])
        shown, summary = ingest_table(table, columns=names.within(table.column_names), keep=[*kept], **reading)
        _warn_of_rules(summary)
        for text in () if keep is None else summary.warnings:
            warnings.warn(str(text), stacklevel=outside())
        return cls(shown, names, feedback, summary)

    @property
    def candidates(self) -> Any:
        """The documents of queries that it shows."""
        return self.shown.select([*KEYS])

    def table(self, keep: Sequence[str] | None = None) -> Any:
        """Its rows as Arrow under our names; all columns, whatever is to be kept."""
        return self.shown

    def log(
        self, lists: Lists, keep: Sequence[str] | None = None, *, drop: bool = False, hint: Words = SAME_LISTS
    ) -> Log:
        """The log joined to its lists; arguments are as for `StoredLog.log`."""
        with self.names.told():
            shown = featured(self.shown, lists) if drop else self.shown
            return replace(log_of(shown, lists, self.feedback, TABLE, hint), summary=self.summary)


def _warn_of_rules(summary: IngestedLog) -> None:
    rules = {name: rule.rows for name, rule in summary.rules.items() if rule.on and rule.rows}
    found = [f"{count:,} {name.replace('_', ' ')}" for name, count in rules.items()]
    found += [f"{broken:,} broken"] if (broken := summary.rejected.rows) else []
    if found:
        lost = f"{summary.rows_read - summary.impressions:,} of {summary.rows_read:,} rows were left out"
        warnings.warn(f"{lost} (found {', '.join(found)}); the log's summary has all of it", stacklevel=outside())


OF_INGEST = (
    *("page_columns", "page_gap", "by", "off", "max_removed", "max_rejected"),
    *("positions_from", "time_zone"),
)
"""Arguments of `ingest` that other verbs do not take."""
ELSEWHERE = "these are arguments of unskew.ingest (of files) and unskew.log_from_table; give what they make of it"


def opened(
    source: AnyLog,
    names: Names,
    feedback: str | None = None,
    *,
    keep: Sequence[str] | None = None,
    shared: bool = False,
) -> StoredLog | TableLog | Any:
    """Files as a `StoredLog`, a table in memory as a `TableLog`, and a log that is one already as it is.

    `keep` names further columns of a table, None all; `shared` is as for `StoredLog.open`.
    """
    if isinstance(source, str | Path):
        return StoredLog.open(source, names, feedback, shared=shared)
    if not is_frame(source):
        return source
    try:
        return TableLog.open(source, names, feedback, keep=keep)
    except UnskewError as error:
        if error.speaks_of(*OF_INGEST):
            error.hint = (*parts_of(error.hint), "; " * bool(error.hint), ELSEWHERE)
        raise


def _can_be_cleaned(table: Any, names: Names, needed: Sequence[str]) -> bool:
    """Whether a table has what the rules of `ingest` look at, apart from what is an error where it is missing."""
    present = arrow_table(table).column_names
    return all(name in needed or names.theirs(name) in present for name in REQUIRED if name != "page_id")


def read_log(
    path: Path | str,
    lists: Lists,
    *,
    keep: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    feedback: str | None = None,
) -> Log:
    """Read a log from a Parquet file, or from a folder of them, and join it to its lists.

    `keep` names the further columns to keep; None keeps all but texts, which are the lists' (`with_texts`).
    `columns` says theirs for ours where a file has other names, {"position": "rank"}.
    `feedback` is the column to learn from in the place of `click`: numbers from 0, such as purchases or seconds.
    Impressions are sorted by page and position
    where they are not already. Page ids other than 0, 1, 2, ... are kept as the column `page_id`.
    """
    return StoredLog.open(path, Names.of(columns), feedback, keep=keep or ()).log(lists, keep)


def columns_of(path: Path | str) -> list[str]:
    """The names of all columns of a log; what is no log is refused."""
    refuse_other(path)
    path = impressions_in(path)
    files = parquet_files(path)
    try:
        names = unified(files).names if len(alike(files)) > 1 else pq.ParquetDataset(path).schema.names
    except (pa.ArrowInvalid, OSError, IndexError, UnicodeDecodeError) as error:
        raise DataError(f"not a Parquet file ({error})", path=path, hint="a log is read from Parquet") from error
    return list(names)
