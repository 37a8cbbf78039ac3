"""Where a run stands against what was shown: known orders are judged rightly, biased clicks are not believed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.errors import Unproven
from unskew.logs.counts.reduction import reduce_log
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.run import standing
from unskew.workflows.runs.shards import unreduced


class Given:
    """A scorer that knows the scores of documents by their first feature, which is their number."""

    features = 4

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


def judged(scores: Array, log: Log | None) -> unskew.workflows.runs.run.Standing:
    return standing(Given(scores), log)  # type: ignore[arg-type]


def test_the_better_order_is_found_on_shuffled_pages() -> None:
    log = world(0.2)
    found = judged(log.lists.labels.astype(float), log)
    assert found.verdict == "better"
    assert found.evidence is not None
    direct = found.evidence["direct"]
    assert found.evidence.decided_by == ("direct",)
    assert direct.interval is not None
    assert direct.interval[0] > 0
    assert found.sentence.startswith("Against what was shown: better, by held-out pages of 60 queries. ")


def test_the_worse_order_is_found_on_shuffled_pages() -> None:
    log = world(0.2, logger="oracle")
    found = judged(-log.lists.labels.astype(float), log)
    assert found.verdict == "worse"
    assert "Against what was shown: worse" in found.sentence


def test_the_same_order_cannot_be_told() -> None:
    log = world(0.2)
    usual = log.take(np.flatnonzero(~log.randomized[log.offsets[:-1]]))
    scores = np.zeros(len(log.lists.features))
    scores[usual.row] = -usual.position
    found = judged(scores, log)
    assert found.verdict == "cannot tell"
    assert found.evidence is not None
    assert found.evidence["direct"].difference == pytest.approx(0)


def test_clicks_that_favour_the_order_shown_prove_no_loss() -> None:
    """Only the bias of the log speaks against a good ranker here, and nothing else is known."""
    log = world(0.0)
    good = judged(log.lists.labels.astype(float), log)
    assert good.verdict != "worse"
    bad = judged(-log.lists.labels.astype(float), log)
    assert bad.verdict != "better"


def test_where_all_pages_are_shuffled_any_order_is_what_was_shown() -> None:
    log = world(1.0)
    found = judged(log.lists.labels.astype(float), log)
    assert found.verdict == "better"
    assert found.evidence is not None
    flat = [sum(1 / math.log2(1 + k) for k in range(1, size + 1)) / size for size in log.sizes]
    clicks = np.add.reduceat(log.click.astype(float), log.offsets[:-1])
    assert found.evidence["direct"].other == pytest.approx(np.mean(flat * clicks))


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
    found = judged(log.lists.labels.astype(float), some)
    assert found.never_shown == pytest.approx(0)  # every list of eight is shown whole
    assert found.queries == 10


def numbered(lists: Lists) -> Lists:
    features = lists.features.copy()
    features[:, 0] = np.arange(len(features))
    return replace(lists, features=features)


def test_nothing_held_out_says_so() -> None:
    found = judged(np.zeros(1), None)
    assert found.verdict == "cannot tell"
    assert found.sentence.endswith("no click was held out.")


def test_pages_of_one_result_have_no_order() -> None:
    log = world(0.2)
    found = judged(log.lists.labels.astype(float), log.keep(log.position == 1))
    assert found.verdict == "cannot tell"
    assert found.sentence.endswith("the held-out pages have one result each.")


def test_learning_records_it_and_the_console_shows_it() -> None:
    log = world(0.2, pages=5_000)
    run = unskew.learn(log, "naive", ranker="linear", steps=20)
    found = run.metrics.standing
    assert found.evidence is not None
    assert found.verdict == found.evidence.verdict
    assert found.sentence in run.page().sections[0].text


def test_learning_warns_of_harm() -> None:
    log = world(0.5, logger="oracle", queries=200, pages=40_000)
    nonsense = np.random.default_rng(0).normal(size=log.lists.features.shape).astype(np.float32)
    with pytest.warns(Unproven, match="Against what was shown: worse"):
        unskew.learn(
            replace(log, lists=replace(log.lists, features=nonsense)),
            "naive",
            ranker="linear",
            steps=5,
            engine="none",
        )


def test_learning_warns_where_nobody_can_tell() -> None:
    log = world(0.0, queries=30, pages=600)
    with pytest.warns(Unproven, match="Against what was shown: cannot tell, by held-out pages of 3 queries"):
        unskew.learn(log, "naive", ranker="linear", steps=2, engine="none")


def test_counts_are_as_good_as_the_pages_that_they_are_of() -> None:
    """A log kept as counts of rankings is judged by the same sums, whatever pages the clicks were on."""
    log = world(0.0, pages=2_000)
    scores = log.lists.labels.astype(float)
    again = unreduced(reduce_log(log))
    assert again.click.sum() == log.click.sum()
    pages, counts = judged(scores, log).evidence, judged(scores, again).evidence
    assert pages is not None
    assert counts is not None
    for name in ("clicks", "ips"):
        assert counts[name].difference == pytest.approx(pages[name].difference)
        assert counts[name].interval == pytest.approx(pages[name].interval)
