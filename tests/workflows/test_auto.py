"""`method = "auto"`: judges by hand, who is taken, and what a run says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log2

import numpy as np
import pytest

import unskew
from tests.helpers.asked import settings
from unskew.errors import ConfigError
from unskew.learning.methods import DLA, Naive
from unskew.measuring import LoggedPages
from unskew.sklearn import Ranker
from unskew.types import Lists, Log
from unskew.workflows.runs import auto as autos
from unskew.workflows.runs.auto import candidates, parts_of, taken
from unskew.workflows.runs.judges import Contest, Contestant, Ranked, agreement, along_shown, of_others, standing
from unskew.workflows.runs.learn import learn
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.run import run
from unskew.workflows.runs.settings import Auto

QUICK = {"ranker": "linear", "steps": 20, "threads": 1, "seed": 0}


def tiny() -> Log:
    """Two queries of three documents, a page each, the second one shuffled."""
    lists = Lists(np.zeros((6, 1), np.float32), np.array([0, 3, 6]), np.zeros(6, np.int16), np.array([0, 1]))
    return Log(
        lists=lists,
        offsets=np.array([0, 3, 6]),
        query=np.array([0, 1]),
        row=np.arange(6),
        position=np.array([1, 2, 3] * 2, np.int16),
        click=np.array([1, 0, 1, 0, 1, 0], np.uint8),
        randomized=np.array([False] * 3 + [True] * 3),
    )


@pytest.fixture(scope="module")
def shop() -> Log:
    lists = unskew.make_lists(40, features=6, seed=3)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=1500, seed=3, randomized=0.1)


@pytest.fixture(scope="module")
def learned(shop: Log, tmp_path_factory: pytest.TempPathFactory) -> unskew.Run:
    out = tmp_path_factory.mktemp("auto") / "run"
    return learn(shop, Auto(candidates=("naive", "dla", "regression_em")), out=out, **QUICK)


# ---- the judges ----


def test_clicks_by_hand() -> None:
    """Every judge of clicks, written out."""
    up, down = np.array([3.0, 2, 1] * 2), np.array([1.0, 2, 3] * 2)
    contest = Contest(["up", "down"])
    contest.add(tiny(), {"up": Contestant(up, np.array([1, 0.5, 0.25])), "down": Contestant(down)})
    sums = {judge: (each[0] / each[1]).tolist() for judge, each in contest.sums.items()}
    first, second, third = (1 / log2(1 + k) for k in (1, 2, 3))
    assert sums["raw"] == pytest.approx([(first + third + second) / 3, (third + first + second) / 3])
    assert sums["shuffled"] == pytest.approx([second, second])
    # `down` is judged by what `up` knows of examination: clicks at ranks 1, 3 and 2 count 1, 4 and 2
    assert sums["corrected"][1] == pytest.approx((third + 4 * first + 2 * second) / 7)
    assert sums["corrected"][0] == pytest.approx((first + third + second) / 3)  # the other knows nothing


def test_agreement_by_hand() -> None:
    scores = np.array([[3.0, 2, 1, 9, 8, 7], [30, 20, 10, 3, 2, 1], [1, 2, 3, 1, 2, 3]])
    found = agreement(scores, tiny(), ~np.eye(3, dtype=bool))
    # the first two are the same but for level and scale, the third the other way round
    centred = np.array([1.0, 0, -1] * 2)
    second = np.array([10.0, 0, -10, 1, 0, -1])
    z = [each / each.std() for each in (centred, second, -centred)]
    wanted = [np.mean(z[m] * (sum(z) - z[m]) / 2) for m in range(3)]
    assert (found[0] / found[1]).tolist() == pytest.approx(wanted)
    assert found[0].argmin() == 2


def test_nobody_is_judged_by_what_it_knows_itself() -> None:
    curves = [np.array([1.0, 0.9]), np.array([1.0, 0.1]), None]
    assert [each[1] for each in of_others(curves, ~np.eye(3, dtype=bool), 2)] == pytest.approx([0.1, 0.9, 0.3])


def test_few_shuffled_clicks_are_not_asked() -> None:
    contest = Contest(["a", "b"])
    contest.add(tiny(), {name: Contestant(np.arange(6.0) * sign) for name, sign in (("a", 1), ("b", -1))})
    assert "shuffled" not in contest.finish().values
    contest.shuffled = 30
    assert "shuffled" in contest.finish().values


def test_the_order_is_that_of_the_places() -> None:
    """Three that agree and are right of the clicks, against one that is neither."""
    contest = Contest(["odd", "a", "b", "c"])
    clicked = np.array([3.0, 1, 2, 1, 3, 2])
    contest.add(tiny(), {name: Contestant(-clicked if name == "odd" else clicked) for name in contest.names})
    assert contest.finish().order == ("a", "b", "c", "odd")


def test_likeness_to_the_order_shown_by_hand() -> None:
    """Of the page that was not shuffled, its results at ranks 1, 2 and 3."""
    page = LoggedPages.from_log(tiny(), cluster="query")
    scores = np.array([5.0, 1, 3, 9, 9, 1])
    ranks = -np.log([1.0, 2, 3])
    score, rank = scores[:3] - 3, ranks - ranks.mean()
    wanted = [(score * rank).sum(), (score**2).sum(), (rank**2).sum()]
    assert along_shown(scores[None], page)[:, 0].tolist() == pytest.approx(wanted)


def test_raw_clicks_count_most_where_the_order_shown_was_good() -> None:
    good, bad = np.array([3.0, 2, 1] * 2), np.array([1.0, 2, 3] * 2)
    for scores, weight in ((good, 4.0), (bad, 0.25)):
        contest = Contest(["naive", "a", "b"])
        held = {name: Contestant(scores, corrects=name != "naive") for name in contest.names}
        contest.add(tiny(), held | {"naive": Contestant(good, corrects=False)})
        found = contest.finish()
        assert found.weights["raw"] == weight
        assert found.as_shown is not None
        assert (found.as_shown > 0.9) == (weight == 4.0)


def test_places_are_shared_by_equals() -> None:
    assert standing({"a": 1.0, "b": 1.0, "c": 1.0}) == dict.fromkeys("abc", 0.5)
    assert standing({"a": 1.0}) == {"a": 0.0}


# ---- who is taken ----


def test_naive_is_taken_where_clicks_call_the_first_worse() -> None:
    """The first of the order ranks clicked results last, and random slots say so."""
    page = tiny()
    many = 400
    log = replace(
        page,
        offsets=np.arange(0, 3 * many + 1, 3),
        query=np.arange(many) % 2,
        row=np.concatenate([np.arange(3) + 3 * (number % 2) for number in range(many)]),
        position=np.tile(np.array([1, 2, 3], np.int16), many),
        click=np.tile(np.array([1, 0, 0], np.uint8), many),
        randomized=np.ones(3 * many, bool),
        columns={"visit_id": np.repeat(np.arange(many), 3)},
    )
    best, worst = np.array([3.0, 2, 1] * 2), np.array([1.0, 2, 3] * 2)
    rankers = {"naive": Contestant(best), "bad": Contestant(worst), "good": Contestant(best)}
    outcome = Ranked({}, ("bad", "good", "naive"), 400, 400)
    label, evidence = taken(outcome, log, [np.ones(many, bool)], [rankers])
    assert label == "naive"
    assert evidence is not None
    assert evidence.verdict == "worse"
    label, evidence = taken(
        replace(outcome, order=("good", "bad", "naive")), log, [np.ones(many, bool)], [rankers]
    )
    assert label == "good"
    assert evidence is not None
    assert evidence.verdict == "cannot tell"


def test_no_page_judges_a_ranker_that_has_seen_it(shop: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[int], set[int]]] = []

    def learns(asked: object, data: autos.LogData, part: np.ndarray) -> Contestant:
        left, judged = data.train.take(~part), data.train.take(part)
        seen.append((set(left.query.tolist()), set(judged.query.tolist())))
        return Contestant(np.zeros(len(data.train.lists.features)))

    monkeypatch.setattr(autos, "contestant", learns)
    asked = settings(Auto(candidates=("naive", "dla")), "linear", None, None, {"steps": 5}, None)
    autos.choose(asked, autos.LogData(shop))
    assert seen
    assert all(not learned & judged for learned, judged in seen)


def test_a_candidate_learns_without_the_part_that_judges_it(shop: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings("naive", "linear", None, None, {"steps": 5, "threads": 1, "validate_on": "nothing"}, None)
    part, given = parts_of(shop, 3, 0)[0], []

    def watched(asked: object, data: autos.LogData, **more: object) -> unskew.Run:
        given.append(data.train)
        return run(asked, data, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(autos, "run", watched)
    autos.contestant(asked, autos.LogData(shop), part)
    assert [len(log) for log in given] == [int((~part).sum())]


def test_few_clicks_are_judged_part_after_part(shop: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autos, "MANY_CLICKS", 10**9)
    assert sum(parts_of(shop, 3, 0)).tolist() == [1] * len(shop)  # type: ignore[arg-type, union-attr]
    monkeypatch.setattr(autos, "MANY_CLICKS", 1)
    assert len(parts_of(shop, 3, 0)) == 1
    one = shop.take(shop.query == shop.query[0])
    assert 0 < parts_of(one, 3, 0)[0].sum() < len(one)


def test_too_few_clicks_leave_the_default(shop: Log) -> None:
    few = shop.take(np.arange(40))
    done = learn(few, "auto", validate_on="nothing", **QUICK)
    assert done.model.card.method["name"] == "dla"
    assert done.metrics.auto.because.startswith("auto cannot tell: ")


# ---- a run says so ----


def test_a_run_says_what_was_taken_and_why(learned: unskew.Run) -> None:
    told, folder = learned.metrics.auto, learned.folder
    assert folder is not None
    assert told is not None
    assert told.choice in (told.candidates or ())
    assert len(told.candidates or ()) == 3
    assert told.because.startswith(f"auto took {told.choice}: ")
    assert learned.model.card.method["name"] == told.method.name
    assert json.loads((folder / "metrics.json").read_text())["auto"]["choice"] == told.choice
    assert json.loads((folder / "config.json").read_text())["method"]["name"] == told.method.name
    assert set(told.judges or {}) == {"agreement", "corrected", "raw", "shuffled"}


def test_what_is_taken_learns_as_if_it_had_been_named(shop: Log, learned: unskew.Run) -> None:
    named = {"naive": Naive(), "dla": DLA()}.get(learned.metrics.auto.choice)
    again = learn(shop, named or "regression_em", **QUICK)
    assert np.array_equal(again.score(shop.lists), learned.score(shop.lists))


def test_a_candidate_that_cannot_learn_is_left_out(shop: Log) -> None:
    plain = replace(shop, randomized=None)
    done = learn(plain, Auto(candidates=("naive", "dla", "ipw")), **QUICK)
    assert list(done.metrics.auto.left_out) == ["ipw"]
    assert "ipw" not in done.metrics.auto.candidates


def test_scikit_learn_may_say_auto(shop: Log) -> None:
    page = np.repeat(np.arange(len(shop)), shop.sizes)
    first = page < 900
    ranker = Ranker(Auto(candidates=("naive", "dla")), "linear", steps=10)  # type: ignore[arg-type]
    shown = {"groups": shop.query[page][first], "page": page[first], "position": shop.position[first]}
    ranker.fit(shop.lists.features[shop.row][first], shop.click[first], **shown)
    assert ranker.metrics_.auto.choice in ("naive", "dla")
    assert ranker.predict(shop.lists.features[:5]).shape == (5,)


def test_a_run_file_may_say_auto(tmp_path: object) -> None:
    asked = ask("log", features="x.parquet", method="auto", settings={"method.candidates": ["naive", "tal"]})
    assert asked.settings.auto == Auto(candidates=("naive", "tal"))
    with pytest.raises(ConfigError, match=r"method\.candidats"):
        ask("log", features="x.parquet", method="auto", settings={"method.candidats": ["naive"]})


def test_candidates_are_methods_that_learn_from_clicks() -> None:
    tables = Auto(candidates=("naive", {"name": "naive", "loss": "sigmoid"}))
    assert list(candidates(tables)) == ["naive", "naive, loss = sigmoid"]
    with pytest.raises(ConfigError, match=r"candidates\.0: labeled cannot be one"):
        candidates(Auto(candidates=("labeled",)))
    with_factors = candidates(Auto(factors=("serp_media",)))
    assert with_factors["additive"].factors == ("serp_media",)  # type: ignore[attr-defined]
    assert "naive" not in with_factors
