"""User Behavior Insights (UBI), spec 1.3 and what the OpenSearch plugin makes of it.

A query becomes a page: its hit ids in order, whether anything was clicked or not. Events whose action is a click
become clicks of that page. Both kinds may stand in one file or in several, as JSON lines, JSON arrays, search
answers, dumps with `_source` or bulk requests; docs/reference/formats.md says how each field is used.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from unskew.errors import DataError, Option
from unskew.logs.ingest.formats.records import each_json
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.values import (
    Broken,
    find,
    identifier,
    number,
    optional_identifier,
    required,
    scalar,
    text,
    time,
    whole,
)
from unskew.tables.reading.options import IngestOptions

HITS = ("query_response_hit_ids", "query_response_object_ids", "query_response_objects_ids")
"""Names of the list of results: of the spec, of older plugins, of older specs."""
BULK = {"index", "create", "update", "delete"}
NO_QUERY = "all"
"""The query id of pages that no query led to, as in recommendation."""
FURTHEST = 32_767


def read_ubi(paths: Sequence[Path], stage: Stage, options: IngestOptions) -> None:
    """Stage the pages and clicks of UBI files."""
    reader = _Ubi(stage, options)
    each_json(paths, stage, options, reader.take)
    reader.finish()


class _Ubi:
    """Takes queries and events as they come."""

    def __init__(self, stage: Stage, options: IngestOptions) -> None:
        self.stage, self.options, self.zone = stage, options, ZoneInfo(options.time.zone)
        self.base = OrdinalBase()
        self.pages = 0

    def take(self, record: Mapping[str, Any]) -> None:
        """A query, an event, or the action line of a bulk request."""
        if len(record) == 1 and BULK & record.keys() and isinstance(next(iter(record.values())), dict):
            self.stage.ignore("bulk_action")
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
            self.stage.ignore("query_without_hits")
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
        self.base.page(page_id, docs)
        self.pages += 1
        for doc, slot in zip(docs, slots, strict=True):
            self.stage.impression(**page, doc_id=doc, **slot)

    def _event(self, record: Mapping[str, Any]) -> None:
        action = identifier(_get(record, "action_name"), "action_name")
        if action not in self.options.events.click:
            self.stage.ignore("impression_event" if action == "impression" else "other_event")
            return
        page_id = optional_identifier(_get(record, "query_id"), "query_id")
        if page_id is None:
            self.stage.ignore("click_without_query")
            return
        doc = optional_identifier(find(record, "event_attributes", "object", "object_id"), "object_id")
        ordinal = _ordinal(record)
        if doc is None and ordinal is None:
            raise Broken("missing_object_id")
        row = {
            "page_id": page_id,
            "doc_id": doc,
            "position": ordinal,
            "timestamp": time(_get(record, "timestamp"), self.zone),
            "visit_id": optional_identifier(_get(record, "session_id"), "session_id"),
            "user_id": optional_identifier(_get(record, "client_id"), "client_id"),
            "dwell_time": number(find(record, "event_attributes", "dwell_time"), "dwell_time", 0),
            "serp_x": _coordinate(record, "x"),
            "serp_y": _coordinate(record, "y"),
        }
        self.base.click(page_id, doc, ordinal)
        self.stage.click(**row)

    def finish(self) -> None:
        """Turn ordinals into ranks from 1, now that the log tells what they count from."""
        base: int | None = self.options.positions.base
        why = "ordinals count from {} as told"
        if base is None:
            base, why = self.base.decide()
        self.stage.notes.append(why.format(base))
        self.stage.shift_clicks(None if base is None else 1 - base)
        if not self.pages and self.stage.ignored["impression_event"]:
            self.stage.notes.append("no query has hit ids; impression events alone do not make pages")


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
    "positions": lambda value: required(whole(value, "positions", 1, FURTHEST), "positions"),
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
    return whole(ordinal, "ordinal", 0, FURTHEST)


def _coordinate(record: Mapping[str, Any], axis: str) -> float | None:
    """A coordinate: under position.xy in the spec, straight under position in the plugin."""
    value = find(record, "event_attributes", "position", "xy", axis)
    value = find(record, "event_attributes", "position", axis) if value is None else value
    return number(value, axis)


# ---- what ordinals count from ----


SAMPLE = 20_000
"""Pages, and clicks, that are kept at most."""
WIDEST = 200
"""Results of a page that are kept."""
ENOUGH = 100
"""Ordinals without a 0 that let a log count as counting from 1."""


class OrdinalBase:
    """Whether the ordinals of a log count from 0 or from 1: found out from the log, never assumed.

    A click that names its document says where that document stood; its ordinal should say the same. Queries and
    events come in any order and in different files, so pages and clicks are kept for a sample of query ids, chosen
    by a hash: the same ids are kept on both sides, and the sample is thinned when it has grown too large.
    """

    def __init__(self) -> None:
        self._mask = 0
        self._pages: dict[str, Sequence[str]] = {}
        self._clicks: dict[str, set[tuple[str | None, int]]] = {}
        self._kept = 0
        self._lowest = 1 << 30
        self._ordinals = self._nameless = 0

    def page(self, page: str, hits: Sequence[str]) -> None:
        """The results of a query, in order."""
        if self._sampled(page) and len(hits) <= WIDEST:
            self._pages[page] = hits
            self._thin()

    def click(self, page: str, doc: str | None, ordinal: int | None) -> None:
        """A click, with what it says about its place."""
        if ordinal is None:
            return
        self._ordinals += 1
        self._nameless += doc is None
        self._lowest = min(self._lowest, ordinal)
        if self._sampled(page):
            clicks = self._clicks.setdefault(page, set())
            self._kept += (doc, ordinal) not in clicks
            clicks.add((doc, ordinal))
            self._thin()

    def decide(self) -> tuple[int | None, str]:
        """0 or 1 and why; None where nothing tells and nothing depends on it."""
        if not self._ordinals:
            return None, "clicks have no ordinals"
        zero, one = self._votes()
        if zero != one:
            base = int(one > zero)
            return base, f"ordinals count from {base}: so say {max(zero, one)} of {zero + one} clicks checked"
        if self._lowest == 0:
            return 0, "ordinals count from 0: there is an ordinal 0"
        if self._lowest == 1 and self._ordinals >= ENOUGH:
            return 1, f"ordinals count from 1: {self._ordinals} clicks, and none on ordinal 0"
        if self._nameless:
            raise DataError(
                f"{self._nameless} clicks have an ordinal and no object_id, and nothing in the log says whether "
                "ordinals count from 0 or from 1",
                hint=("say which, ", Option("positions_from")),
            )
        return None, "ordinals are not used: nothing says whether they count from 0 or from 1"

    def _votes(self) -> tuple[int, int]:
        """Clicks that fit counting from 0, and from 1, but not the other."""
        zero = one = 0
        for page, clicks in self._clicks.items():
            hits = self._pages.get(page)
            for doc, ordinal in clicks if hits is not None else ():
                if hits is None or (doc is not None and doc not in hits):
                    continue
                if doc is None:  # the first or the last place of a page exists in one way of counting only
                    zero += ordinal == 0
                    one += ordinal == len(hits)
                elif hits.count(doc) == 1:
                    zero += hits.index(doc) == ordinal
                    one += hits.index(doc) + 1 == ordinal
        return zero, one

    def _sampled(self, page: str) -> bool:
        return not zlib.crc32(page.encode()) & self._mask

    def _thin(self) -> None:
        while len(self._pages) > SAMPLE or self._kept > SAMPLE:
            self._mask = self._mask * 2 + 1
            self._pages = {key: hits for key, hits in self._pages.items() if self._sampled(key)}
            self._clicks = {key: clicks for key, clicks in self._clicks.items() if self._sampled(key)}
            self._kept = sum(len(clicks) for clicks in self._clicks.values())
            if self._mask > 1 << 30:  # one query id with endless clicks
                self._clicks, self._kept = {}, 0
