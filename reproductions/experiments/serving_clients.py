"""Clients of a server under chaos: requests of all kinds, and a record of each with its times and its answer."""

from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import dataclass, field

import httpx
from serving_world import World

HOSTILE = {
    "not json": (b"{", 400),
    "nan": (b'{"query": "0", "documents": [{"id": "0", "features": {"price": NaN, "brand": "acme"}}]}', 400),
    "deep": (b"[" * 50_000, 400),
    "no documents": (b'{"query": "0", "documents": []}', 422),
    "no model": (b'{"query": "0", "model": "none", "documents": [{"id": "0"}]}', 404),
    "too large": (
        b'{"query": "0", "model": "plain", "documents": [{"id": "0", "features": {"price": 1e99, "brand":"x"}}]}',
        422,
    ),
    "twice": (b'{"query": "0", "documents": [{"id": "0"}, {"id": "0"}]}', 422),
}
"""Bodies that are refused, whatever else happens."""


@dataclass
class Asked:
    """One request of a body."""

    model: str
    query: str
    docs: list[str]
    own: bool
    """Whether it brings the features of items."""
    page: str = field(default_factory=lambda: uuid.uuid4().hex)

    def body(self, world: World, why: bool) -> dict:
        """As JSON."""
        table = world.items[world.kinds]
        place = {doc: at for at, doc in enumerate(table["doc_id"])}
        documents = [
            {"id": doc}
            | ({"features": {name: table[name][place[doc]] for name in ("price", "brand")}} if self.own else {})
            for doc in self.docs
        ]
        return {
            "query": self.query,
            "documents": documents,
            "model": self.model,
            "request_id": self.page,
            "why": why,
        }


@dataclass
class Record:
    """What was asked, when, and what came back."""

    kind: str
    asked: list[Asked]
    clicks: list[tuple[str, str]] = field(default_factory=list)
    wanted: int = 200
    began: float = 0.0
    ended: float = 0.0
    status: int = 0
    """0 where the connection broke."""
    said: str = ""
    answers: list[dict] = field(default_factory=list)

    @property
    def stored(self) -> bool:
        """Whether the store is needed."""
        return any(one.model == "main" or not one.own for one in self.asked)


class Client(threading.Thread):
    """One that asks, again and again."""

    def __init__(self, world: World, address: str, seed: int, pause: float) -> None:
        super().__init__(daemon=True)
        self.world, self.address, self.pause = world, address, pause
        self.rng, self.records, self.done = random.Random(seed), [], threading.Event()
        self.clicked: set[str] = set()
        self.http = httpx.Client(base_url=address, timeout=25)

    def run(self) -> None:
        """Until told to end."""
        kinds = ["ids", "named", "plain", "why", "batch", "clicks", "hostile"]
        while not self.done.is_set():
            self.ask(self.rng.choices(kinds, (4, 3, 4, 2, 3, 4, 2))[0])
            time.sleep(self.pause * self.rng.uniform(0.5, 1.5))

    def ask(self, kind: str) -> None:
        """One request of a kind."""
        if kind == "hostile":
            name = self.rng.choice(sorted(HOSTILE))
            body, wanted = HOSTILE[name]
            self.send("/v1/rank", Record(f"hostile: {name}", [], wanted=wanted), content=body)
        elif kind == "clicks":
            recent = [answer for record in self.records[-20:] for answer in record.answers if answer["logged"]]
            if pages := [page for page in recent if page["request_id"] not in self.clicked][:2]:
                told = [(page["request_id"], self.rng.choice(page["ranking"])["id"]) for page in pages]
                self.clicked |= {page for page, _ in told}
                body = {"clicks": [{"request_id": one, "id": doc} for one, doc in told]}
                self.send("/v1/clicks", Record(kind, [], told, wanted=202), json=body)
        elif kind == "batch":
            asked = [self.page(self.rng.choice(["ids", "named", "plain"])) for _ in range(4)]
            bodies = [each.body(self.world, False) for each in asked]
            self.send("/v1/rank/batch", Record(kind, asked), json={"requests": bodies})
        else:
            asked = self.page(self.rng.choice(["ids", "plain"]) if kind == "why" else kind)
            self.send("/v1/rank", Record(kind, [asked]), json=asked.body(self.world, kind == "why"))

    def page(self, kind: str) -> Asked:
        """Some documents of a query."""
        query = self.rng.choice(sorted(self.world.queries))
        docs = self.rng.sample(self.world.queries[query], self.rng.randint(2, 8))
        return Asked("plain" if kind == "plain" else "main", query, docs, own=kind != "ids")

    def send(self, path: str, record: Record, **body) -> None:
        """Ask, and keep what is said."""
        record.began = time.monotonic()
        try:
            head = {"content-type": "application/json"}
            if self.rng.random() < 0.2:
                head["connection"] = "close"
            answer = self.http.post(path, headers=head, **body)
            record.status = answer.status_code
            found = answer.json()
            if record.status == 200:
                record.answers = found["answers"] if path.endswith("batch") else [found]
            elif record.status != 202:
                record.said = found["error"]
        except (httpx.HTTPError, ValueError) as error:
            record.said, record.status = repr(error), record.status if isinstance(error, ValueError) else 0
        record.ended = time.monotonic()
        self.records.append(record)
