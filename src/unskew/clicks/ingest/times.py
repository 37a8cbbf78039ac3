"""Timestamps of every kind as one expression: UTC, or missing where they cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.clicks.ingest.functions import from_micros, from_zone

if TYPE_CHECKING:
    from ibis.expr.types import Value

OFFSET = r"^.*[0-9]([+-])([0-9]{2}):?([0-9]{2})?$"
ZONE = r"(Z|z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)"
ISO = rf"^\s*[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.,][0-9]+)?)?\s*{ZONE}?)?\s*$"
UTC = "timestamp('UTC')"
NUMBER = r"^\s*-?[0-9]{1,18}([.][0-9]+)?\s*$"
SECONDS, MILLIS, MICROS = 1e11, 1e14, 1e17
"""Numbers below these are seconds, milliseconds, microseconds: 1e11 seconds is the year 5138."""


def as_utc(value: Any, zone: str, engine: str) -> Value:
    """A column as a timestamp with the zone UTC; null where it cannot be read.

    Numbers are seconds, milliseconds or microseconds since 1970, by their size. Text is such a number or ISO 8601.
    A time that names no zone is one of `zone`.
    """
    kind = value.type()
    if kind.is_timestamp():
        if kind.timezone == "UTC":
            return value  # a cast would cost as much as all the rest
        return (value if kind.timezone else from_zone(value, zone, engine)).cast(UTC)
    if kind.is_date():
        return from_zone(value.cast("timestamp"), zone, engine).cast(UTC)
    if kind.is_numeric() and not kind.is_boolean():
        return _since_1970(value.cast("float64") if not kind.is_integer() else value, engine).cast(UTC)
    return _from_text(value.cast("string"), zone, engine).cast(UTC)


def _since_1970(number: Any, engine: str) -> Value:
    import ibis

    size = number.abs()
    scale = ibis.cases((size < SECONDS, 1_000_000), (size < MILLIS, 1_000), else_=1)
    fits = size < MICROS
    micros = (ibis.ifelse(fits, number, ibis.null(number.type())) * scale).cast("int64")
    return from_micros(micros, engine)


def _from_text(text: Any, zone: str, engine: str) -> Value:
    import ibis

    nothing = ibis.null("string")
    number = ibis.ifelse(text.re_search(NUMBER), text.strip(), nothing).try_cast("float64")
    iso = ibis.ifelse(text.re_search(ISO), text.strip().upper(), nothing)
    clock = iso.re_replace(rf"\s*{ZONE}$", "").replace("T", " ").replace(",", ".")
    day_only = iso.length() == 10
    naive = ibis.ifelse(day_only, iso, clock).left(26).try_cast("timestamp")  # up to microseconds
    offset = ibis.ifelse(day_only, nothing, iso)
    hours = offset.re_extract(OFFSET, 2).try_cast("int64").fill_null(0)
    minutes = hours * 60 + offset.re_extract(OFFSET, 3).try_cast("int64").fill_null(0)
    signed = ibis.ifelse(offset.re_extract(OFFSET, 1) == "-", minutes, -minutes)
    says_zone = iso.re_search(rf"[0-9]\s*{ZONE}$") & ~day_only
    moved = ibis.ifelse(says_zone, naive + signed.as_interval("m"), from_zone(naive, zone, engine))
    return ibis.coalesce(_since_1970(number, engine), moved)
