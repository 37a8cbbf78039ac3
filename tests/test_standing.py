"""Where a run stands against what was shown: known orders are judged rightly, biased clicks are not believed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.clicks.counts.reduction import reduce_log
from unskew.clicks.lists.synthetic import make_lists
from unskew.clicks.simulate import PositionBias, simulate
from unskew.reporting.summaries import run_page
from unskew.running.data import HeldOut, LogData
from unskew.running.standing import never_shown, standing, usual_discounts
from unskew.types import Array, Lists, Log


class Given:
    """A scorer that knows the scores of documents by their first feature, which is their number."""

    def __init__(self, scores: Array) -> None:
        self.scores = scores

    def score(self, lists: Lists) -> Array:
        return self.scores[lists.features[:, 0].astype(int)]


def world(randomized: float, logger: str = "random", queries: int = 60, pages: int = 20_000) -> Log:
    """A log whose documents are numbered."""
    lists = make_lists(queries, 4, 8, seed=5)
    log = simulate(lists, PositionBias(), pages=pages, randomized=randomized, logger=logger, seed=5)
    features = lists.features.copy()
    features[:, 0] = np.arange(len(features))
    return replace(log, lists=replace(lists, features=features))


def judged(scores: Array, log: Log) -> unskew.running.standing.Standing:
    return standing(Given(scores), LogData(log, log).held_out_pages())  # type: ignore[arg-type]


def test_the_better_order_is_found_on_shuffled_pages() -> None:
    log = world(0.2)
    found = judged(log.lists.labels.astype(float), log)
    assert found.verdict == "better"
    assert found.shuffled
    assert found.interval is not None
    assert found.interval[0] > 0
    assert found.sentence.startswith("By held-out clicks it ranks better than what was shown: a click counts 0.")


def test_the_worse_order_is_found_on_shuffled_pages() -> None:
    log = world(0.2, logger="oracle")
    found = judged(-log.lists.labels.astype(float), log)
    assert found.verdict == "worse"
    assert "ranks worse than what was shown" in found.sentence


def test_the_same_order_cannot_be_told() -> None:
    log = world(0.2)
    usual = log.take(np.flatnonzero(~log.randomized[log.offsets[:-1]]))
    scores = np.zeros(len(log.lists.features))
    scores[usual.row] = -usual.position
    found = judged(scores, log)
    assert found.verdict == "cannot tell"
    assert found.learned == pytest.approx(found.shown)
    assert found.interval == pytest.approx((0, 0))


def test_clicks_that_favour_the_order_shown_prove_no_loss_but_a_gain() -> None:
    """A good ranker against a random order: without shuffled pages its clicks must be many to show it."""
    log = world(0.0)
    truth = log.lists.labels.astype(float)
    against = judged(-truth, log)
    assert against.verdict == "cannot tell"
    assert against.learned < against.shown
    assert "no such page is known to be shuffled" in against.sentence
    flat = simulate(log.lists, PositionBias(curve=(1.0,) * 10), pages=20_000, logger="random", seed=5)
    assert judged(truth, flat).verdict == "better"


def test_where_all_pages_are_shuffled_any_order_is_what_was_shown() -> None:
    log = world(1.0)
    found = judged(log.lists.labels.astype(float), log)
    assert found.verdict == "better"
    shuffled = reduce_log(log)
    value = usual_discounts(shuffled, None)
    size = int(shuffled.where[0].sum())
    expected = sum(1 / math.log2(1 + k) for k in range(1, size + 1)) / size
    assert value[0, :size] == pytest.approx(expected)


def test_documents_that_were_never_shown_are_counted() -> None:
    lists = make_lists(10, 4, 40, seed=1)
    log = simulate(lists, PositionBias(), pages=3_000, cutoff=5, randomized=0.5, seed=1)
    found = judged(np.arange(len(lists.features), dtype=float), replace(log, lists=numbered(lists)))
    missing = 1 - 5 * len(lists) / len(lists.features)
    assert found.never_shown == pytest.approx(missing)
    assert f"{missing:.0%} of the documents were never shown" in found.sentence


def test_the_share_never_shown_is_of_the_queries_that_were_asked() -> None:
    log = world(0.5, queries=30)
    some = log.take(log.query < 10)
    pages = LogData(some, some).held_out_pages()
    assert never_shown(pages) == pytest.approx(0)  # every list of eight or so is shown whole
    assert len(some.lists) == 30


def numbered(lists: Lists) -> Lists:
    features = lists.features.copy()
    features[:, 0] = np.arange(len(features))
    return replace(lists, features=features)


def test_nothing_held_out_says_so() -> None:
    found = standing(Given(np.zeros(1)), HeldOut(None, None))  # type: ignore[arg-type]
    assert found.verdict == "cannot tell"
    assert found.sentence.endswith("no click was held out.")


def test_pages_of_one_result_have_no_order() -> None:
    log = world(0.2)
    found = judged(log.lists.labels.astype(float), log.keep(log.position == 1))
    assert found.verdict == "cannot tell"
    assert found.sentence.endswith("their pages have one result each.")


def test_one_query_is_not_enough() -> None:
    log = world(0.5, queries=1)
    found = judged(log.lists.labels.astype(float), log)
    assert found.verdict == "cannot tell"
    assert found.interval is None


def test_learning_records_it_and_the_console_shows_it() -> None:
    log = world(0.2, pages=5_000)
    run = unskew.learn(log, "naive", ranker="linear", steps=20)
    found = run.metrics["standing"]
    assert found["verdict"] in ("better", "worse", "cannot tell")
    assert found["sentence"] in run_page(run.folder, "finished", run.metrics).sections[0].text  # type: ignore[arg-type]


def test_learning_warns_of_harm() -> None:
    log = world(0.5, logger="oracle", queries=200, pages=40_000)
    nonsense = np.random.default_rng(0).normal(size=log.lists.features.shape).astype(np.float32)
    with pytest.warns(UserWarning, match="ranks worse than what was shown"):
        unskew.learn(replace(log, lists=replace(log.lists, features=nonsense)), "naive", ranker="linear", steps=5)
