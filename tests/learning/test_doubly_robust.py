"""doubly_robust and counts by query: the paper's estimator rewritten page by page, and who gains from it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import unskew
from unskew.learning.methods import IPW, DoublyRobust, MethodModule
from unskew.learning.methods.doubly_robust import doubly_robust_label
from unskew.learning.rankers import MLP
from unskew.learning.rankers.networks import WithSide, penalty_of
from unskew.learning.scoring.model import build_tower
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import by_query, reduce_log
from unskew.logs.counts.shard_writer import ShardSource
from unskew.logs.counts.shards import open_shards
from unskew.logs.log import write_log
from unskew.measuring import ndcg_metric
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, ClickBatch, Log
from unskew.workflows.runs.data import LogData

torch.set_num_threads(1)
THETA = (1.0, 0.5, 0.2, 0.1)
EVERY = 1000


@pytest.fixture(scope="module")
def log() -> Log:
    """Pages of four of up to nine documents, some shuffled, so that documents move between ranks."""
    lists = make_lists(queries=7, features=4, documents=(3, 9), seed=2)
    return simulate(lists, PositionBias(), pages=300, seed=1, cutoff=4, randomized=0.4)


# ---- counts by query


def test_rows_by_query_hold_what_every_page_says(log: Log) -> None:
    counts = by_query(reduce_log(log), EVERY)
    assert counts.shown_at is not None
    assert counts.stands_for is not None
    for number, query in enumerate(counts.query):
        pages = log.query == query
        start, stop = log.lists.offsets[query : query + 2]
        row = counts.row[number]
        assert sorted(row[row >= 0]) == list(range(start, stop))
        page = np.repeat(np.arange(len(log)), log.sizes)
        for slot, document in enumerate(row[row >= 0]):
            here = pages[page] & (log.row == document)
            assert counts.clicks[number, slot] == log.click[here].sum()
            assert counts.impressions[number, slot] == pages.sum()
            assert counts.stands_for[number, slot] == 1
            ranks = np.bincount(log.position[here] - 1, minlength=4)
            shown = counts.shown_at[number, slot] if slot < counts.shown_at.shape[1] else np.zeros(4)
            assert shown.tolist() == ranks.tolist()
            assert counts.position[number, slot] == (log.position[here].min() if here.any() else 0)
    assert (counts.position[counts.where] == 0).any()  # some were never shown
    assert (counts.impressions[~counts.where] == 0).all()


def test_rows_by_query_are_the_same_from_pages_and_from_counts(log: Log) -> None:
    one, other = by_query(reduce_log(log), 2), by_query(reduce_log(log, "pages"), 2)
    for name in ("query", "row", "position", "clicks", "impressions", "shown_at", "stands_for"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_documents_that_are_drawn_stand_for_all_of_them(log: Log) -> None:
    every, some = by_query(reduce_log(log), EVERY), by_query(reduce_log(log), 2)
    assert every.stands_for is not None
    assert some.stands_for is not None
    assert some.row.shape[1] < every.row.shape[1]
    assert some.stands_for.sum(1) == pytest.approx(every.stands_for.sum(1))
    assert ((some.row >= 0) & (some.position == 0)).sum(1).max() == 2
    none = by_query(reduce_log(log), 0)
    assert (none.position[none.where] > 0).all()


def test_shards_keep_the_rows_of_the_whole_log(log: Log, tmp_path: Path) -> None:
    write_log(log, tmp_path / "log.parquet")
    unskew.write_letor(log.lists, tmp_path / "lists.txt")
    source = ShardSource(
        log=str(tmp_path / "log.parquet"), counts=None, lists=(str(tmp_path / "lists.txt"),), shards=2,
        unseen=EVERY,
    )  # fmt: skip
    shards = open_shards(source, cache=tmp_path / "cache")
    whole = by_query(reduce_log(log), EVERY)
    assert shards.totals()["pages"] == len(log)
    assert shards.totals()["impressions"] == len(log.row)
    found = [shards.load(shard) for shard in range(len(shards)) if shards.pages[shard]]
    for name in ("clicks", "impressions", "shown_at", "stands_for", "position"):
        assert sum(getattr(part, name).sum() for part in found) == getattr(whole, name).sum(), name
    assert sum(len(part) for part in found) == len(whole)


# ---- the estimator


def test_it_is_ipw_where_enough_was_seen() -> None:
    seen, pages = torch.tensor([8.0, 5.0]), torch.tensor([10.0, 10.0])
    label = doubly_robust_label(torch.tensor([3.0, 1.0]), pages, seen, torch.tensor(0.7), torch.tensor(0.1))
    assert label.tolist() == pytest.approx([3 / 0.8, 1 / 0.5])


def test_it_is_the_regression_where_nothing_was_seen() -> None:
    values = (torch.tensor(v) for v in (0.0, 4.0, 0.0, 0.7, 0.1))
    assert doubly_robust_label(*values).item() == pytest.approx(2.8)


def test_labels_are_unbiased_if_the_regression_is_right_or_enough_was_seen() -> None:
    """E[C] = n a gamma, so the label's mean is n gamma if R = gamma or if a >= tau."""
    n, gamma = 100.0, 0.35
    for a, tau, regression in ((0.5, 0.1, 0.9), (0.02, 0.1, gamma)):
        values = (torch.tensor(v) for v in (n * a * gamma, n, n * a, regression, tau))
        assert doubly_robust_label(*values).item() == pytest.approx(n * gamma, rel=1e-5)


