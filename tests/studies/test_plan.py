"""Plans on a twin: more shuffled pages find more, methods are measured by the truth, mistakes are told."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew.errors import ConfigError
from unskew.pages.page import markdown
from unskew.studies.plan import Plan, plan_page
from unskew.types import Log
from unskew.workflows.twins.twin import Twin


@pytest.fixture(scope="module")
def log() -> Log:
    lists = unskew.make_lists(queries=50, features=6, documents=12, seed=0)
    return unskew.simulate(lists, "position", pages=5000, randomized=0.2, seed=0)


@pytest.fixture(scope="module")
def twin(log: Log) -> Twin:
    return unskew.twin(log, models=["pbm"])


@pytest.fixture(scope="module")
def found(twin: Twin) -> Plan:
    return unskew.plan(twin, shares=(0.0, 0.2), pages=(800, 6000), methods=(), repeats=2, daily=400)


def test_shuffled_pages_and_more_of_them_find_smaller_gains(found: Plan) -> None:
    cells = {(cell.share, cell.pages): cell for cell in found.cells}
    assert list(cells) == [(0.0, 800), (0.0, 6000), (0.2, 800), (0.2, 6000)]
    assert cells[0.0, 6000].smallest is None  # one order per query, nothing shuffled
    assert cells[0.0, 6000].examination_off is None
    few, many = cells[0.2, 800], cells[0.2, 6000]
    assert few.smallest is not None
    assert many.smallest is not None
    # 7.5 times the pages: about 2.7 times as fine
    assert 1.8 < few.smallest / many.smallest < 4.0
    assert many.found == 2
    assert many.wrong == 0
    assert many.examination_off is not None
    assert many.examination_off < 0.15
    assert many.days == 15


def test_the_gain_is_that_of_the_twins_own_relevance(found: Plan, twin: Twin) -> None:
    layout = twin.layout
    value = {"best": 0.0, "shown": 0.0}
    for start, end in zip(layout.offsets[:-1], layout.offsets[1:], strict=True):
        gain = twin.relevance[layout.row[start:end]]
        discount = 1 / np.log2(np.arange(2, len(gain) + 2))
        value["shown"] += gain @ discount
        value["best"] += np.sort(gain)[::-1] @ discount
    assert found.gain == pytest.approx(value["best"] / value["shown"] - 1)
    assert found.gain > 0


def test_methods_are_measured_on_queries_that_they_have_not_seen(twin: Twin) -> None:
    found = unskew.plan(twin, shares=(0.1,), pages=(3000,), methods=("naive",), repeats=1)
    value = found.cells[0].ndcg["naive"]
    assert value is not None
    assert 0.3 < value <= 1
    assert found.shown_ndcg is not None
    told = markdown(plan_page(found))
    assert f"{value:.4f}" in told
    assert "DCG@10 over the one shown" in told


def test_no_method_sees_the_queries_that_it_is_measured_on(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    learned_from: list[Log] = []

    class Stub:
        """A run that scores documents by chance."""

        class model:
            @staticmethod
            def score(lists: object) -> object:
                return np.random.default_rng(0).random(len(twin.relevance))

    def learn(log: Log, *_: object, **__: object) -> Stub:
        learned_from.append(log)
        return Stub()

    monkeypatch.setattr("unskew.studies.plan.learn", learn)
    unskew.plan(twin, shares=(0.1,), pages=(3000,), methods=("naive",), repeats=1)
    queries = len(np.unique(learned_from[0].query))
    assert queries == pytest.approx(0.75 * len(twin.layout.lists), abs=1)
    assert "label" not in learned_from[0].columns


def test_mistakes_are_told(twin: Twin) -> None:
    with pytest.raises(ConfigError, match="shares=: give shares"):
        unskew.plan(twin, shares=(2.0,))
    with pytest.raises(ConfigError, match="pages=: give numbers"):
        unskew.plan(twin, pages=())
    with pytest.raises(ConfigError, match="daily=: input should be greater than 0"):
        unskew.plan(twin, daily=0)
