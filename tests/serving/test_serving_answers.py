"""Answers without a server: features from a store, tracked clicks, and orders that a policy explored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import unskew
from tests.helpers.servers import make
from unskew.errors import RunError, UnskewError
from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import Linear
from unskew.learning.rankers.networks import DoublyRobustMLP
from unskew.learning.scoring.model import build
from unskew.serving.explore import Decision
from unskew.serving.requests.bodies import BadRequest, RankAnswer, RankedDocument
from unskew.serving.requests.parsing import AskedRanking, read_request
from unskew.serving.scoring.models import Models
from unskew.serving.service import answers
from unskew.serving.service.answers import Answering, Noted
from unskew.serving.service.description import listed
from unskew.serving.settings import ServeSettings
from unskew.tables.lists.scaling import fit_scaler
from unskew.tracking.features import FEATURES
from unskew.types import Array

WIDTH = 3 + len(FEATURES)
CLICKS = np.random.default_rng(3).random((4, len(FEATURES))).astype(np.float32)


@dataclass
class Found:
    """Pairs as a store gives them."""

    names: Sequence[str]
    values: Array
    known: Array


class Items:
    """A store of four documents, the last of which was never shown."""

    down = False
    version: ClassVar = {"clicks": "c1"}

    def view(self) -> Items:
        if self.down:
            raise UnskewError("it is away")
        return self

    def close(self) -> None: ...

    def get_items(self, ids: Sequence[str]) -> Items:
        self.asked = ids
        return self

    def named(self) -> Sequence[Mapping[str, object] | None]:
        return [None for _ in self.asked]

    def get_clicks(self, query: str, ids: Sequence[str]) -> Found:
        known = np.array([one != "d3" for one in ids])
        mixed = list(reversed(range(len(FEATURES))))  # the store's order is its own
        values = np.where(known[:, None], CLICKS[: len(ids)], 0.0)[:, mixed]
        return Found([FEATURES[at] for at in mixed], values, known)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lists = unskew.make_lists(queries=5, features=WIDTH, documents=(3, 9), seed=1)
    ranker = DoublyRobustMLP(imputation=(4,), sizes=(3,))
    model = build(METHODS["approximated_dr"](), ranker, fit_scaler("standard", lists), WIDTH, Context(positions=5))
    drawn = torch.Generator().manual_seed(5)
    for weights in [*model.ranker.parameters(), *model.method.parameters()]:
        weights.data += 0.3 * torch.randn(weights.shape, generator=drawn)
    place = tmp_path_factory.mktemp("answers") / "run"
    model.save(place)
    return place


def asked(**more: Any) -> AskedRanking:
    documents = [{"id": f"d{at}", "features": [0.5 * at, 1.0, -1.0]} for at in range(4)]
    return read_request({"query": "q", "documents": documents, "request_id": "r"} | more)


def answering(folder: Path, settings: ServeSettings | None = None, **parts: Any) -> Answering:
    return Answering(Models.open({"main": folder}), settings or ServeSettings(tell_chances=True), **parts)


def shown(here: Answering, request: AskedRanking, facts: Noted | None = None) -> RankAnswer:
    """The one answer, which is as the schema says and has nothing else."""
    (answer,) = here.answer([request], facts or Noted())
    assert answer.keys() <= RankAnswer.model_fields.keys()
    ranking: Any = answer["ranking"]
    assert all(each.keys() <= RankedDocument.model_fields.keys() for each in ranking)
    return RankAnswer.model_validate(answer, strict=True)


def test_clicks_of_the_store_are_features(folder: Path) -> None:
    answer = shown(answering(folder, store=Items()), asked())
    found = {one.id: one.score for one in answer.ranking}
    served = Models.open({"main": folder})["main"].current
    own = np.array([[0.5 * at, 1.0, -1.0] for at in range(4)])
    whole = np.concatenate([own, np.where(np.arange(4)[:, None] < 3, CLICKS, 0.0)], axis=1)
    expected = served.score(whole)
    for at in range(3):
        assert found[f"d{at}"] == pytest.approx(expected[at], abs=1e-6)
    assert found["d3"] != pytest.approx(expected[3], abs=1e-3)  # the imputation alone


def test_what_a_store_lacks_is_said(folder: Path) -> None:
    store = Items()
    here = answering(folder, store=store)
    with pytest.raises(BadRequest, match="not in the store: x, y") as told:
        here.answer([asked(documents=[{"id": "x"}, {"id": "y"}])], Noted())
    assert (told.value.where, told.value.code) == ("documents.0.id", 422)
    store.down = True
    with pytest.raises(BadRequest, match="it is away") as told:
        here.answer([asked()], Noted())
    assert told.value.code == 503


def test_who_needs_nothing_of_a_store_does_not_wait_for_it(folder: Path, tmp_path: Path) -> None:
    lists = unskew.make_lists(queries=5, features=4, documents=(3, 9), seed=1)
    build(METHODS["naive"](), Linear(), fit_scaler("none", lists), 4, Context(positions=5)).save(tmp_path / "run")
    store = Items()
    store.down = True
    here = Answering(Models.open({"main": tmp_path / "run", "clicks": folder}), ServeSettings(), store=store)
    own = [{"id": "a", "features": [1.0, 2.0, 3.0, 4.0]}]
    assert shown(here, asked(documents=own)).store is None
    with pytest.raises(BadRequest, match="it is away"):
        here.answer([asked(documents=own), asked(model="clicks")], Noted())
    store.down = False
    found = here.answer([asked(documents=own), asked(model="clicks")], Noted())
    assert [one["store"] for one in found] == [{"clicks": "c1"}] * 2
    assert not any("logged" in one for one in found)


def test_the_example_of_a_model_is_a_request_that_it_answers(folder: Path, tmp_path: Path) -> None:
    make(tmp_path / "run", 1, Linear())
    here = Answering(Models.open({"places": folder, "names": tmp_path / "run"}), ServeSettings())
    for told in listed(here.models, ()):
        answer = shown(here, read_request(told.example))
        assert (answer.model, len({one.score for one in answer.ranking})) == (told.name, 4)


class Shelf(Items):
    """A store of one item."""

    def named(self) -> Sequence[Mapping[str, object] | None]:
        return [{"price": 7.0, "brand": "bolt", "unused": 1} if one == "d1" else None for one in self.asked]


def test_a_document_brings_some_features_and_the_store_has_the_rest(tmp_path: Path) -> None:
    make(tmp_path / "run", 1, Linear())
    here = answering(tmp_path / "run", store=Shelf())

    def score(one: str, features: dict[str, object] | None) -> float:
        return shown(here, read_request({"documents": [{"id": one, "features": features}]})).ranking[0].score

    assert score("d1", None) == score("d1", {}) == score("new", {"price": 7.0, "brand": "bolt"})
    assert score("d1", {"price": 2.0}) == score("new", {"price": 2.0, "brand": "bolt"}) != score("d1", None)
    with pytest.raises(BadRequest, match=r"^missing features: brand") as told:
        score("new", {"price": 2.0})
    assert told.value.where == "documents.0.features"


class Backwards:
    """A policy that turns every page round."""

    def rank(
        self, order: Array, scores: Array, *, request_id: str, secret: bytes = b"", other: Any = None
    ) -> Decision:
        assert (np.diff(scores[order]) <= 0).all()
        return Decision(order[::-1], np.full(len(order), 0.25), np.ones(len(order), bool), "backwards")


class Pages(list[Any]):
    """A log of pages that may be full."""

    full = False

    def shown(self, *page: Any, **more: Any) -> None:
        if self.full:
            raise RunError("no space left")
        self.append((page, more))

    def clicked(self, page_id: str, doc_id: str, *, dwell_time: float | None = None) -> None: ...

    def end_old(self) -> None: ...

    def close(self) -> None: ...


def test_a_policy_orders_and_its_pages_are_written(folder: Path) -> None:
    plain = shown(answering(folder, store=Items()), asked()).ranking
    pages = Pages()
    here = answering(folder, store=Items(), policy=Backwards(), impressions=pages)
    answer = shown(here, asked(results=2, user="u"))
    assert answer.logged is True
    assert [one.id for one in answer.ranking] == [one.id for one in plain][::-1]
    assert answer.policy == "backwards"
    assert {one.propensity for one in answer.ranking} == {0.25}
    (((page, query, ids, decision), more),) = pages
    assert (page, query, ids) == ("r", "q", ["d0", "d1", "d2", "d3"])
    assert [ids[at] for at in decision.order] == [one.id for one in answer.ranking]
    assert more.pop("scores")[decision.order].tolist() == [one.score for one in answer.ranking]
    assert more == {"results": 2, "user_id": "u"}


def test_what_is_refused_or_not_waited_for_is_no_page(folder: Path) -> None:
    pages = Pages()
    here = answering(folder, store=Items(), impressions=pages)
    with pytest.raises(BadRequest, match="no model is called"):
        here.answer([asked(), asked(model="x")], Noted())
    with pytest.raises(BadRequest, match="without a query") as told:
        here.answer([asked(), replace(asked(query=""), prefix="requests.1.")], Noted())
    assert told.value.where == "requests.1.query"
    here.answer([asked()], Noted(dropped=True))
    assert pages == []
    here.answer([asked()], facts := Noted())
    assert (pages[0][0][3].policy_id, pages[0][0][3].propensity.tolist(), facts.logged) == ("none", [1.0] * 4, 1)


def test_an_answer_is_of_one_model_though_another_is_taken_up_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        make(tmp_path / str(seed), seed, Linear())
    here = Answering(Models.open({"main": tmp_path / "1"}), ServeSettings())
    other = Models.open({"main": tmp_path / "2"})["main"].current
    one = read_request({"query": "q", "documents": [{"id": "a", "features": {"price": 2.0, "brand": "bolt"}}]})
    before, checked = shown(here, one), answers.check_work

    def switched(*asked: Any) -> None:
        here.models["main"].current = other
        checked(*asked)

    monkeypatch.setattr(answers, "check_work", switched)
    during = shown(here, one)
    monkeypatch.undo()
    after = shown(here, one)
    assert (during.version, during.ranking) == (before.version, before.ranking)
    assert after.version != before.version
    assert after.ranking[0].score != before.ranking[0].score


def test_nothing_is_explored_that_cannot_be_written(folder: Path) -> None:
    plain = shown(answering(folder, store=Items()), asked()).ranking
    pages = Pages()
    pages.full = True
    here = answering(folder, store=Items(), policy=Backwards(), impressions=pages)
    answer = shown(here, asked(), facts := Noted())
    assert answer.logged is False
    assert [one.id for one in answer.ranking] == [one.id for one in plain]
    assert (answer.policy, facts.unlogged, facts.logged) == ("none", 1, 0)
