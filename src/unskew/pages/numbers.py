"""How values are written: in cells, in sentences, as tables of a whole result, the best of a column marked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, Literal

from unskew.measuring import SeedSummary
from unskew.pages.page import BEST, Table
from unskew.settings import listed

EMPTY = "–"
REASON = "reason"
"""What says why there is no number; where there is one, nothing stands there."""


MOST = 120
"""Rows of a table past which the rest is in the JSON alone."""
INTERVAL = "_interval"
"""How a list of intervals is called behind the name of its numbers."""


def number(value: float | None, form: str = ".4f", empty: str = "n/a") -> str:
    """A number, n/a where there is none.

    >>> number(0.5), number(0.5, "+.2f"), number(None), number(None, ",", empty="")
    ('0.5000', '+0.50', 'n/a', '')
    """
    return empty if value is None or isnan(value) else format(value, form)


def span(ends: Sequence[float] | None, form: str = "+.4f", empty: str = "") -> str:
    """An interval by its ends.

    >>> span((0.1, 0.25), ".0%"), span(None)
    ('10% to 25%', '')
    """
    return empty if ends is None else " to ".join(number(end, form) for end in ends)


def p_value(p: float | None, *, equals: bool = False) -> str:
    """A p-value, with no more digits than it deserves.

    >>> p_value(0.00001), p_value(0.25, equals=True)
    ('< 0.0001', 'p = 0.2500')
    """
    text = "< 0.0001" if p is not None and p < 0.0001 else number(p)
    return text if not equals else f"p {text}" if text[0] == "<" else f"p = {text}"


def said(value: object, key: str = "") -> str:
    """Any value of a result; `key` is what it is called.

    >>> said(1234), said(0.25), said(0.00001), said(None), said([0.1, 0.2]), said(True)
    ('1,234', '0.2500', '1.00e-05', '–', '0.1000 to 0.2000', 'yes')
    """
    if value is None:
        return "" if key == REASON else EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if key == "p" or key.endswith("_p"):
            return p_value(value)
        if key.startswith("effective"):
            return f"{value:,.1f}"
        return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.2e}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {said(each)}" for name, each in value.items()) or EMPTY
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [said(each) for each in value]
        return (" to " if is_interval(value) else ", ").join(parts) or EMPTY
    return str(value)


def said_each(values: Sequence[object], key: str = "") -> list[str]:
    """Every value of a column as a page shows it."""
    return [said(value, key) for value in values]


def spread_each(values: Sequence[float | None], intervals: Sequence[Sequence[float] | None]) -> list[str]:
    """Every number of a column with its interval, where it has one.

    >>> spread_each([0.5, 1.0, None], [(0.4, 0.6), (1.0, 1.0), None])
    ['0.5000 (0.4000 to 0.6000)', '1.0000', '–']
    """
    return [
        said(value) + (f" ({said(ends)})" if value is not None and ends is not None and ends[0] < ends[1] else "")
        for value, ends in zip(values, intervals, strict=True)
    ]


def is_interval(value: object) -> bool:
    """Whether a value is a pair of floats, which a page shows as an interval."""
    ends = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return len(ends) == 2 and all(isinstance(end, float) for end in ends)


def words(key: str) -> str:
    """A key in words.

    >>> words("effective_sample_size")
    'effective sample size'
    """
    return key.replace("_", " ")


def metric_title(metric: str) -> str:
    """A metric as it is written.

    >>> metric_title("ndcg@10"), metric_title("arp_legacy"), metric_title("err@5")
    ('nDCG@10', 'ARP over slots', 'ERR@5')
    """
    name, sign, at = metric.partition("@")
    known = {"ndcg": "nDCG", "arp_legacy": "ARP over slots"}
    known |= {each: each.upper() for each in ("dcg", "err", "arp", "map", "mrr")}
    return known.get(name, name) + sign + at


def spread(summary: SeedSummary) -> str:
    """Mean and standard deviation over seeds, the mean alone where there is one seed."""
    return f"{summary.mean:.3f}" + ("" if isnan(summary.sd) else f" ± {summary.sd:.3f}")


def around(summary: SeedSummary) -> dict[str, Any]:
    """Mean over seeds, and one standard deviation to either side."""
    sd = 0.0 if isnan(summary.sd) else summary.sd
    return {"mean": summary.mean, "low": summary.mean - sd, "high": summary.mean + sd}


def command_line(name: str, *arguments: object, **flags: object) -> str:
    """A command as it is typed; flags that are None, False or empty are left out.

    >>> command_line("learn", "log", factor=["device", "media"], force=True, seed=None, out="my runs")
    "unskew learn log --factor device --factor media --force --out 'my runs'"
    """
    words = ["unskew", name, *map(str, arguments)]
    for key, value in flags.items():
        flag = f"--{key.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            each = value if isinstance(value, list | tuple) else [value]
            words += [word for one in each for word in (flag, str(one))]
    return shlex.join(words)


# ---- results as tables ----


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


# ---- the best of a column ----

NEAR = "≈"
"""The sign of numbers of which none is ahead of the others by more than the spread."""
SAME = 0.0005
"""Means that are closer than this read the same with three digits."""


@dataclass(frozen=True)
class Value:
    """A number of a table, and by how much it might be another."""

    mean: float
    spread: float = 0.0

    @classmethod
    def of(cls, summary: SeedSummary) -> Value:
        """A mean over seeds, with their standard deviation."""
        return cls(summary.mean, 0.0 if isnan(summary.sd) else summary.sd)


Column = Sequence[Value | None]
"""What the rows have in a column; None for those that are not compared."""


def with_best(
    table: Table, columns: Mapping[int, Column], *, among: str, spread: str, lowest: Sequence[int] = ()
) -> Table:
    """The table with the best of these columns marked, and what the signs mean below it.

    `among` says which rows are compared, `spread` what a spread is; in the columns `lowest` the lowest is best.
    """
    marks, level = dict(table.marks), list[str]()
    for column, values in columns.items():
        near = _level(values, -1 if column in lowest else 1)
        compared = sum(value is not None and not isnan(value.mean) for value in values)
        if len(near) == 1 and compared > 1:
            marks[near[0], column] = BEST
        elif len(near) == compared > 1:
            level.append(table.columns[column])
        elif compared > 1:
            marks |= {(row, column): NEAR for row in near}
    parts = [table.legend]
    if BEST in marks.values():
        found = {column in lowest for (_, column), sign in marks.items() if sign == BEST}
        best = "lowest" if found == {True} else "highest" if found == {False} else "best"
        parts.append(f"{BEST} {best} of its column among {among}.")
    if NEAR in marks.values():
        parts.append(f"{NEAR} within the spread of the best ({spread}): none of these is marked.")
    if level:
        names = listed(list(dict.fromkeys(level)))
        parts.append(f"{names}: all of {among} lie within the spread of the best ({spread}), none is marked.")
    return replace(table, marks=marks, legend=" ".join(filter(None, parts)))


def _level(values: Column, sign: int) -> list[int]:
    """The rows that may be the best: those behind the first by no more than the spread of either.

    >>> _level([Value(0.5, 0.01), None, Value(0.52, 0.03), Value(0.4)], 1)
    [0, 2]
    """
    known = {row: value for row, value in enumerate(values) if value is not None and not isnan(value.mean)}
    if not known:
        return []
    first = max(known.values(), key=lambda value: sign * value.mean)
    return [
        row
        for row, value in known.items()
        if sign * (first.mean - value.mean) <= max(first.spread, value.spread, SAME)
    ]
