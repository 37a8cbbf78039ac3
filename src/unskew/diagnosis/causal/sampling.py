"""A bounded, seeded sample of the impressions of a log, drawn on the engine; the log is never in memory.

Impressions are taken by a hash of page, rank and seed, so the same seed gives the same sample on one engine. As
tests of the click want as many clicked impressions as others, clicked ones are taken beyond the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.errors import DataError
from unskew.logs.presentation import as_arrow
from unskew.names import REQUIRED
from unskew.settings import require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.schema import check_values, to_array, whole_numbers
from unskew.types import Array, Log

if TYPE_CHECKING:
    from ibis.expr.types import Table

KEY = "unskew_key"
PREFIX = "serp_"


def sample_table(
    engine: Engine, log: Table, columns: Sequence[str], size: int, *, seed: int, place: Path | str
) -> tuple[Any, Array]:
    """So many impressions as an Arrow table of the required and these columns, and half as many clicked ones.

    The flags [N] are true for impressions that are there for their click alone.
    """
    require_columns([*REQUIRED, *columns], log.columns, path=place)
    wanted = log.select(*dict.fromkeys((*REQUIRED, *columns)))
    text = wanted["page_id"].cast("string") + "|" + wanted["position"].cast("string") + f"|{seed}"
    keyed = wanted.mutate(**{KEY: text.hash()}).order_by(KEY)
    clicked = keyed.filter(keyed["click"].cast("int64") == 1)
    plain, more = engine.to_arrow(keyed.limit(size)), engine.to_arrow(clicked.limit(size // 2))
    if not len(plain):
        raise DataError("the log has no impressions", path=place)
    import pyarrow as pa

    new = ~np.isin(to_array(more[KEY]), to_array(plain[KEY]))
    joined = pa.concat_tables([plain, more.filter(pa.array(new))]).drop_columns([KEY])
    check_values(whole_numbers(joined, "position", place), whole_numbers(joined, "click", place), place)
    return joined, np.arange(len(joined)) >= len(plain)


def sample_log(log: Log, size: int, *, seed: int) -> tuple[Array, Array]:
    """The same of a log in memory: which impressions [N], and flags."""
    order = np.random.default_rng([seed, 3]).permutation(len(log.row))
    rest = order[size:]
    more = rest[log.click[rest] == 1][: size // 2]
    return np.concatenate([order[:size], more]), np.arange(min(size, len(order)) + len(more)) >= size


def shown_columns(present: Sequence[str], asked: Sequence[str] | None) -> list[str]:
    """The columns to look for causes in: those asked for, or all that say how a result looks."""
    found = [name for name in present if name.startswith(PREFIX)]
    return found if asked is None else [name for name in dict.fromkeys(asked) if name != "position"]


def to_columns(table: Any, names: Sequence[str]) -> dict[str, Array]:
    """Columns of an Arrow table as arrays, missing values as None."""
    return {name: _checked(name, to_array(table[name].combine_chunks())) for name in names}


def _checked(name: str, column: Array) -> Array:
    as_arrow(name, column)  # text, booleans or numbers, or an error that says so
    return column
