"""The one clock of all readers: times of every kind as UTC, or missing where they cannot be read.

A number counts seconds, milliseconds, microseconds or nanoseconds since 1970; its size says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.tables.engine.functions import from_micros, from_zone

if TYPE_CHECKING:
    from ibis.expr.types import Value

OFFSET = r"^.*[0-9]([+-])([0-9]{2}):?([0-9]{2})?$"
ZONE = r"(Z|z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)"
ISO = rf"^\s*[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.,][0-9]+)?)?\s*{ZONE}?)?\s*$"
UTC = "timestamp('UTC')"
INTEGER = r"^\s*-?[0-9]{1,19}\s*$"
NUMBER = r"^\s*-?[0-9]{1,19}([.][0-9]*)?\s*$"
SECONDS, MILLIS, MICROS, NANOS = 10**11, 10**14, 10**17, 10**20
"""Numbers below these are of that unit: 10^11 seconds is the year 5138."""


def micros_since_1970(number: int | float) -> int | None:
    """Microseconds since 1970 of a number of any unit; None where it is too large for all of them.

    >>> [micros_since_1970(number) for number in (1717200000.5, 1717200000500, 1717200000500000999)]
    [1717200000500000, 1717200000500000, 1717200000500000]
    """
    size = abs(number)
    if not size < NANOS:
        return None
    if size >= MICROS:
        return int(number) // 1_000
    return round(number * (1_000_000 if size < SECONDS else 1_000 if size < MILLIS else 1))


def as_utc(value: Any, zone: str, engine: str) -> Value:
    """A column as a timestamp with the zone UTC; null where it cannot be read.

    Text is a number or ISO 8601. A time that names no zone is one of `zone`.
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
    """`micros_since_1970` as an expression."""
    import ibis

    def below(limit: int) -> Any:  # not abs(), which the smallest whole number has none of
        return (number < float(limit)) & (number > -float(limit))

    nothing = ibis.null(number.type())
    scale = ibis.cases((below(SECONDS), 1_000_000), (below(MILLIS), 1_000), else_=1)
    micros = (ibis.ifelse(below(MICROS), number, nothing) * scale).cast("int64")
    large = ibis.ifelse(below(NANOS) & ~below(MICROS), number, nothing)
    thousands = large - large % 1_000 if number.type().is_integer() else large  # division is of floats
    return from_micros(ibis.coalesce(micros, (thousands / 1_000).round().cast("int64")), engine)


def _from_text(text: Any, zone: str, engine: str) -> Value:
    import ibis

    nothing = ibis.null("string")
    whole = ibis.ifelse(text.re_search(INTEGER), text.strip(), nothing).try_cast("int64")
    number = ibis.ifelse(text.re_search(NUMBER) & whole.isnull(), text.strip(), nothing).try_cast("float64")
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
    return ibis.coalesce(_since_1970(whole, engine), _since_1970(number, engine), moved)
