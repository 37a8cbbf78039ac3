"""User Behavior Insights (UBI), spec 1.3 and what the OpenSearch plugin makes of it.

A query becomes a page: its hit ids in order, whether anything was clicked or not. Events whose action is a click
become clicks of that page. Both kinds may stand in one file or in several, as JSON lines, JSON arrays, search
answers, dumps with `_source` or bulk requests; docs/reference/formats.md says how each field is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unskew.errors import DataError, Option
from unskew.logs.ingest.formats.records import JsonReader
from unskew.logs.ingest.formats.values import (
    Broken,
    find,
    identifier,
    number,
    optional_identifier,
    scalar,
    text,
    time,
    whole,
)
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis

HITS = ("query_response_hit_ids", "query_response_object_ids", "query_response_objects_ids")
"""Names of the list of results: of the spec, of older plugins, of older specs."""
BULK = {"index", "create", "update", "delete"}
NO_QUERY = "all"
"""The query id of pages that no query led to, as in recommendation."""
FURTHEST = 32_767


class Ubi(JsonReader):
    """Turns queries into pages and events into clicks, in the order in which they come."""

    pages = 0

    def read(self, paths: Sequence[Path]) -> None:
        """Take every object; a note where none makes a page."""
        super().read(paths)
        if not self.pages and self.stage.ignored["impression_event"]:
            self.stage.notes.append("no query has hit ids; impression events alone do not make pages")

    def take(self, record: Mapping[str, Any]) -> None:
        """A query, an event, or the action line of a bulk request."""
        if len(record) == 1 and BULK & record.keys() and isinstance(next(iter(record.values())), dict):
            self.stage.ignored["bulk_action"] += 1
        elif _get(record, "action_name") is not None:
            self._event(record)
        elif _get(record, "query_id") is not None and (
            _hits(record) is not None or _get(record, "user_query") is not None or "query_response_id" in record
        ):
            self._query(record)
        else:
            raise Broken("neither_query_nor_event")

    def _query(self, record: Mapping[str, Any]) -> None:
        hits = _hits(record)
        if hits is not None and not isinstance(hits, list):
            hits = [hits]  # exports write a list of one as its element
        if not hits:
            self.stage.ignored["query_without_hits"] += 1
            return
        if len(hits) > self.options.reader.most_results:
            raise Broken("too_many_results")
        page_id = identifier(_get(record, "query_id"), "query_id")
        docs = [identifier(hit, "hit_id") for hit in hits]
        words = text(_get(record, "user_query"), "user_query")
        given = optional_identifier(_attribute(record, "query_id"), "query_id")
        page = {
            "page_id": page_id,
            "query_id": given or (words and identifier(words, "user_query")) or NO_QUERY,
            "query_text": words,
            "user_id": optional_identifier(_get(record, "client_id"), "client_id"),
            "visit_id": optional_identifier(
                _get(record, "session_id") or _attribute(record, "visit_id"), "visit_id"
            ),
            "timestamp": time(_get(record, "timestamp"), self.zone),
            "policy_id": optional_identifier(_attribute(record, "policy_id"), "policy_id"),
        }
        slots = _slots(record, len(docs))
        self.pages += 1
        for doc, slot in zip(docs, slots, strict=True):
            self.stage.add("impressions", **page, doc_id=doc, **slot)

    def _event(self, record: Mapping[str, Any]) -> None:
        action = identifier(_get(record, "action_name"), "action_name")
        if action not in self.options.events.click:
            self.stage.ignored["impression_event" if action == "impression" else "other_event"] += 1
            return
        page_id = optional_identifier(_get(record, "query_id"), "query_id")
        if page_id is None:
            self.stage.ignored["click_without_query"] += 1
            return
        doc = optional_identifier(find(record, "event_attributes", "object", "object_id"), "object_id")
        ordinal = _ordinal(record)
        if doc is None and ordinal is None:
            raise Broken("missing_object_id")
        row = {
            "page_id": page_id,
            "doc_id": doc,
            "ordinal": ordinal,
            "timestamp": time(_get(record, "timestamp"), self.zone),
            "visit_id": optional_identifier(_get(record, "session_id"), "session_id"),
            "user_id": optional_identifier(_get(record, "client_id"), "client_id"),
            "dwell_time": number(find(record, "event_attributes", "dwell_time"), "dwell_time", 0),
            "serp_x": _coordinate(record, "x"),
            "serp_y": _coordinate(record, "y"),
        }
        self.stage.add("clicks", **row)


CAMEL = {
    name: re.sub("_([a-z])", lambda match: match[1].upper(), name)
    for name in (*HITS, "query_id", "user_query", "client_id", "query_attributes")
}
"""Names as the plugin sends them to Data Prepper: query_id -> queryId."""


def _get(record: Mapping[str, Any], name: str) -> Any:
    value = record.get(name)
    return record.get(CAMEL[name]) if value is None and name in CAMEL else value


def _hits(record: Mapping[str, Any]) -> Any:
    for name in HITS:
        for place in ((name,), ("query_response", name), ("queryResponse", CAMEL[name]), (CAMEL[name],)):
            hits = find(record, *place)
            if hits is not None:
                return hits
    return None


def _attribute(record: Mapping[str, Any], name: str) -> Any:
    value = find(record, "query_attributes", name)
    return find(record, "queryAttributes", name) if value is None else value


def _slots(record: Mapping[str, Any], size: int) -> list[dict[str, Any]]:
    """What the query's attributes say of each result: position, propensity, logging_score, randomized."""
    slots: list[dict[str, Any]] = [{"position": at} for at in range(1, size + 1)]
    for name, check in SLOTS.items():
        value = _attribute(record, name)
        if value is not None:
            for slot, one in zip(slots, _spread(value, name, size), strict=True):
                slot["position" if name == "positions" else name] = check(one)
    return slots


