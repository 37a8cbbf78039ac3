"""Functions that DuckDB and Spark both have and Ibis does not, under the names that they have there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

LARGEST = 1.7976931348623157e308
"""Of all floats."""


def bit_or(value: Any) -> Any:
    """All bits of a group of whole numbers together."""
    return _builtin("bit_or", ("int64",), "int64", aggregate=True)(value)


def left(text: Any, characters: int) -> Any:
    """The first characters; `left` of Ibis writes the text down three times, and again for what is inside it."""
    return _builtin("left", ("string", "int32"), "string")(text, characters)


def finite(column: Any, engine: str) -> Any:
    """A column as floats, null where they are missing, not a number, or infinite.

    DuckDB believes the statistics of a Parquet file, which pass over NaN, and takes `isnan` and every comparison
    for settled by them; `isfinite` it asks of every value.
    """
    import ibis

    number = column.cast("float64")
    if engine == "duckdb":
        sound = _builtin("isfinite", ("float64",), "boolean")(number)
    else:
        sound = ~number.isnan() & number.between(-LARGEST, LARGEST)
    return ibis.ifelse(sound, number, ibis.null("float64"))


def from_micros(micros: Any, engine: str) -> Any:
    """The timestamp in UTC so many microseconds after 1970 began."""
    name = "timestamp_micros" if engine == "spark" else "make_timestamp"
    return _builtin(name, ("int64",), "timestamp")(micros)


def to_micros(time: Any, engine: str) -> Any:
    """Microseconds from 1970 to a timestamp in UTC."""
    name = "unix_micros" if engine == "spark" else "epoch_us"
    return _builtin(name, (str(time.type()),), "int64")(time)


def from_zone(naive: Any, zone: str, engine: str) -> Any:
    """The timestamp in UTC at which clocks of a zone show `naive`."""
    if zone == "UTC":
        return naive
    if engine == "spark":
        return _builtin("to_utc_timestamp", ("timestamp", "string"), "timestamp")(naive, zone)
    return _builtin("timezone", ("string", "timestamp"), "timestamp('UTC')")(zone, naive).cast("timestamp")


@cache
def _builtin(name: str, takes: Sequence[str], gives: str, aggregate: bool = False) -> Any:
    import ibis

    def one(a: Any) -> Any: ...

    def two(a: Any, b: Any) -> Any: ...

    makes = ibis.udf.agg.builtin if aggregate else ibis.udf.scalar.builtin
    return makes(one if len(takes) == 1 else two, name=name, signature=(tuple(takes), gives))
