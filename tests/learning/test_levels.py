"""Levels are no matter of relevance: what relevance has in common goes to parameters of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.helpers.every_method import METHODS
from unskew.examination import Examination
from unskew.learning.factors import BiasTower
from unskew.learning.methods import IPW, Context, MethodConfig, Naive
from unskew.learning.methods.bases import LevelConfig, Levelled, shown_mean
from unskew.learning.rankers import MLP, Linear
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import Facts, reduce_log
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.inputs import Vectors
from unskew.types import ClickBatch, Log
from unskew.workflows.runs.data import LogData

torch.set_num_threads(1)

LEVELLED: dict[str, MethodConfig] = {
    "naive": Naive(loss="sigmoid"),
    "ipw": IPW(loss="sigmoid"),
    **{
        name: METHODS[name]()
        for name in ("additive", "edot", "einter", "mixem", "pal", "tal", "regression_em", "gradient_reversal")
    },
}
EVERY = pytest.mark.parametrize("name", LEVELLED)


@pytest.fixture(scope="module")
def log() -> Log:
    return simulate(make_lists(6, 4, 8, seed=1), PositionBias(), pages=600, cutoff=6, randomized=0.5, seed=1)


def built(config: MethodConfig, log: Log) -> Levelled:
    torch.manual_seed(0)
    method = config.build(LogData(log).context(config))
    assert isinstance(method, Levelled)
    return method


def outputs(log: Log, config: MethodConfig, width: int) -> tuple[ClickBatch, Tensor]:
    batch = next(Batches(reduce_log(log, config.reduction), size=10_000).in_order())
    table = torch.randn(len(log.lists.features), width, generator=torch.Generator().manual_seed(3))
    return batch, batch.pad(table[batch.rows])


def test_the_mean_is_over_impressions(log: Log) -> None:
    batch, relevance = outputs(log, Naive(), 2)
    by_page, one = outputs(log, Naive(loss="lambda"), 2)
    flat = one[by_page.where]
    torch.testing.assert_close(shown_mean(relevance, batch), flat.mean(0))
    garbage = relevance.masked_fill(~batch.where.unsqueeze(-1), math.nan)
    torch.testing.assert_close(shown_mean(garbage, batch), flat.mean(0))


@EVERY
def test_what_all_documents_share_does_not_matter_in_training(name: str, log: Log) -> None:
    """Shifted relevance gives the same loss, and its gradient has no part that moves all documents at once."""
    config = LEVELLED[name]
    method = built(config, log)
    batch, relevance = outputs(log, config, method.outputs)
    relevance = relevance.requires_grad_()
    loss = method(relevance, batch)
    (gradient,) = torch.autograd.grad(loss, relevance)
    again = built(config, log)
    torch.testing.assert_close(again(relevance + 2.5, batch), loss)
    torch.testing.assert_close(gradient.sum((0, 1)), torch.zeros(method.outputs), atol=1e-5, rtol=0)
    assert gradient.abs().max() > 1e-4
    as_is = built(config.model_copy(update={"centred": False}), log)
    assert abs(as_is(relevance + 2.5, batch).item() - as_is(relevance, batch).item()) > 1e-3


@EVERY
def test_a_running_mean_stands_in_after_training(name: str, log: Log) -> None:
    """The same batch seen often: evaluation gives the loss that training had; a page alone needs no batch."""
    config = LEVELLED[name]
    method = built(config, log)
    batch, relevance = outputs(log, config, method.outputs)
    expected = shown_mean(relevance, batch)
    for _ in range(200):
        method.from_mean(relevance, batch)
    torch.testing.assert_close(method.centre, expected)
    trained = method.click_scores(relevance, batch)
    method.eval()
    torch.testing.assert_close(method.click_scores(relevance, batch), trained, rtol=1e-4, atol=1e-4)
    alone = method.click_scores(relevance[:1], ClickBatch(**{**vars(batch), **row_of(batch, 0)}))
    torch.testing.assert_close(alone, trained[:1], rtol=1e-4, atol=1e-4)


def row_of(batch: ClickBatch, row: int) -> dict[str, Tensor]:
    """The padded tensors of one row."""
    names = ("position", "clicks", "impressions", "where")
    return {name: getattr(batch, name)[row : row + 1] for name in names}


def test_the_mean_is_a_level_by_another_name(log: Log) -> None:
    """f - m + l is f + (l - m): the model is the same, only the way to it differs."""
    one, other = built(Naive(loss="sigmoid"), log).eval(), built(Naive(loss="sigmoid", centred=False), log).eval()
    batch, relevance = outputs(log, Naive(), 1)
    with torch.no_grad():
        one.centre.fill_(0.7)
        other.level.sub_(0.7)
    z, same = (method.click_scores(relevance, batch)[batch.where] for method in (one, other))
    torch.testing.assert_close(z, same)


def test_list_losses_have_no_level(log: Log) -> None:
    for config in (Naive(), IPW()):
        method = built(config, log)
        batch, relevance = outputs(log, config, 1)
        assert method.from_mean(relevance, batch) is relevance
        assert method.level is None


def test_pointwise_ipw_starts_at_the_click_rate_over_the_propensity() -> None:
    facts = Facts(
        pages=10_000,
        impressions=20_000,
        clicks=3_000,
        queries=1,
        clickless=0,
        by_rank=np.array([[10_000, 10_000], [2_000, 1_000]]),
    )
    method = IPW(loss="sigmoid", propensity=(1.0, 0.25)).build(Context(2, facts))
    expected = (2_000 / 10_000 + 1_000 / 10_000 / 0.25) / 2
    assert method.level.sigmoid().item() == pytest.approx(expected, abs=1e-3)


def test_every_method_that_fits_levels_can_be_centred(log: Log) -> None:
    for name, kind in METHODS.items():
        method = kind().build(LogData(log).context(kind()))
        if method.fits_levels:
            assert isinstance(kind(), LevelConfig), name


BY_RANK = np.array([[900.0, 800.0, 700.0], [270.0, 120.0, 35.0]])
SHOWN = Facts(pages=900, impressions=2400, clicks=425, queries=3, clickless=500, by_rank=BY_RANK)
STARTS = ("additive", "gradient_reversal", "tower_dropout", "edot", "einter", "pal", "tal", "regression_em")


def rates_by_hand() -> list[float]:
    """Clicks over impressions of each rank, with ten more impressions at the rate of the log."""
    rate = 425 / 2400
    return [(c + 10 * rate) / (n + 10) for n, c in BY_RANK.T.tolist()]


def one_page(ranks: int) -> ClickBatch:
    """A page of results at every rank."""
    one = torch.ones(1, ranks)
    rows = torch.arange(ranks)
    return ClickBatch(Vectors(torch.zeros(ranks, 1)), rows, rows, rows[None] + 1, 0 * one, one, one > 0)


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("bias", ["table", "tower"])
def test_before_training_every_rank_is_clicked_as_often_as_in_the_log(name: str, bias: str) -> None:
    """Relevance 0 everywhere: what is clicked how often is no matter of relevance from the first step on."""
    config = METHODS[name](**{"bias": bias} | ({"form": "gradient"} if name == "regression_em" else {}))
    method = config.build(Context(3, SHOWN)).eval()
    if bias == "tower":  # its network is drawn; where it adds nothing
        for module in method.modules():
            if isinstance(module, BiasTower):
                module.layers[-1].weight.data.zero_()
                module.layers[-1].bias.data.zero_()
    if name == "einter":
        method.rank_weight.data.zero_()
    found = method.click_probability(torch.zeros(1, 3, method.outputs), one_page(3))
    assert found.flatten().tolist() == pytest.approx(rates_by_hand(), rel=2e-3)


@pytest.mark.parametrize("name", ["naive", "bal", "approximated_dr"])
def test_one_level_starts_at_the_mean_rate(name: str) -> None:
    config = METHODS[name](**({"loss": "sigmoid"} if name == "naive" else {}))
    method = config.build(Context(3, SHOWN)).eval()
    found = method.click_probability(torch.zeros(1, 3, method.outputs), one_page(3))
    assert found.flatten().tolist() == pytest.approx([sum(rates_by_hand()) / 3] * 3, rel=1e-4)


def test_a_log_without_a_click_has_a_level_that_is_finite() -> None:
    nothing = Facts(pages=9, impressions=18, clicks=0, queries=1, clickless=9, by_rank=np.array([[9, 9], [0, 0]]))
    every = Facts(pages=9, impressions=18, clicks=18, queries=1, clickless=0, by_rank=np.array([[9, 9], [9, 9]]))
    for facts in (nothing, every):
        assert Context(2, facts).click_rates().logit().isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_a_linear_ranker_has_no_opinion_before_it_learns(name: str, log: Log) -> None:
    """What is drawn would stay in the score for hundreds of steps."""
    method = METHODS[name]().build(
        Context(6, LogData(log).facts(), propensities=Examination.of(np.ones(6), "numbers"))
    )
    tower = Linear().build(4, method.outputs, method.at_zero)
    assert (tower(torch.randn(5, 4)) == 0).all()


@pytest.mark.parametrize("name", ["edot", "einter", "vectorization"])
def test_embeddings_start_apart_and_their_relevance_at_nothing(name: str, log: Log) -> None:
    """Coordinates of relevance start alike: were those of bias alike too, all but one would stay unused."""
    method = METHODS[name]().build(LogData(log).context(METHODS[name]()))
    tower = MLP(sizes=(8,)).build(4, method.outputs, method.at_zero)
    assert (tower(torch.randn(5, 4)) == 0).all()
    table = next(iter((method.bias if name != "vectorization" else method.observation).tables.values())).detach()
    d = method.config.dimension
    assert len(set(table[0, :d].tolist())) == d
    assert (table[:, :d] == table[0, :d]).all()  # and says nothing of ranks yet
