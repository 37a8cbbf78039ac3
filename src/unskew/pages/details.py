"""Whatever was found, as tables: every number of a nested result, so that a page leaves none out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unskew.pages.numbers import p_value
from unskew.pages.page import Table

EMPTY = "–"
REASON = "reason"
"""What says why there is no number; where there is one, nothing stands there."""
MOST = 120
"""Rows of a table past which the rest is in the JSON alone."""


def said(value: object, key: str = "") -> str:
    """A value in a cell; `key` is what it is called.

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


def is_interval(value: object) -> bool:
    """Two numbers with a point."""
    ends = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return len(ends) == 2 and all(isinstance(end, float) for end in ends)


def words(key: str) -> str:
    """A key in words.

    >>> words("effective_sample_size")
    'effective sample size'
    """
    return key.replace("_", " ")


def detail_tables(found: Mapping[str, Any], title: str = "") -> list[Table]:
    """Tables of all that a result says: its numbers, its lists side by side, its records, then what is inside."""
    plain = {key: value for key, value in found.items() if not _is_inner(value)}
    lists = {key: value for key, value in found.items() if _is_column(value)}
    tables = [_facts(plain, title)] if plain else []
    by_length: dict[int, dict[str, Any]] = {}
    for key, value in lists.items():
        by_length.setdefault(len(value), {})[key] = value
    tables += [_columns(group, title) for group in by_length.values()]
    alike = _alike(found)
    tables += [_records(group, title) for group in alike]
    for key, value in found.items():
        if any(key in group for group in alike):
            continue
        name = ": ".join(filter(None, (title, words(str(key)))))
        if isinstance(value, Mapping) and value:
            tables += [_records(value, name)] if _all_flat(value.values()) else detail_tables(value, name)
        elif _is_records(value):
            tables += _record_tables(value, name)
        elif _is_matrix(value):
            tables.append(_matrix(value, name))
    return tables


def _alike(found: Mapping[str, Any]) -> list[dict[str, Mapping[str, Any]]]:
    """Mappings of plain values under the same names, which make one table together."""
    groups: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for key, value in found.items():
        if isinstance(value, Mapping) and value and not any(map(_is_inner, value.values())):
            groups.setdefault(tuple(value), {})[key] = value
    return [group for group in groups.values() if len(group) > 1]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_records(value: Any) -> bool:
    return _is_list(value) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _is_matrix(value: Any) -> bool:
    """Rows of one length, of numbers that are more than intervals."""
    rows = _is_list(value) and bool(value) and all(_is_list(each) for each in value)
    return rows and len(value[0]) > 2 and len({len(each) for each in value}) == 1


def _is_column(value: Any) -> bool:
    """A list of numbers, words or intervals."""
    return (
        _is_list(value)
        and bool(value)
        and not _is_records(value)
        and not _is_matrix(value)
        and not is_interval(value)
    )


def _is_inner(value: Any) -> bool:
    return (
        (isinstance(value, Mapping) and bool(value))
        or _is_records(value)
        or _is_matrix(value)
        or _is_column(value)
    )


def _all_flat(values: Any) -> bool:
    """Whether all are mappings of plain values, so that they make one table."""
    each = list(values)
    return all(isinstance(one, Mapping) and one and not any(map(_is_inner, one.values())) for one in each)


def _facts(found: Mapping[str, Any], title: str) -> Table:
    told = {key: value for key, value in found.items() if key != REASON or value is not None}
    return Table(("", "value"), [[words(key), said(value, key)] for key, value in told.items()], title, ["value"])


def _columns(lists: Mapping[str, Sequence[Any]], title: str) -> Table:
    """Lists of one length side by side, numbered from 1."""
    length = len(next(iter(lists.values())))
    rows = [
        [str(at + 1), *(said(values[at], key) for key, values in lists.items())] for at in range(min(length, MOST))
    ]
    texts = _texts([dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)])
    return Table(("", *map(words, lists)), rows, title, texts, legend=_rest(length)).without_empty(but=2)


def _records(found: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """A row for each name."""
    keys = list(dict.fromkeys(key for row in found.values() for key in row))
    rows = [[words(str(name)), *(said(row.get(key), key) for key in keys)] for name, row in found.items()]
    texts, rest = _texts(list(found.values())), _rest(len(rows))
    return Table(("", *map(words, keys)), rows[:MOST], title, texts, legend=rest).without_empty(but=2)


def _record_tables(records: Sequence[Mapping[str, Any]], title: str) -> list[Table]:
    """One table of what is plain; what a record has inside comes in tables of its own."""
    if not _all_flat(records):
        names = [str(next(iter(row.values()), at + 1)) for at, row in enumerate(records)]
        return [
            table
            for row, name in zip(records, names, strict=True)
            for table in detail_tables(row, f"{title}: {name}")
        ]
    keys = list(dict.fromkeys(key for row in records for key in row))
    rows = [[said(row.get(key), key) for key in keys] for row in records[:MOST]]
    whole = Table(list(map(words, keys)), rows, title, _texts(records), legend=_rest(len(records)))
    return [whole.without_empty(but=2)]


def _texts(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns of words."""
    return tuple(
        dict.fromkeys(words(key) for row in records for key, value in row.items() if isinstance(value, str))
    )


def _matrix(rows: Sequence[Sequence[Any]], title: str) -> Table:
    width = len(rows[0])
    cells = [[str(at + 1), *(said(value) for value in row)] for at, row in enumerate(rows[:MOST])]
    return Table(("", *(str(at + 1) for at in range(width))), cells, title, legend=_rest(len(rows)))


def _rest(length: int) -> str:
    return f"The first {MOST} of {length:,}; all are in the JSON." if length > MOST else ""