def _truth(value: Any) -> bool | None:
    if value not in (None, True, False, "true", "false"):
        raise Broken("bad_randomized")
    return None if value is None else value in (True, "true")


SLOTS: Mapping[str, Callable[[Any], Any]] = {
    "positions": lambda value: whole(value, "positions", 1, FURTHEST),
    "propensity": lambda value: number(value, "propensity", 0, 1),
    "logging_score": lambda value: number(value, "logging_score"),
    "randomized": _truth,
}
"""Attributes with a value for each result."""


def _spread(value: Any, name: str, size: int) -> list[Any]:
    """An attribute for each result: one value for all, or a list; the plugin keeps lists as text, with commas."""
    if isinstance(value, str) and "," in value:
        value = value.strip("[]").split(",")
        value = [part.strip() for part in value]
    if not isinstance(value, list):
        return [value] * size
    if len(value) != size:
        raise Broken(f"bad_{name}")
    return value


def _ordinal(record: Mapping[str, Any]) -> int | None:
    """The place of the event, as the spec, its first versions or the plugin's data generator write it."""
    ordinal = scalar(find(record, "event_attributes", "position", "ordinal"))
    if isinstance(ordinal, dict):
        ordinal = ordinal.get("index")
    if ordinal is None:
        ordinal = find(record, "event_attributes", "rank")
    return whole(ordinal, "ordinal", 0, FURTHEST, needed=False)


def _coordinate(record: Mapping[str, Any], axis: str) -> float | None:
    """A coordinate: under position.xy in the spec, straight under position in the plugin."""
    value = find(record, "event_attributes", "position", "xy", axis)
    value = find(record, "event_attributes", "position", axis) if value is None else value
    return number(value, axis)


# ---- what ordinals count from ----


ENOUGH = 100
"""Ordinals without a 0 that let a log count as counting from 1."""


def ranked_clicks(shown: Table, clicked: Table, base: int | None, engine: Engine) -> tuple[Table, str]:
    """Clicks with a position in the place of their ordinal, and a note on what ordinals count from.

    Whether that is 0 or 1 is found out from the log unless `base` is given, never assumed. Where nothing tells,
    and nothing depends on it, ordinals are left out.
    """
    why = f"ordinals count from {base} as told"
    if base is None:
        base, why = _ordinal_base(shown, clicked, engine)
    ranks = {} if base is None else {"position": (clicked.ordinal + (1 - base)).cast("int32")}
    return clicked.mutate(**ranks).drop("ordinal"), why


def _ordinal_base(shown: Table, clicked: Table, engine: Engine) -> tuple[int | None, str]:
    """What ordinals count from, 0 or 1, and why; None where nothing tells and no click has an ordinal alone."""
    document = clicked.doc_id if "doc_id" in clicked.columns else ibis.null("string")
    asked = clicked.select("page_id", "ordinal", doc_id=document).filter(clicked.ordinal.notnull())
    counts = {"clicks": asked.count(), "lowest": asked.ordinal.min(), "nameless": asked.doc_id.isnull().sum()}
    found = engine.rows(asked.agg(**counts))[0]
    zero, one = _votes(shown, asked, engine)
    if zero != one:
        base = int(one > zero)
        return base, f"ordinals count from {base}: so say {max(zero, one)} of {zero + one} clicks checked"
    if found["lowest"] == 0:
        return 0, "ordinals count from 0: there is an ordinal 0"
    if found["lowest"] == 1 and found["clicks"] >= ENOUGH:
        return 1, f"ordinals count from 1: {found['clicks']} clicks, and none on ordinal 0"
    if found["nameless"]:
        raise DataError(
            f"{found['nameless']} clicks have an ordinal and no object_id, and nothing in the log says whether "
            "ordinals count from 0 or from 1",
            hint=("say which, ", Option("positions_from")),
        )
    return None, "ordinals are not used: nothing says whether they count from 0 or from 1"


def _votes(shown: Table, asked: Table, engine: Engine) -> tuple[int, int]:
    """Clicks that fit counting from 0, and from 1, but not the other.

    A click that names its document says where that document stood, where the page shows it once; its ordinal
    should say the same. Of the others, those on the first or the last place of a page fit one way only.
    """
    asked = asked.distinct()
    places = shown.group_by("page_id", "doc_id").agg(place=shown.position.min(), times=shown.count())
    named = asked.inner_join(places.filter(places.times == 1), ["page_id", "doc_id"])
    ends = shown.group_by("page_id").agg(last=shown.position.max())
    nameless = asked.filter(asked.doc_id.isnull()).inner_join(ends, "page_id")
    votes = named.select(zero=named.ordinal == named.place - 1, one=named.ordinal == named.place).union(
        nameless.select(zero=nameless.ordinal == 0, one=nameless.ordinal == nameless["last"])
    )
    told = engine.rows(votes.agg(zero=votes.zero.sum(), one=votes.one.sum()))[0]
    return int(told["zero"] or 0), int(told["one"] or 0)