def paper_losses(log: Log, score: Array, logit: Array, tau: float, fit: str) -> tuple[float, float]:
    """Ranking and regression loss of all pages, in plain numpy: nothing is shared with the source.

    The rewards of the paper, Eq. 20 there: R_d + mean over pages of (c - alpha_k R) / max(mean alpha, tau).
    """
    sig = 1 / (1 + np.exp(-logit))
    score = score + np.log(sig)  # the ranker's output is added to the regression
    ranking = weights = regression = 0.0
    for query in np.unique(log.query):
        pages = [np.arange(log.offsets[p], log.offsets[p + 1]) for p in np.flatnonzero(log.query == query)]
        documents = range(log.lists.offsets[query], log.lists.offsets[query + 1])
        norm = math.log(sum(math.exp(score[d]) for d in documents))
        for d in documents:
            alphas = [next((THETA[log.position[i] - 1] for i in page if log.row[i] == d), 0.0) for page in pages]
            clicks = [next((float(log.click[i]) for i in page if log.row[i] == d), 0.0) for page in pages]
            a, ctr = np.mean(alphas), np.mean(clicks)
            rho = max(a, tau)
            y = sig[d] + np.mean([(c - alpha * sig[d]) / rho for c, alpha in zip(clicks, alphas, strict=True)])
            ranking -= len(pages) * y * (score[d] - norm)
            weights += len(pages) * y
            if fit == "weighted":
                regression -= len(pages) * (ctr * np.log(sig[d]) + (a - ctr) * np.log(1 - sig[d])) / rho
            elif a > 0:
                regression -= len(pages) * (ctr * np.log(a * sig[d]) + (1 - ctr) * np.log(1 - a * sig[d]))
    return float(ranking / weights), float(regression / len(log))


def every_query(config: DoublyRobust, log: Log) -> tuple[MethodModule, ClickBatch]:
    """The method in double precision with a level of -0.4, and a batch of every query."""
    method = config.build(LogData(log).context(config)).double()
    with torch.no_grad():
        method.level.fill_(-0.4)
    counts = config.table(log)
    batch = Batches(counts).rows(torch.arange(len(counts)))
    names = ("clicks", "impressions", "shown_at", "stands_for")
    return method, replace(batch, **{name: getattr(batch, name).double() for name in names})


@pytest.mark.parametrize("fit", ["likelihood", "weighted"])
@pytest.mark.parametrize("clip", [1.0, 8.0])
def test_loss_and_gradient_are_the_papers_estimator_page_by_page(log: Log, clip: float, fit: str) -> None:
    """The ranker's output moves by the ranking loss, the regression by its own loss alone: its part in labels and
    in the score is held constant."""
    config = DoublyRobust(propensity=THETA, clip=clip, candidates=EVERY, fit=fit)  # type: ignore[arg-type]
    method, batch = every_query(config, log)
    outputs = torch.randn(len(log.lists.features), 2, dtype=torch.float64).requires_grad_()
    found = method(batch.pad(outputs[batch.rows]), batch)
    found.backward()
    score, logit = outputs.detach().numpy().T
    tau = min(1.0, clip / math.sqrt(len(log)))
    assert found.item() == pytest.approx(sum(paper_losses(log, score, logit - 0.4, tau, fit)), rel=1e-6)
    for document in (0, 5, 11):
        step = np.zeros(len(score))
        step[document] = 1e-5
        for part in (0, 1):  # of the loss, and of the outputs
            moves = [(score + (1 - part) * sign * step, logit - 0.4 + part * sign * step) for sign in (1, -1)]
            ends = [paper_losses(log, *moved, tau, fit)[part] for moved in moves]
            assert outputs.grad is not None
            slope = (ends[0] - ends[1]) / 2e-5
            assert outputs.grad[document, part].item() == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_documents_that_are_drawn_count_for_all_in_the_loss(log: Log) -> None:
    """Where documents that were never shown are alike, a few of them give the gradient of all."""
    shown = np.zeros(len(log.lists.features), bool)
    shown[log.row] = True
    torch.manual_seed(0)
    outputs = torch.randn(len(shown), 2, dtype=torch.float64)
    outputs[~torch.from_numpy(shown)] = torch.tensor([0.3, -0.2], dtype=torch.float64)
    gradients = []
    for candidates in (EVERY, 1):
        method, batch = every_query(DoublyRobust(propensity=THETA, candidates=candidates), log)
        own = outputs.clone().requires_grad_()
        method(batch.pad(own[batch.rows]), batch).backward()
        assert own.grad is not None
        gradients.append(own.grad[:, 0].numpy())
    np.testing.assert_allclose(gradients[0][shown], gradients[1][shown], rtol=1e-7)
    queries = np.repeat(np.arange(len(log.lists.sizes)), log.lists.sizes)
    unseen = [np.bincount(queries[~shown], each[~shown]) for each in gradients]
    np.testing.assert_allclose(*unseen, rtol=1e-7)  # one moves as much as all of its query
    assert (np.bincount(queries[~shown]) > 1).any()


