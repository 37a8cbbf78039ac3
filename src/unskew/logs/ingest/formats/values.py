"""Checks on single values from a file: text, numbers, times. What does not pass makes its record broken."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

from unskew.tables.engine.functions import micros_since_1970

LONGEST_ID = 1_024
LONGEST_TEXT = 65_536
FIRST_YEAR = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LATEST = (datetime(2200, 1, 1, tzinfo=UTC) - FIRST_YEAR) // _MICROSECOND
"""Times outside of these are taken for damage."""
_DIGITS = re.compile(r"-?[0-9]{1,19}(\.[0-9]*)?", re.ASCII)
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?", re.ASCII)


class Broken(Exception):
    """A record cannot be used; the message is the reason, in words of ours, so that reasons can be counted."""


def utf8(raw: bytes) -> str:
    """The text of a record."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Broken("not_utf8") from None


def parse_json(raw: bytes) -> Any:
    """The JSON value of a record; NaN, infinities, repeated nesting without end and huge numbers are refused."""
    text = utf8(raw)
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise Broken("nested_too_deeply") from None
    except ValueError:
        raise Broken("not_json") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def identifier(value: Any, name: str) -> str:
    """An id: a text that is neither empty nor absurdly long, or a whole number.

    >>> identifier(12, "doc_id")
    '12'
    """
    if type(value) is str and value.isascii() and 0 < len(value) <= LONGEST_ID:  # nearly all of them
        return value
    value = scalar(value)
    if value is None or value == "":
        raise Broken(f"missing_{name}")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        return str(value)
    return _text(value, name, LONGEST_ID)


def optional_identifier(value: Any, name: str) -> str | None:
    """An id, or None where it is missing or empty."""
    value = scalar(value)
    return None if value is None or value == "" else identifier(value, name)


def text(value: Any, name: str) -> str | None:
    """A text of bounded length, or None."""
    value = scalar(value)
    return None if value is None else _text(value, name, LONGEST_TEXT)


def _text(value: Any, name: str, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise Broken(f"bad_{name}")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Broken(f"bad_{name}")  # half of a surrogate pair is not text
    return value


def number(value: Any, name: str, low: float = -1e15, high: float = 1e15) -> float | None:
    """A finite number within bounds, also where it is written as a text; None where it is missing.

    >>> number("0.25", "propensity", 0, 1)
    0.25
    """
    if type(value) is float and low <= value <= high:
        return value
    value = scalar(value)
    if value is None or value in ("", "-"):
        return None
    if isinstance(value, str) and len(value) < 64 and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Broken(f"bad_{name}")
    if not low <= value <= high:  # also where it is not a number
        raise Broken(f"bad_{name}")
    return float(value)


@lru_cache(maxsize=2**16)
def cell_number(cell: str) -> float | None:
    """The number in a cell of a table, where the same few numbers come again and again."""
    return number(cell.strip(), "number")


def whole(value: Any, name: str, low: int, high: int, *, needed: bool = True) -> int | None:
    """A whole number within bounds; None where it is missing, which is broken where it is `needed`."""
    found = number(value, name, low, high)
    if found is None and needed:
        raise Broken(f"missing_{name}")
    if found is not None and found != int(found):
        raise Broken(f"bad_{name}")
    return None if found is None else int(found)


def time(value: Any, zone: tzinfo) -> int | None:
    """Microseconds since 1970: from ISO 8601 or from a number since 1970, of any unit; None where missing.

    >>> time("2024-06-01T00:00:00.5Z", UTC), time("1717200000500", UTC)
    (1717200000500000, 1717200000500000)
    """
    value = scalar(value)
    if value is None or value == "":
        return None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = float(value) if "." in value else int(value)
    micros = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        micros = micros_since_1970(value)
    elif isinstance(value, str) and 10 <= len(value) <= 40:
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
            micros = (moment - FIRST_YEAR) // _MICROSECOND
    if micros is None or not 0 <= micros < LATEST:
        raise Broken("unreadable_timestamp")
    return micros


def scalar(value: Any) -> Any:
    """The value; the only element where it stands in a list of one, as some index exports write it."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def find(record: Mapping[str, Any], *path: str) -> Any:
    """A nested value, whether its names are nested or joined by dots; None where there is none.

    >>> find({"a": {"b.c": 1}}, "a", "b", "c"), find({"a.b.c": 1}, "a", "b", "c"), find({}, "a")
    (1, 1, None)
    """
    for size in range(1, len(path) + 1):
        value = record.get(".".join(path[:size]))
        if size < len(path):
            value = find(value, *path[size:]) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None
