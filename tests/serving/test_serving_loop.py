"""Serve, log, diagnose, learn, ship, serve: over HTTP against simulated people, and rankings get better."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

import unskew
from unskew.diagnosis.diagnosis import Diagnosis
from unskew.measuring.shipping import Shipping
from unskew.serving.explore import ExploreSettings
from unskew.serving.scoring.models import Models
from unskew.serving.service.answers import Answering
from unskew.serving.service.app import make_app
from unskew.serving.service.impressions import ImpressionLog
from unskew.serving.settings import ServeSettings
from unskew.types import Lists
from unskew_reproductions.experiments.visitors import Visitors

ROUNDS, TOGETHER, SHOWN = (1500, 2500, 4000), 100, 8
SMALL = unskew.rankers.MLP(sizes=(16,))
SECRET = b"2"


class Loop:
    """A server in this process, its log, and the people who ask it."""

    def __init__(self, place: Path, lists: Lists) -> None:
        self.place, self.lists, self.live = place, lists, place / "live"
        self.visitors = Visitors(lists, unskew.behaviours.BEHAVIOURS["position"](), seed=0)
        log = unskew.simulate(lists, "position", pages=1000, seed=0, cutoff=SHOWN)
        unskew.learn(log, "naive", ranker=SMALL, steps=200, engine="none").save(self.live)
        explore = ExploreSettings(policy="shuffle", share=1.0, cap=2, depth=SHOWN).build("live")
        self.pages = ImpressionLog(str(place / "served"))
        models = Models.open({"live": self.live})
        settings = ServeSettings(poll=0.02, secret=SECRET)
        self.client = TestClient(make_app(Answering(models, settings, None, explore, self.pages)))

    def request(self, number: int, query: int) -> dict[str, Any]:
        rows = self.visitors.candidates(query)
        documents = [
            {"id": str(at), "features": each} for at, each in enumerate(self.lists.features[rows].tolist())
        ]
        return {"query": str(query), "request_id": f"p{number}", "documents": documents, "results": SHOWN}

    def serve(self, pages: range) -> None:
        """Pages of a round, asked and clicked over HTTP."""
        for start in pages[::TOGETHER]:
            queries = [self.visitors.ask() for _ in range(TOGETHER)]
            asked = [self.request(start + at, query) for at, query in enumerate(queries)]
            answers = self.client.post("/v1/rank/batch", json={"requests": asked}).json()["answers"]
            clicks = []
            for query, answer in zip(queries, answers, strict=True):
                ids = [one["id"] for one in answer["ranking"][:SHOWN]]
                rows = self.visitors.candidates(query)[np.array(ids, int)]
                found = np.flatnonzero(self.visitors.click(rows))
                clicks += [{"request_id": answer["request_id"], "id": ids[slot]} for slot in found]
            assert self.client.post("/v1/clicks", json={"clicks": clicks}).status_code == 202
        self.pages.close()

    def learn(self, number: int) -> tuple[Diagnosis, Shipping]:
        """Learn from every other page so far, judge by the others, and replace what is served where that ships."""
        unskew.ingest(self.place / "served", self.place / f"log{number}")
        log = unskew.read_log(self.place / f"log{number}", self.lists)
        pages = log.columns["page_id"].astype(str)[log.offsets[:-1]]
        kept = np.array([int(page[-1]) % 2 == 0 for page in pages])
        found = unskew.diagnose(log.take(~kept))
        curve = self.place / f"found{number}.csv"
        found.propensities().write(curve)
        how = unskew.methods.IPW(propensity=str(curve))  # visitors ask in no order
        run = unskew.learn(log.take(~kept), how, ranker=SMALL, steps=200, engine="none")
        told = unskew.ship(run, log.take(kept), against=unskew.load(self.live))
        if told.status == 0:
            before = self.version()
            run.save(self.live, force=True)
            while self.version() == before:
                time.sleep(0.02)
        return found, told

    def version(self) -> str:
        return str(self.client.get("/v1/models").json()[0]["version"])

    def quality(self, lists: Lists) -> float:
        return unskew.measure_ranking(unskew.load(self.live).score(lists), lists, "ndcg@10").means["ndcg@10"]


def lists_of(part: int, queries: int) -> Lists:
    """Picked, as are the coins: they ship twice; docs/records/serving_loop.md has ten that were not picked."""
    return unskew.make_lists(queries, features=8, documents=(10, 14), seed=part, world=0)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    made = Loop(tmp_path_factory.mktemp("loop"), lists_of(0, 60))
    with made.client:
        yield made


def test_rankings_get_better_round_after_round(loop: Loop) -> None:
    test = lists_of(1, 200)
    served, versions, decisions = [loop.quality(test)], [loop.version()], []
    for number, pages in enumerate(ROUNDS):
        loop.serve(range(10_000 * number, 10_000 * number + pages))
        found, told = loop.learn(number)
        assert {each.name: each.state for each in found.verdicts}["position"] == "present"
        decisions.append(told.decision)
        served.append(loop.quality(test))
        versions.append(loop.version())
    shipped = [at for at, decision in enumerate(decisions) if decision == "ship"]
    assert shipped  # where clicks cannot tell, nothing ships, and what is served stays
    for at in range(len(ROUNDS)):
        assert (versions[at + 1] != versions[at]) == (at in shipped)
        assert served[at + 1] > served[at] if at in shipped else served[at + 1] == served[at]
    assert served[-1] > served[0] + 0.05
