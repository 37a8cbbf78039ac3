"""What a server answered under chaos, held against all that was true meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from serving_clients import Asked, Record
from serving_world import World

import unskew

SOON = 1.0
"""Seconds after which an update is seen."""
BACK = 3.0
"""Seconds after which what was away is used again."""
PAST = 0.5
"""Seconds for which a request may still meet what happened to a worker or the log."""
HUNG = 20.0
"""Seconds after which a worker that stands still is replaced."""


@dataclass(frozen=True)
class Update:
    """Something known was put in its place."""

    began: float
    ended: float
    value: str
    """A version of a model, or a generation of a part."""


@dataclass(frozen=True)
class Trouble:
    """Something was away, full, killed or stopped."""

    kind: str
    began: float
    ended: float

    def met(self, record: Record, after: float) -> bool:
        """Whether a request was under way then, or a while after."""
        return record.began <= self.ended + after and record.ended >= self.began


@dataclass
class History:
    """What was done."""

    updates: dict[str, list[Update]] = field(
        default_factory=lambda: {"main": [], "plain": [], "items": [], "clicks": []}
    )
    generations: dict[str, int] = field(default_factory=dict)
    """Which table or window a generation has."""
    troubles: list[Trouble] = field(default_factory=list)
    events: Counter = field(default_factory=Counter)

    def in_trouble(self, record: Record, kind: str, after: float) -> bool:
        """Whether a request met a trouble of a kind."""
        return any(each.kind == kind and each.met(record, after) for each in self.troubles)


@dataclass
class Findings:
    """What was found; all but the counts should be empty or small."""

    wrong: list[str] = field(default_factory=list)
    late: Counter = field(default_factory=Counter)
    """Answers of what was replaced more than a second before, by what."""
    latest: dict[str, float] = field(default_factory=dict)
    """The longest time for which something replaced was still answered with, in seconds."""
    counts: Counter = field(default_factory=Counter)
    back: float = 0.0
    """The longest time for which 503 was answered after the store was back."""

    def tell(self, record: Record, what: str) -> None:
        """Something is wrong."""
        self.wrong.append(f"{record.kind} at {record.began:.2f}: {what}")


def check(world: World, history: History, records: list[Record]) -> Findings:
    """Hold every answer against the world."""
    found = Findings()
    for record in records:
        kind = record.kind.partition(":")[0]
        found.counts[kind, record.status] += 1
        if record.status == 200 == record.wanted:
            check_answers(world, history, record, found)
        elif record.status != record.wanted:
            check_error(history, record, found)
    return found


def check_error(history: History, record: Record, found: Findings) -> None:
    """An error is a documented one, while something is away."""
    if record.status == 503:
        kind = "log" if record.clicks else "store"
        if not (record.clicks or record.stored) or not history.in_trouble(record, kind, BACK):
            found.tell(record, f"503 without cause: {record.said}")
        past = [
            record.ended - each.ended for each in history.troubles if each.kind == kind and each.met(record, BACK)
        ]
        found.back = max([found.back, min(past, default=0.0)])
    elif record.status == 0:
        killed = any(history.in_trouble(record, kind, PAST) for kind in ("kill", "hang"))
        if not killed:
            found.tell(record, f"a connection broke: {record.said}")
    else:
        found.tell(record, f"{record.status} in the place of {record.wanted}: {record.said}")


def check_answers(world: World, history: History, record: Record, found: Findings) -> None:
    """Each answer of a body is right, and all are of one moment."""
    if len(record.answers) != len(record.asked):
        found.tell(record, f"{len(record.answers)} answers to {len(record.asked)} requests")
    for asked, answer in zip(record.asked, record.answers, strict=False):
        check_answer(world, history, record, asked, answer, found)
    moments = {(one["model"], one["version"], str(one.get("store"))) for one in record.answers}
    if len({str(one.get("store")) for one in record.answers}) > 1 or len(moments) > len(
        {each[0] for each in moments}
    ):
        found.tell(record, f"answers of several moments: {moments}")


def check_answer(
    world: World, history: History, record: Record, asked: Asked, answer: dict, found: Findings
) -> None:
    """The scores are those of one model and one generation, which held."""
    items, clicks, name, version = world.kinds, 0, answer["model"], answer["version"]
    if (name, answer["request_id"]) != (asked.model, asked.page) or version not in world.versions[name]:
        found.tell(record, f"an answer of {name} {version} to {asked.model}")
        return
    seen = {name: version}
    if name == "main" or not asked.own:
        store = answer.get("store") or {}
        if not {*store} == {"items", "clicks"} <= {*store} or not {*store.values()} <= {*history.generations}:
            found.tell(record, f"a store of unknown generations {store}")
            return
        clicks = history.generations[store["clicks"]]
        items = items if asked.own else history.generations[store["items"]]
        seen |= {"clicks": store["clicks"]} | ({} if asked.own else {"items": store["items"]})
    for one in answer["ranking"]:
        right = world.right(name, version, items, clicks, asked.query, one["id"])
        if abs(one["score"] - right) > 1e-4 * max(1.0, abs(right)):
            found.tell(record, f"{one['id']} has {one['score']}, not {right}")
            return
    scores = [one["score"] for one in answer["ranking"]]
    if sorted(one["id"] for one in answer["ranking"]) != sorted(asked.docs) or scores != sorted(scores)[::-1]:
        found.tell(record, "not a ranking of what was asked for")
    for what, value in seen.items():
        check_time(history, record, what, value, found)
    if answer["logged"] is not True and not history.in_trouble(record, "log", PAST):
        found.tell(record, "was not logged, and the log had room")


def check_time(history: History, record: Record, what: str, value: str, found: Findings) -> None:
    """What answered held during the request, or until a moment before."""
    updates = history.updates[what]
    held = [at for at, each in enumerate(updates) if each.value == value and each.began <= record.ended]
    if not held:
        found.tell(record, f"{what} {value} did not hold yet")
        return
    after = updates[held[-1] + 1 :]
    late = record.began - after[0].ended if after else 0.0
    stopped = history.in_trouble(record, "stop", SOON)  # who stood still could not look
    if not stopped:
        found.latest[what] = max(found.latest.get(what, 0.0), late)
        found.late[what] += late > SOON


def told_in(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Event, page and document of every line."""
    for path in folder.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield row["event"], row["page_id"], row["doc_id"]


