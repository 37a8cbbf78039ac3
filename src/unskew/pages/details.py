"""Whatever was found, as tables: every number of a nested result, so that a page leaves none out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from unskew.pages.numbers import REASON, is_interval, said, said_each, spread_each, words
from unskew.pages.page import Table

MOST = 120
"""Rows of a table past which the rest is in the JSON alone."""
INTERVAL = "_interval"
"""How a list of intervals is called behind the name of its numbers."""


def detail_tables(found: Mapping[str, Any], title: str = "") -> list[Table]:
    """Tables of all that a result says: its numbers, its lists side by side, its records, then what is inside."""
    kinds = {key: _kind(key, value) for key, value in found.items()}
    facts = {key: found[key] for key, kind in kinds.items() if kind == "fact"}
    tables = [fact_table({words(key): said(value, key) for key, value in facts.items()}, title)] if facts else []
    by_length: dict[int, dict[str, Any]] = {}
    for key in (key for key, kind in kinds.items() if kind == "column"):
        by_length.setdefault(len(found[key]), {})[key] = found[key]
    tables += [_columns(group, title) for group in by_length.values()]
    for key, kind in kinds.items():
        value, name = found[key], ": ".join(filter(None, (title, words(key))))
        if kind == "records":
            tables.append(record_table(value, name))
        elif kind == "matrix":
            heads = ("", *(str(at + 1) for at in range(len(value[0]))))
            tables.append(
                _first(heads, [[str(at), *said_each(row)] for at, row in enumerate(value, start=1)], name)
            )
        elif kind == "mapping":
            alike = all(isinstance(each, Mapping) for each in value.values())
            named = [{"": words(inner), **each} for inner, each in value.items()] if alike else []
            tables += [record_table(named, name)] if alike else detail_tables(value, name)
    return tables


def fact_table(facts: Mapping[str, str], title: str = "") -> Table:
    """A row for each fact; a reason that says nothing is left out."""
    rows = [[name, text] for name, text in facts.items() if text or name != REASON]
    return Table(("", "value"), rows, title, ("value",))


def record_table(records: Sequence[Mapping[str, Any]], title: str, legend: str = "") -> Table:
    """A row for each record, of whatever values it has."""
    keys = list(dict.fromkeys(key for row in records for key in row))
    columns = [said_each([row.get(key) for row in records], key) for key in keys]
    rows = [list(row) for row in zip(*columns, strict=True)]
    texts = [words(key) for key in keys if any(isinstance(row.get(key), str) for row in records)]
    table = _first(list(map(words, keys)), rows, title, texts)
    return replace(table, legend=legend or table.legend).without_empty(but=2)


def _kind(key: str, value: Any) -> Literal["fact", "column", "records", "matrix", "mapping"]:
    """How a value is shown: in a cell, a column, or a table of its own."""
    if isinstance(value, Mapping) and value:
        return "mapping"
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return "fact"
    if key.endswith("interval") and is_interval(value):  # other pairs are lists of two
        return "fact"
    if all(isinstance(each, Mapping) for each in value):
        return "records"
    rows = all(isinstance(each, Sequence) and not isinstance(each, str) for each in value)
    return "matrix" if rows and len(value[0]) > 2 and len({len(each) for each in value}) == 1 else "column"


def _columns(lists: Mapping[str, Sequence[Any]], title: str) -> Table:
    """Lists of one length side by side, numbered from 1, intervals behind their numbers."""
    shown = {
        key: spread_each(values, lists[key + INTERVAL]) if key + INTERVAL in lists else said_each(values, key)
        for key, values in lists.items()
        if not key.endswith(INTERVAL)
    }
    texts = [words(key) for key in shown if any(isinstance(value, str) for value in lists[key])]
    rows = [[str(at), *row] for at, row in enumerate(zip(*shown.values(), strict=True), start=1)]
    return _first(("", *map(words, shown)), rows, title, texts).without_empty(but=2)


def _first(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str, texts: Sequence[str] = ()) -> Table:
    """The rows, of many the first ones."""
    rest = f"The first {MOST} of {len(rows):,}; all are in the JSON." if len(rows) > MOST else ""
    return Table(heads, rows[:MOST], title, texts, legend=rest)
