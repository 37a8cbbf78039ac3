"""From the columns of a source to ours: renamed, of the right types, and with the reason where a row is broken."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from unskew.errors import DataError, Option, Words
from unskew.names import OURS, REQUIRED, guess_columns
from unskew.settings import did_you_mean, require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import as_utc, left, whole
from unskew.tables.reading.options import IDS, IngestOptions

FILE, ROW = "unskew_file", "unskew_row"
"""Where a row came from."""
REASON, DETAIL = "unskew_reason", "unskew_detail"
"""Why a row is broken, and what it says."""
RAW = 1_000
"""Characters of a rejected row that are kept."""
YES, NO = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")
WHOLE = r"^\s*[0-9]{1,9}(\.0*)?\s*$"
INTEGER = r"^-?[0-9]{1,18}$"
_PLACES = (FILE, ROW, REASON, DETAIL)
COMMA = r"^\s*[+-]?[0-9][0-9.]*,[0-9.,]*\s*$"
"""A number with a comma, which some read as a point and others pass over."""
DEEPEST = 32767
"""The last position that a log can hold."""
PEOPLE = ("visit_id", "user_id")
"""Columns that name who saw a page, the finer one first."""
FLOATS = ("display_time", "dwell_time", "propensity", "logging_score")


def renamed(raw: Table, options: IngestOptions, *, where: str, known: Sequence[str] = ()) -> Table:
    """The wanted columns of a source under our names; naming a column that is not there is an error.

    `known` are all columns of the source, where only some were read.
    """
    present = list(raw.columns)
    unnamed = [*options.keep, *options.further()]
    for ours, theirs in (*options.columns.items(), *((name, name) for name in unnamed)):
        if theirs not in present and where == "impressions":
            to = f"for {ours}" if ours != theirs else "to keep" if theirs in options.keep else "to read"
            there = [name for name in dict.fromkeys([*known, *present][:50]) if name not in _PLACES]
            raise DataError(f"there is no column {theirs!r} {to}. {did_you_mean(theirs, there)}")
    taken: dict[str, str] = {}
    for name in (name for name in options.wanted(present) if name in present):
        named = [ours for ours, theirs in options.columns.items() if theirs == name]
        # their own column of a name that is mapped is not the one that is meant
        taken |= dict.fromkeys(named or ([] if name in options.columns else [name]), name)
    return raw.select(
        **{ours: raw[theirs] for ours, theirs in taken.items()},
        **{name: raw[name] for name in (FILE, ROW) if name in present},
    )


def with_page(table: Table, options: IngestOptions) -> Table:
    """The table with a page_id, made of other columns where asked for."""
    if not options.page:
        return table
    missing = [name for name in options.page if name not in table.columns]
    if missing:
        raise DataError(f"there is no column {', '.join(missing)}", argument="page_columns")
    parts = [table[name].cast("string") for name in options.page]
    return table.mutate(page_id=reduce(lambda one, other: one + "|" + other, parts))


def require(table: Table, names: tuple[str, ...], present: Sequence[str]) -> None:
    """Columns that must be there; says what to do about each that is not."""
    missing = [name for name in names if name not in table.columns]
    guess = guess_columns(list(present))
    meant = Option("columns", {name: guess.get(name, "THEIRS") for name in missing})
    hint: Words = ("name them with ", meant)
    if missing == ["click"]:
        hint = ("name it with ", meant, ", or give the click events with ", Option("clicks", ["FILE"]))
    require_columns(missing, [name for name in present if name not in (*missing, FILE, ROW)], hint=hint)


def typed(
    table: Table, options: IngestOptions, engine: str, *, events: bool = False, needed: Sequence[str] = ()
) -> Table:
    """Every column of ours as its type, and why a row is broken (null where it is not).

    Click events need a document or a position, impressions both; `needed` are further columns without gaps.
    """
    made: dict[str, Any] = {}
    broken: list[tuple[Any, str]] = []
    either = events and "doc_id" in table.columns and "position" in table.columns
    names = [name for name in OURS if name in table.columns]  # the first reason is the one that is given
    for name in [*names, *(name for name in table.columns if name not in OURS)]:
        column: Any = table[name]
        kind = column.type()
        if name in (*IDS, *PEOPLE):
            column = whole(column) if kind.is_floating() else column
            kind = column.type()
            made[name] = column if kind.is_integer() or kind.is_string() else _text(column, name)
            if name == "doc_id" and either:
                made[name] = made[name].nullif("") if made[name].type().is_string() else made[name]
                broken.append((made[name].isnull() & _position(table["position"]).isnull(), "missing_doc_id"))
            elif name in IDS:
                broken.append((_empty(made[name]), f"missing_{name}"))
        elif name == "position":
            made[name] = _position(column)
            if not either:
                broken.append((made[name].isnull(), "position_not_a_whole_number"))
        elif name == "click":
            made[name] = _click(column)
            broken.append((made[name].isnull(), "click_not_0_or_1"))
        elif name == "timestamp":
            made[name] = as_utc(column, options.time.zone, engine)
            if not kind.is_temporal():
                broken.append((made[name].isnull() & ~_empty(column), "unreadable_timestamp"))
        elif name in FLOATS:
            made[name] = column.try_cast("float64") if kind.is_string() else column.cast("float64")
            if kind.is_string():
                broken.append((column.re_search(COMMA).fill_null(False), f"comma_in_{name}"))
        elif name == "randomized":
            made[name] = column if kind.is_boolean() else _click(column) == 1
        elif name == options.positions.page_number:
            made[name] = _position(column)
            broken.append((made[name].isnull(), "page_number_not_a_whole_number"))
        elif name == "label":
            made[name] = _position(column) if kind.is_string() else column.cast("int32")
        else:
            made[name] = column
    broken += [(_empty(made[name]), f"missing_{name}") for name in needed if name in made]
    reason = ibis.cases(*broken, else_=ibis.null("string"))
    places = {FILE: ibis.null("string"), ROW: ibis.null("int64")}  # where the engine cannot tell
    return table.select(**places | made, **{REASON: reason, DETAIL: detail(table, options)})


def _empty(column: Any) -> Any:
    return column.isnull() | (column == "") if column.type().is_string() else column.isnull()


def detail(table: Table, options: IngestOptions, *, made_id: bool = False) -> Any:
    """What a row says, as text under their names, for the rejected rows; computed only for those."""
    own = () if options.page or made_id else ("page_id",)  # an id that was made says nothing that is not there
    ours = (*own, *(name for name in REQUIRED if name != "page_id"), "timestamp", *PEOPLE, *FLOATS)
    names = [name for name in ours if name in table.columns]
    whole: Any = ibis.literal("")
    for name in names:
        named = f"{' ' if name != names[0] else ''}{options.source(name)}="
        column: Any = table[name]
        # a time without its zone, which only one of the engines would write
        text = (column.cast("timestamp") if column.type().is_timestamp() else column).cast("string")
        said = ibis.literal(named) + left(text, RAW)
        whole = whole + said.fill_null(named if name in REQUIRED else "")
    return left(whole, RAW)


def numbers_as_such(table: Table, engine: Engine) -> tuple[Table, list[str]]:
    """Further columns of a text file as numbers, where every value is one; else they stay text.

    Those whose numbers have commas are told.
    """
    names = [name for name, kind in table.schema().items() if kind.is_string() and name not in (*OURS, *_PLACES)]
    if not names:
        return table, []
    asked: dict[str, Any] = {}
    for at, name in enumerate(names):
        text: Any = table[name]
        asked |= {f"all_{at}": text.count(), f"whole_{at}": text.re_search(INTEGER).sum()}
        asked |= {f"float_{at}": text.try_cast("float64").count(), f"comma_{at}": text.re_search(COMMA).sum()}
    counts = engine.rows(table.agg(**asked))[0]
    casts, commas = {}, []
    for at, name in enumerate(names):
        if counts[f"all_{at}"] and (counts[f"comma_{at}"] or 0) * 2 > counts[f"all_{at}"]:
            commas.append(f"{name} has numbers with commas, and stays text; write 1234.5, not 1.234,5 or 1,234.5")
        if counts[f"all_{at}"] and counts[f"float_{at}"] == counts[f"all_{at}"]:
            casts[name] = "int64" if counts[f"whole_{at}"] == counts[f"all_{at}"] else "float64"
    return table.mutate(**{name: table[name].cast(kind) for name, kind in casts.items()}), commas


def _position(column: Any) -> Any:
    """A column as whole numbers from 0 to DEEPEST; null where it holds anything else."""
    kind = column.type()
    if kind.is_string():
        column = ibis.ifelse(column.re_search(WHOLE), column.strip(), ibis.null("string")).try_cast("float64")
    elif not kind.is_numeric() or kind.is_boolean():
        raise DataError(f"position is of type {kind}", hint=f"make it {OURS['position']}")
    fits = (column >= 0) & (column <= DEEPEST)
    if not column.type().is_integer():
        fits &= column == column.floor()
    return ibis.ifelse(fits, column, ibis.null(column.type())).cast("int32")


def _click(column: Any) -> Any:
    """A column as 0 and 1, words such as yes and no included; null where it holds anything else."""
    kind = column.type()
    if kind.is_boolean():
        return column.cast("int8")
    if kind.is_numeric():
        return ibis.ifelse((column == 0) | (column == 1), column, ibis.null(kind)).cast("int8")
    if not kind.is_string():
        raise DataError(f"click is of type {kind}", hint="make it 0 or 1")
    word = column.strip().lower()
    found = ibis.cases((word.isin(YES), 1), (word.isin(NO), 0), else_=ibis.null("int8"))
    return found.cast("int8")


def _text(column: Any, name: str) -> Any:
    kind = column.type()
    if kind.is_nested() or kind.is_binary():
        raise DataError(f"{name} is of type {kind}", hint=f"make it {OURS[name]}")
    return column.cast("string")
