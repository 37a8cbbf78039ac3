"""Metarank's JSON events, in which the RankLens data come too: `ranking`, `interaction`, `item` and `user`.

A ranking is a page and its id the page_id. Interactions of a click type that name their ranking are its clicks.
A ranking has a query where a field `query` says so; without one all pages share the query `all`, so that a
document is one and the same wherever it is shown. Items (`metadata` in old files) go to the side table
`item_fields`, a row for each value, of which `write_items` makes a table of features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.logs.ingest.formats.records import each_json
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.values import Broken, identifier, number, optional_identifier, text, time
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.functions import to_micros
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table


NO_QUERY = "all"
MOST_FIELDS = 10_000


def read_metarank(paths: Sequence[Path], stage: Stage, options: IngestOptions) -> None:
    """Stage the rankings and clicks of Metarank events."""
    each_json(paths, stage, options, _Metarank(stage, options).take)


class _Metarank:
    """Takes one event at a time."""

    def __init__(self, stage: Stage, options: IngestOptions) -> None:
        self.stage, self.options, self.zone = stage, options, ZoneInfo(options.time.zone)

    def take(self, record: Mapping[str, Any]) -> None:
        """One event."""
        kind = record.get("event")
        if kind == "ranking":
            self._ranking(record)
        elif kind == "interaction":
            self._interaction(record)
        elif kind in ("item", "metadata"):
            self._item(record)
        elif kind == "user":
            self.stage.ignore("user_event")
        else:
            raise Broken("missing_event" if kind is None else "unknown_event")

    def _ranking(self, record: Mapping[str, Any]) -> None:
        items = record.get("items")
        if not isinstance(items, list) or not items:
            raise Broken("missing_items")
        if len(items) > self.options.reader.most_results:
            raise Broken("too_many_results")
        words = text(dict(_fields(record)).get("query"), "query")
        page = {
            "page_id": identifier(record.get("id"), "id"),
            "visit_id": optional_identifier(record.get("session"), "session"),
            "user_id": optional_identifier(record.get("user"), "user"),
            "query_id": identifier(words, "query") if words else NO_QUERY,
            "query_text": words,
            "timestamp": time(record.get("timestamp"), self.zone),
            "randomized": True if self.options.reader.randomized else None,
        }
        shown = [_shown(item) for item in items]
        for position, (doc, score) in enumerate(shown, 1):
            self.stage.add("impressions", **page, doc_id=doc, position=position, logging_score=score)

    def _interaction(self, record: Mapping[str, Any]) -> None:
        if identifier(record.get("type"), "type") not in self.options.events.click:
            self.stage.ignore("other_interaction")
            return
        page_id = optional_identifier(record.get("ranking"), "ranking")
        if page_id is None:
            self.stage.ignore("click_without_ranking")
            return
        row = {
            "page_id": page_id,
            "visit_id": optional_identifier(record.get("session"), "session"),
            "user_id": optional_identifier(record.get("user"), "user"),
            "doc_id": identifier(record.get("item"), "item"),
            "timestamp": time(record.get("timestamp"), self.zone),
        }
        self.stage.add("clicks", **row)

    def _item(self, record: Mapping[str, Any]) -> None:
        doc, when = identifier(record.get("item"), "item"), time(record.get("timestamp"), self.zone)
        rows = [row for name, value in _fields(record) for row in _cells(name, value)]
        if len(rows) > MOST_FIELDS:
            raise Broken("too_many_fields")
        for row in rows or [{}]:
            self.stage.add("item_fields", doc_id=doc, timestamp=when, **row)


def _shown(item: Any) -> tuple[str, float | None]:
    """Id and score of a result; the score stands beside the id or among the fields."""
    if not isinstance(item, dict):
        raise Broken("bad_items")
    score = item.get("relevancy")
    score = dict(_fields(item)).get("relevancy") if score is None else score
    return identifier(item.get("id"), "item"), number(score, "relevancy")


def _fields(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of the list `fields`, which may be missing."""
    fields = record.get("fields")
    if not fields and fields in (None, []):
        return
    if not isinstance(fields, list) or len(fields) > MOST_FIELDS:
        raise Broken("bad_fields")
    for field in fields:
        if not isinstance(field, dict):
            raise Broken("bad_fields")
        yield identifier(field.get("name"), "fields"), field.get("value")


def _cells(name: str, value: Any) -> Iterator[dict[str, Any]]:
    """A value as rows of the table of fields: a number, a text, or a list of them, with the place in the list."""
    several = isinstance(value, list)
    for nth, part in enumerate(value if several else [value]):
        place = nth if several else None
        if isinstance(part, bool):
            yield {"name": name, "number": float(part), "place": place}
        elif isinstance(part, int | float):
            yield {"name": name, "number": number(part, "fields"), "place": place}
        elif part is not None:
            yield {"name": name, "text": text(part, "fields"), "place": place}


# ---- the fields of items as a table of features ----


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
    """A table with a row for each item and a column for each field, from the table of their fields.

    The latest event that names a field says its values. A number or a truth value is a number, a text is a text.
    A field that is a list somewhere becomes, where all its texts together are few, a column `FIELD=TEXT` of 0 and
    1 for each of them; else its first value under its own name. Beside either, `FIELD count` says how many values
    there are.
    """
    rows = engine.keep(_latest(engine.read_parquet(long), engine))
    columns = dict(_columns(rows, _item_fields(rows, engine), engine))
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


def _item_fields(rows: Table, engine: Engine) -> list[ItemField]:
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