def test_documents_are_ranked_by_regression_and_ranker(log: Log) -> None:
    config = DoublyRobust(propensity=THETA)
    method = config.build(LogData(log).context(config))
    where = torch.tensor([[True, True, False]])
    relevance = torch.tensor([[[0.5, 1.0], [0.7, -2.0], [9.0, 9.0]]])
    level = method.level.item()
    expected = [f + math.log(1 / (1 + math.exp(-(g + level)))) for f, g in ((0.5, 1.0), (0.7, -2.0))]
    assert method.score(relevance, where).tolist() == [pytest.approx([*expected, 0.0], abs=1e-6)]


def test_the_regression_is_penalised_as_asked_for(log: Log) -> None:
    """penalty sum ||W||^2 / 2 over its weights, and nothing of the ranker or of biases."""
    config = DoublyRobust(propensity=THETA, penalty=0.3, regression=(3,))
    method = config.build(LogData(log).context(config))
    tower = build_tower(MLP(sizes=(2,)), 4, method)
    assert isinstance(tower, WithSide)
    total = sum(w.square().sum().item() for w in tower.side.parameters() if w.ndim > 1)
    assert torch.as_tensor(penalty_of(tower)).item() == pytest.approx(0.3 * total / 2, rel=1e-5)


def ranker_gradient(config: IPW | DoublyRobust, log: Log, outputs: Tensor) -> Tensor:
    """Gradient of the score of every document."""
    counts = config.table(log)
    batch = Batches(counts).rows(torch.arange(len(counts)))
    outputs = outputs.clone().requires_grad_()
    config.build(LogData(log).context(config))(batch.pad(outputs[batch.rows]), batch).backward()
    assert outputs.grad is not None
    return outputs.grad[:, 0]


def test_with_many_pages_it_still_learns_from_documents_never_shown() -> None:
    """Every rank is seen more than tau: the documents shown have the weights of ipw, the others the regression."""
    lists = make_lists(queries=20, features=4, documents=15, seed=0)
    log = simulate(lists, PositionBias(), pages=20_000, seed=0, cutoff=10)
    theta = tuple(PositionBias().curve)
    shown = np.zeros(len(lists.features), bool)
    shown[log.row] = True
    outputs = torch.randn(len(lists.features), 2, generator=torch.Generator().manual_seed(0))
    outputs[:, 1] = 0.3  # a regression that tells nothing apart
    ipw, robust, without = (
        ranker_gradient(config, log, outputs)
        for config in (
            IPW(propensity=theta),
            DoublyRobust(propensity=theta),
            DoublyRobust(propensity=theta, candidates=0),
        )
    )
    torch.testing.assert_close(without, ipw, rtol=1e-4, atol=1e-6)
    assert (ipw[~shown] == 0).all()
    assert robust[~shown].abs().mean() > 1e-3


def test_its_click_model_is_the_regression_times_examination(log: Log) -> None:
    config = DoublyRobust(propensity=THETA)
    method = config.build(LogData(log).context(config))
    counts = reduce_log(log)
    batch = Batches(counts).rows(torch.arange(len(counts)))
    relevance = torch.randn(*batch.where.shape, 2)
    found = method.click_probability(relevance, batch)
    rate = (relevance[..., 1] + method.level).sigmoid() * torch.tensor([*THETA, 0.0])[batch.position - 1]
    torch.testing.assert_close(found[batch.where], rate[batch.where])


@pytest.mark.slow
def test_it_beats_ipw_where_pages_are_few_and_lists_deep() -> None:
    """Ten of a hundred documents are shown, 20 pages a query; whole lists of other queries are ranked."""
    sizes = ((100, 40), (150, 41), (80, 42))
    lists, test, labelled = (make_lists(queries, 25, 100, seed=seed) for queries, seed in sizes)
    log = simulate(lists, PositionBias(), pages=2000, seed=40, cutoff=10, truth=True)
    options = {
        "ranker": "mlp",
        "steps": 200,
        "validate_every": 25,
        "validation": labelled,
        "seed": 0,
        "threads": 1,
    }
    arms = (IPW(propensity="oracle"), IPW(propensity="oracle", max_weight=5.0), DoublyRobust(propensity="oracle"))
    plain, clipped, robust = (
        np.nanmean(ndcg_metric(run.score(test), test.labels, offsets=test.offsets, at=10))
        for run in (unskew.learn(log, arm, **options) for arm in arms)
    )
    assert robust > max(plain, clipped) + 0.02, (plain, clipped, robust)