def check_log(folder: Path, records: list[Record], found: Findings) -> dict[str, int]:
    """Every page and click that was acknowledged is in the log, once, and no page that was refused."""
    lines = Counter(told_in(folder))
    unskew.ingest(folder, folder.with_name("ingested"))
    rows = pq.read_table(folder.with_name("ingested") / "impressions").to_pylist()
    pages: dict[str, list[tuple[int, str, int]]] = {}
    for row in rows:
        pages.setdefault(str(row["page_id"]), []).append((row["position"], str(row["doc_id"]), row["click"]))
    acknowledged = clicked = 0
    for record in records:
        for answer in record.answers:
            acknowledged += answer["logged"] is True
            shown = [(one["rank"], one["id"]) for one in answer["ranking"]] if answer["logged"] else []
            if sorted(each[:2] for each in pages.get(answer["request_id"], [])) != shown:
                found.tell(record, f"the page {answer['request_id']} is not in the log as it was shown")
            if any(lines["impression", answer["request_id"], doc] != 1 for _, doc in shown):
                found.tell(record, f"the page {answer['request_id']} is not in the files once")
        if record.status in (400, 404, 422) and any(one.page in pages for one in record.asked):
            found.tell(record, "was refused, and is in the log")
        for page, doc in record.clicks if record.status == 202 else ():
            clicked += 1
            if (doc, 1) not in {each[1:] for each in pages.get(page, [])}:
                found.tell(record, f"the click on {doc} of {page} was lost")
            if lines["click", page, doc] != 1:
                found.tell(record, f"the click on {doc} of {page} is not in the files once")
    return {"pages acknowledged": acknowledged, "pages in the log": len(pages), "clicks acknowledged": clicked}
