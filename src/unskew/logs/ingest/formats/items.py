"""The fields of items as a table of features: a row for each item, a column for each field, for `--features`.

The latest event that names a field says its values. A number or a truth value is a number, a text is a text. A
field that is a list somewhere becomes, where all its texts together are few, a column `FIELD=TEXT` of 0 and 1 for
each of them; else its first value under its own name. Beside either, `FIELD count` says how many values there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.tables.engine.engine import Engine
from unskew.tables.engine.functions import to_micros

if TYPE_CHECKING:
    from ibis.expr.types import Table

MOST_TEXTS = 40
"""Texts of a list that have a column each."""
MOST_COLUMNS = 1_000
"""Fields that become columns, the most frequent ones."""
TAKEN = ("doc_id", "query_id")


@dataclass(frozen=True)
class ItemField:
    """A field of items, in numbers."""

    name: str
    numbers: int
    texts: int
    """How many of its values are numbers and texts."""
    last: int | None
    """The last place in a list; None where it is none."""
    distinct: int
    """How many different texts there are."""


def write_items(long: Path, folder: Path, engine: Engine) -> None:
    """The table of items from the table of their fields: doc_id, timestamp, name, number, text, place."""
    rows = engine.keep(_latest(engine.read_parquet(long), engine))
    columns = dict(_columns(rows, _fields(rows, engine), engine))
    plain = {f"c{at}": column for at, column in enumerate(columns.values())}  # names may hold any letter
    scratch = folder.with_name(folder.name + "-plain")
    engine.write_parquet(rows.group_by("doc_id").agg(**plain), scratch)
    folder.mkdir(parents=True)
    for at, path in enumerate(sorted(scratch.rglob("*.parquet"))):
        pq.write_table(_renamed(pq.read_table(path), list(columns)), folder / f"part-{at:05d}.parquet")


def _latest(rows: Table, engine: Engine) -> Table:
    """What the last event says of each field of an item."""
    timed = rows.mutate(at=to_micros(rows.timestamp, engine.name).fill_null(0))
    last = timed.mutate(last=timed["at"].max().over(group_by=["doc_id", "name"]))
    return last.filter((last["at"] == last["last"]) & last.name.notnull())


def _fields(rows: Table, engine: Engine) -> list[ItemField]:
    import ibis

    counts = rows.group_by("name").agg(
        numbers=rows.number.count(), texts=rows.text.count(), last=rows.place.max(), distinct=rows.text.nunique()
    )
    most = counts.order_by(ibis.desc(counts.numbers + counts.texts), "name").limit(MOST_COLUMNS)
    return sorted((ItemField(**row) for row in engine.rows(most)), key=lambda field: field.name)


def _columns(rows: Table, fields: Sequence[ItemField], engine: Engine) -> Iterator[tuple[str, Any]]:
    """Names and values of the columns; of names that differ in case only, the later ones are numbered."""
    seen: dict[str, int] = {}
    for field in fields:
        nth = seen[field.name.lower()] = seen.get(field.name.lower(), 0) + 1
        name = f"item_{field.name}" if field.name in TAKEN else field.name
        name = name if nth == 1 else f"{name} {nth}"
        ours: Any = rows.name == field.name
        first = rows.place.fill_null(0) == 0
        if field.last is not None and field.texts and field.distinct <= MOST_TEXTS:
            for text in _texts(rows, field.name, engine):
                yield f"{name}={text}", (rows.text == text).fill_null(False).cast("float64").max(where=ours)
        elif field.texts:
            text = rows.text if not field.numbers else rows.text.fill_null(rows.number.cast("string"))
            yield name, text.max(where=ours & first)
        else:
            yield name, rows.number.max(where=ours & first)
        if field.last is not None:
            yield f"{name} count", ours.cast("float64").sum()


def _texts(rows: Table, name: str, engine: Engine) -> list[str]:
    found = rows.filter((rows.name == name) & rows.text.notnull()).select("text").distinct().order_by("text")
    return [row["text"] for row in engine.rows(found)]


def _renamed(table: pa.Table, names: list[str]) -> pa.Table:
    return table.select(["doc_id", *(f"c{at}" for at in range(len(names)))]).rename_columns(["doc_id", *names])
