"""Functions that DuckDB and Spark both have and Ibis does not, under the names that they have there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from unskew.tables.engine.expressions import Table, Value, ibis

OFFSET = r"^.*[0-9]([+-])([0-9]{2}):?([0-9]{2})?$"
ZONE = r"(Z|z|UTC|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)"
ISO = rf"^\s*[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.,][0-9]+)?)?\s*{ZONE}?)?\s*$"
USUAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z?$"
"""2026-01-31T12:00:00Z."""
UTC = "timestamp('UTC')"
INTEGER = r"^\s*-?[0-9]{1,19}\s*$"
NUMBER = r"^\s*-?[0-9]{1,19}([.][0-9]*)?\s*$"
SECONDS, MILLIS, MICROS, NANOS = 10**11, 10**14, 10**17, 10**20
"""Numbers below these are of that unit: 10^11 seconds is the year 5138."""
LARGEST = 1.7976931348623157e308
"""The largest of all floats."""


def united(tables: Sequence[Table], schema: pa.Schema, ids: Collection[str]) -> Table:
    """Tables as one, with these columns in these types; empty where a table lacks one; no `ids` as floats."""

    def column(table: Table, each: pa.Field) -> Any:
        found = table[each.name] if each.name in table.columns else ibis.null()
        found = whole(found) if each.name in ids and found.type().is_floating() else found
        return found.cast(each.type)

    return ibis.union(*(table.select(**{each.name: column(table, each) for each in schema}) for table in tables))


def whole(number: Any) -> Any:
    """Floats that are whole as whole numbers, null where they are not a number."""
    return ibis.ifelse(number.isnan(), ibis.null(number.type()), number).cast("int64")


def bit_or(value: Any) -> Any:
    """All bits of a group of whole numbers together."""
    return builtin("bit_or", ("int64",), "int64", aggregate=True)(value)


def left(text: Any, characters: int) -> Any:
    """The first characters; `left` of Ibis writes the text down three times, and again for what is inside it."""
    return builtin("left", ("string", "int32"), "string")(text, characters)


def finite(column: Any, engine: str) -> Any:
    """A column as floats, null where they are missing, not a number, or infinite.

    DuckDB believes the statistics of a Parquet file, which pass over NaN, and takes `isnan` and every comparison
    for settled by them; `isfinite` it asks of every value.
    """
    number = column.cast("float64")
    if engine == "duckdb":
        sound = builtin("isfinite", ("float64",), "boolean")(number)
    else:
        sound = ~number.isnan() & number.between(-LARGEST, LARGEST)
    return ibis.ifelse(sound, number, ibis.null("float64"))


def to_micros(time: Any, engine: str) -> Any:
    """Microseconds from 1970 to a timestamp in UTC."""
    name = "unix_micros" if engine == "spark" else "epoch_us"
    return builtin(name, (str(time.type()),), "int64")(time)


def from_zone(naive: Any, zone: str, engine: str) -> Any:
    """The timestamp in UTC at which clocks of a zone show `naive`."""
    if zone == "UTC":
        return naive
    if engine == "spark":
        return builtin("to_utc_timestamp", ("timestamp", "string"), "timestamp")(naive, zone)
    return builtin("timezone", ("string", "timestamp"), "timestamp('UTC')")(zone, naive).cast("timestamp")


@cache
def builtin(name: str, takes: tuple[Any, ...], gives: str, aggregate: bool = False) -> Any:
    """A function of one or two arguments that an engine has under this name."""

    def one(a: Any) -> Any: ...

    def two(a: Any, b: Any) -> Any: ...

    makes = ibis.udf.agg.builtin if aggregate else ibis.udf.scalar.builtin
    return makes(one if len(takes) == 1 else two, name=name, signature=(takes, gives))


# ---- times of every kind as UTC ----


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
    def below(limit: int) -> Any:  # not abs(), which the smallest whole number has none of
        return (number < float(limit)) & (number > -float(limit))

    nothing = ibis.null(number.type())
    scale = ibis.cases((below(SECONDS), 1_000_000), (below(MILLIS), 1_000), else_=1)
    micros = (ibis.ifelse(below(MICROS), number, nothing) * scale).cast("int64")
    large = ibis.ifelse(below(NANOS) & ~below(MICROS), number, nothing)
    thousands = large - large % 1_000 if number.type().is_integer() else large  # division is of floats
    made = builtin("timestamp_micros" if engine == "spark" else "make_timestamp", ("int64",), "timestamp")
    return made(ibis.coalesce(micros, (thousands / 1_000).round().cast("int64")))


def _from_text(text: Any, zone: str, engine: str) -> Value:
    """Times as most logs write them, by one cast; others by `_from_any_text`, which takes ten times as long."""
    clock = text.replace("T", " ").replace("Z", "").try_cast("timestamp")
    moved = ibis.ifelse(text.endswith("Z"), clock, from_zone(clock, zone, engine))
    return ibis.ifelse(text.re_search(USUAL), moved, _from_any_text(text, zone, engine))


def _from_any_text(text: Any, zone: str, engine: str) -> Value:
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
