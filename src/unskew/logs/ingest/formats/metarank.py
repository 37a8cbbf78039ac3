"""Metarank's JSON events, in which the RankLens data come too: `ranking`, `interaction`, `item` and `user`.

A ranking is a page and its id the page_id. Interactions of a click type that name their ranking are its clicks.
A ranking has a query where a field `query` says so; without one all pages share the query `all`, so that a
document is one and the same wherever it is shown. Items (`metadata` in old files) go to the side table
`item_fields`, a row for each value, of which `write_items` makes a table of features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from unskew.logs.ingest.formats.records import JsonReader
from unskew.logs.ingest.formats.values import Broken, identifier, number, optional_identifier, text, time
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import to_micros

NO_QUERY = "all"
MOST_FIELDS = 10_000


class Metarank(JsonReader):
    """Turns events into rows of impressions, clicks and items."""

    def take(self, record: Mapping[str, Any]) -> None:
        """Read one event, whatever its kind."""
        kind = record.get("event")
        if kind == "ranking":
            self._ranking(record)
        elif kind == "interaction":
            self._interaction(record)
        elif kind in ("item", "metadata"):
            self._item(record)
        elif kind == "user":
            self.stage.ignored["user_event"] += 1
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
            self.stage.ignored["other_interaction"] += 1
            return
        page_id = optional_identifier(record.get("ranking"), "ranking")
        if page_id is None:
            self.stage.ignored["click_without_ranking"] += 1
            return
        self.stage.add(
            "clicks",
            page_id=page_id,
            visit_id=optional_identifier(record.get("session"), "session"),
            user_id=optional_identifier(record.get("user"), "user"),
            doc_id=identifier(record.get("item"), "item"),
            timestamp=time(record.get("timestamp"), self.zone),
        )

    def _item(self, record: Mapping[str, Any]) -> None:
        doc, when = identifier(record.get("item"), "item"), time(record.get("timestamp"), self.zone)
        rows = [row for name, value in _fields(record) for row in _cells(name, value)]
        if len(rows) > MOST_FIELDS:
            raise Broken("too_many_fields")
        for row in rows or [{}]:
            self.stage.add("item_fields", doc_id=doc, timestamp=when, **row)


def _shown(item: Any) -> tuple[str, float | None]:
    if not isinstance(item, dict):
        raise Broken("bad_items")
    score = item.get("relevancy")
    score = dict(_fields(item)).get("relevancy") if score is None else score
    return identifier(item.get("id"), "item"), number(score, "relevancy")


def _fields(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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


def write_items(long: Path, folder: Path, engine: Engine) -> None:
    """A table with a row for each item and a column for each field, from the table of their fields.

    The latest event that names a field says its values. A number or a truth value is a number, a text is a text.
    A field that is a list somewhere becomes, where all its texts together are few, a column `FIELD=TEXT` of 0 and
    1 for each of them; else its first value under its own name. Beside either, `FIELD count` says how many values
    there are.
    """
    rows = engine.read_parquet(long)
    timed = rows.mutate(at=to_micros(rows.timestamp, engine.name).fill_null(0))
    last = timed.mutate(last=timed["at"].max().over(group_by=["doc_id", "name"]))
    rows = engine.keep(last.filter((last["at"] == last["last"]) & last.name.notnull()))
    counts = rows.group_by("name").agg(
        numbers=rows.number.count(), texts=rows.text.count(), last=rows.place.max(), distinct=rows.text.nunique()
    )
    most = counts.order_by(ibis.desc(counts.numbers + counts.texts), "name").limit(MOST_COLUMNS)
    fields = sorted(engine.rows(most), key=lambda field: str(field["name"]))
    columns = dict(_columns(rows, fields, engine))
    plain = {f"c{at}": column for at, column in enumerate(columns.values())}  # names may hold any letter
    scratch = folder.with_name(folder.name + "-plain")
    engine.write_parquet(rows.group_by("doc_id").agg(**plain), scratch)
    folder.mkdir(parents=True)
    for at, path in enumerate(sorted(scratch.rglob("*.parquet"))):
        table = pq.read_table(path).select(["doc_id", *plain]).rename_columns(["doc_id", *columns])
        pq.write_table(table, folder / f"part-{at:05d}.parquet")


def _columns(rows: Table, fields: Sequence[Mapping[str, Any]], engine: Engine) -> Iterator[tuple[str, Any]]:
    """Names and values of the columns; of names that differ in case only, the later ones are numbered.

    A field has its name, how many `numbers` and `texts` it has, the `last` place in a list, None where it is none,
    and how many texts are `distinct`.
    """
    seen: Counter[str] = Counter()
    for field in fields:
        own, listed = field["name"], field["last"] is not None
        seen[own.lower()] += 1
        nth = seen[own.lower()]
        name = f"item_{own}" if own in TAKEN else own
        name = name if nth == 1 else f"{name} {nth}"
        ours: Any = rows.name == own
        first = rows.place.fill_null(0) == 0
        if listed and field["texts"] and field["distinct"] <= MOST_TEXTS:
            told = rows.filter(ours & rows.text.notnull()).select("text").distinct().order_by("text")
            for text in [row["text"] for row in engine.rows(told)]:
                yield f"{name}={text}", (rows.text == text).fill_null(False).cast("float64").max(where=ours)
        elif field["texts"]:
            text = rows.text if not field["numbers"] else rows.text.fill_null(rows.number.cast("string"))
            yield name, text.max(where=ours & first)
        else:
            yield name, rows.number.max(where=ours & first)
        if listed:
            yield f"{name} count", ours.cast("float64").sum()
