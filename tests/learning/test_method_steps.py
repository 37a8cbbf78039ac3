"""One step of a method, written out: which side divides which, what stays where nothing is shown, what is read."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from unskew.examination import Examination
from unskew.learning.methods import (
    DLA,
    IPW,
    Affine,
    Context,
    DoublyRobust,
    Labeled,
    MethodConfig,
    MixEM,
    RegressionEM,
)
from unskew.learning.methods.propensities import randomized_propensity
from unskew.logs.counts.reduction import Facts
from unskew.tables.lists.inputs import Vectors
from unskew.types import Array, ClickBatch, Lists, Log
from unskew_reproductions.methods import PairDebias

torch.set_num_threads(1)

SCORES = [[1.0, 2.0, 0.0], [0.5, -0.5, 1.5], [-0.3, 0.2, 0.9]]
CLICKS = [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def example(clicks: list[list[float]] = CLICKS) -> ClickBatch:
    """Pages without padding, results in the order of their ranks."""
    c = torch.tensor(clicks)
    return ClickBatch(
        input=Vectors(torch.zeros(c.numel(), 1)),
        rows=torch.arange(c.numel()),
        packed=torch.arange(c.numel()),
        position=torch.arange(1, c.shape[1] + 1).expand(c.shape),
        clicks=c,
        impressions=torch.ones_like(c),
        where=torch.ones_like(c, dtype=torch.bool),
    )


def sig(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def outputs(scores: list[list[float]] = SCORES) -> Tensor:
    return torch.tensor(scores).unsqueeze(-1)


def lsoft(rows: list[list[float]], labels: list[list[float]]) -> float:
    """- sum u log softmax(z) / sum u."""
    pairs = [(z, u, row) for row, own in zip(rows, labels, strict=True) for z, u in zip(row, own, strict=True)]
    return -sum(u * (z - math.log(sum(map(math.exp, row)))) for z, u, row in pairs) / sum(u for _, u, _ in pairs)


# ---- dla and ipw


@pytest.mark.parametrize("limit", [None, 1.2])
def test_dla_weighs_and_clips(limit: float | None) -> None:
    """w = p_1 / p_k of each list, p = exp(z), and at most the limit; both losses."""
    e, s = [0.5, 0.1, -0.6], [[2.0, 1.0, 0.5], [0.5, 1.0, -0.5], [1.0, -1.0, 0.0]]
    method = DLA(max_weight=limit).build(Context(3))
    method.bias.tables["position"].data.copy_(torch.tensor(e))

    def weights(z: list[float]) -> list[float]:
        return [min(math.exp(z[0] - x), limit or math.inf) for x in z]

    by_e = [[c * w for c, w in zip(row, weights(e), strict=True)] for row in CLICKS]
    by_s = [[c * w for c, w in zip(row, weights(z), strict=True)] for row, z in zip(CLICKS, s, strict=True)]
    expected = lsoft(s, by_e) + lsoft([e] * 3, by_s)
    assert method(outputs(s), example()).item() == pytest.approx(expected, rel=1e-5)


def test_ipw_weighs_clicks_under_every_loss() -> None:
    """Weights 1, 2, 4 by rank: pointwise as labels, pairs by their clicked result."""
    weights, total, pairs, weight = [1.0, 2.0, 4.0], 0.0, 0.0, 0.0
    for s, c in zip(SCORES, CLICKS, strict=True):
        for k in range(3):
            label = weights[k] * c[k]
            total -= label * math.log(sig(s[k])) + (1 - label) * math.log(1 - sig(s[k]))
        for i, j in ((i, j) for i in range(3) for j in range(3) if c[i] > c[j]):
            pairs += weights[i] * math.log(1 + math.exp(s[j] - s[i]))
            weight += weights[i]
    theta = (0.8, 0.4, 0.2)
    pointwise = IPW(propensity=theta, loss="sigmoid", centred=False).build(Context(3, FACTS))
    pointwise.level.data.zero_()
    assert pointwise(outputs(), example()).item() == pytest.approx(total / 3, rel=1e-5)
    pairwise = IPW(propensity=theta, loss="pairwise").build(Context(3, FACTS))
    assert pairwise(outputs(), example()).item() == pytest.approx(pairs / weight, rel=1e-5)


# ---- pair_debias


def test_pair_debias_tells_the_clicked_side_from_the_skipped_one() -> None:
    """t+ and t- differ: loss, both sums and both moves by the formulas of the paper, pair by pair."""
    plus, minus, step, p = [1.0, 0.8, 0.5], [1.0, 1.3, 0.6], 0.3, 0.5
    method = PairDebias(step=step, regularization=p).build(Context(3)).train()
    method.clicked.copy_(torch.tensor(plus))
    method.unclicked.copy_(torch.tensor(minus))
    loss, pairs, by_clicked, by_skipped = 0.0, 0, [0.0] * 3, [0.0] * 3
    for s, c in zip(SCORES, CLICKS, strict=True):
        for i in (i for i in range(3) if c[i]):
            for j in (j for j in range(3) if not c[j]):
                l_ij = math.log(1 + math.exp(-(s[i] - s[j])))
                loss, pairs = loss + l_ij / (plus[i] * minus[j]), pairs + 1
                by_clicked[i] += l_ij / minus[j]
                by_skipped[j] += l_ij / plus[i]
    assert method(outputs(), example()).item() == pytest.approx(loss / pairs, rel=1e-5)
    for found, old, total in ((method.clicked, plus, by_clicked), (method.unclicked, minus, by_skipped)):
        moved = [(1 - step) * t + step * (x / total[0]) ** (1 / (p + 1)) for t, x in zip(old, total, strict=True)]
        assert found.tolist() == pytest.approx(moved, rel=1e-5)


def test_pair_debias_clicks_by_the_ratio_of_the_clicked_side() -> None:
    method = PairDebias().build(Context(3)).eval()
    method.clicked.copy_(torch.tensor([1.0, 0.8, 0.5]))
    method.unclicked.copy_(torch.tensor([1.0, 1.3, 0.6]))
    expected = [[s + math.log(t) for s, t in zip(row, (1.0, 0.8, 0.5), strict=True)] for row in SCORES]
    assert method.click_scores(outputs(), example()).tolist() == [pytest.approx(row, abs=1e-5) for row in expected]


# ---- click models


def test_mixem_clicks_by_all_four_models() -> None:
    e, t = [0.4, -0.2, -0.7], [-1.0, 0.3, 0.6]
    method = MixEM(centred=False).build(Context(3)).eval()
    with torch.no_grad():
        method.bias.tables["position"].copy_(torch.tensor(e))
        method.offsets.copy_(torch.tensor(t))
    found = method.click_scores(outputs(), example()).exp()
    for row, s in zip(found.tolist(), SCORES, strict=True):
        rates = [
            sum(map(sig, (t[0], t[1] + b, t[2] + f, b + f))) / 4 for f, b in zip(s, e, strict=True)
        ]  # each model as likely as the others
        assert [x / row[0] for x in row] == pytest.approx([x / rates[0] for x in rates], rel=1e-5)


def affine(config: Affine) -> torch.nn.Module:
    method = config.build(Context(3))
    for name, values in {"plus": [0.9, 0.7, 0.6], "minus": [0.3, 0.2, 0.1], "rate": [0.5, 0.4, 0.3]}.items():
        getattr(method, name).copy_(torch.tensor(values))
    return method


def test_affine_clicks_what_is_relevant_by_z_plus() -> None:
    method = affine(Affine(relevance="sigmoid")).eval()
    found = method.click_scores(outputs(), example()).exp()
    for row, s in zip(found.tolist(), SCORES, strict=True):
        r = [sig(x - sum(s) / 3) for x in s]
        plus, minus = (0.9, 0.7, 0.6), (0.3, 0.2, 0.1)
        assert row == pytest.approx([plus[k] * r[k] + minus[k] * (1 - r[k]) for k in range(3)], rel=1e-5)


def test_affine_leaves_ranks_that_a_batch_does_not_show() -> None:
    method = affine(Affine(step=0.5)).train()
    before = {name: value.clone() for name, value in method.named_buffers()}
    two = torch.tensor([[True, True, False]] * 3)
    batch = replace(example(), where=two, packed=two.flatten().nonzero().squeeze(-1))
    method(outputs(), batch)
    for name, value in method.named_buffers():
        assert value[2] == before[name][2], name
        assert (value[:2] != before[name][:2]).all(), name


# ---- regression_em


@pytest.mark.parametrize(("clicked", "theta"), [(1.0, 1 - 1e-6), (0.0, 1e-6)])
def test_regression_em_keeps_theta_apart_from_0_and_1(clicked: float, theta: float) -> None:
    """All clicked, or none of what is relevant for certain: theta goes to its bound, and the loss stays finite."""
    method = RegressionEM(step=1.0, centred=False).build(Context(3)).train()
    batch, relevance = example([[clicked] * 3]), torch.full((1, 3, 1), 40.0)
    method(relevance, batch)
    found = method.examination.tables["position"]
    assert found.isfinite().all()
    assert found.sigmoid().tolist() == pytest.approx([theta] * 3, abs=1e-7)
    again = method(relevance.requires_grad_(), batch)
    again.backward()
    assert again.isfinite()
    assert relevance.grad.isfinite().all()


# ---- labeled


def grades() -> Log:
    """One query of four documents with grades 3, 0, 2, 1, shown (0, 1) once, (2, 0) three times, (1, 3) twice."""
    lists = Lists(np.zeros((4, 1), np.float32), np.array([0, 4]), np.array([3, 0, 2, 1], np.int16), np.array([7]))
    pages = [[0, 1], [2, 0], [1, 3], [2, 0], [1, 3], [2, 0]]
    return Log(
        lists,
        query=np.zeros(6, np.int64),
        offsets=np.arange(7) * 2,
        row=np.array(pages).ravel(),
        position=np.tile([1, 2], 6).astype(np.int16),
        click=np.zeros(12, np.uint8),
    )


def test_labeled_learns_from_the_page_that_was_shown_most_or_from_every_document() -> None:
    shown, every = Labeled().table(grades()), Labeled(documents="all").table(grades())
    assert (shown.row.tolist(), shown.clicks.tolist()) == ([[2, 0]], [[2, 3]])
    assert (every.row.tolist(), every.clicks.tolist()) == ([[0, 1, 2, 3]], [[3, 0, 2, 1]])
    assert (every.position.tolist(), every.impressions.tolist()) == ([[1, 2, 3, 4]], [[1, 1, 1, 1]])


# ---- propensities


def test_shuffled_lists_without_a_shuffled_rank_1_say_nothing_of_it() -> None:
    """Clicks at rank k over those at rank 1, where rank 1 is shuffled too; the last page pins its first result."""
    lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.zeros(2, np.int16), np.array([0]))
    shuffled, times = [[1, 1], [1, 1], [1, 1], [1, 1], [0, 1]], 100

    def log(*clicks: list[int]) -> Log:
        return Log(
            lists,
            query=np.zeros(5 * times, np.int64),
            offsets=np.arange(5 * times + 1) * 2,
            row=np.tile([0, 1], 5 * times),
            position=np.tile([1, 2], 5 * times).astype(np.int16),
            click=np.tile(np.array(clicks, np.uint8).ravel(), times),
            randomized=np.tile(np.array(shuffled, bool).ravel(), times),
        )

    equal = log([1, 1], [1, 0], [0, 1], [1, 1], [1, 1])
    assert randomized_propensity(equal).theta == pytest.approx([1, 3 / 3], rel=0.01)
    pinned = log([1, 0], [1, 0], [0, 1], [1, 0], [1, 1])
    assert randomized_propensity(pinned).theta == pytest.approx([1, 1 / 3], rel=0.01)


MEASURED = Examination.of(np.array([0.8, 0.4, 0.1]), "numbers")
FACTS = Facts(pages=5, impressions=15, clicks=9, queries=2, clickless=1, by_rank=np.full((2, 3), 5.0))


@pytest.mark.parametrize("config", [IPW, DoublyRobust])
@pytest.mark.parametrize(
    ("propensity", "expected"),
    [("randomized", [1, 0.5, 0.125]), ("oracle", [1, 0.5, 0.125]), ((0.5, 0.3, 0.2), [1, 0.6, 0.4])],
)
def test_propensities_are_those_measured_on_the_log_or_given(
    config: type[MethodConfig], propensity: str | tuple[float, ...], expected: list[float]
) -> None:
    asked = config.model_validate({"propensity": propensity})
    method = asked.build(Context(3, FACTS, propensities=MEASURED if isinstance(propensity, str) else None))
    assert method.propensity().tolist() == pytest.approx(expected)


@pytest.mark.parametrize("theta", [(1.0, 0.5, 0.125), (1.0, 1.0, 1.0)])
def test_doubly_robust_takes_the_propensities_of_ipw(theta: tuple[float, ...]) -> None:
    """On pages that were seen enough its labels are clicks over propensity: its ranker has the gradient of ipw."""
    context = Context(3, FACTS, propensities=Examination.of(np.array(theta), "numbers"))
    gradients: list[Array] = []
    for config in (IPW(), DoublyRobust(clip=1e-6)):
        method, relevance = config.build(context), torch.tensor(SCORES).unsqueeze(-1)
        if isinstance(config, DoublyRobust):  # the regression tells nothing apart
            relevance = torch.cat([relevance, torch.zeros_like(relevance)], dim=-1)
        relevance.requires_grad_()
        method(relevance, example()).backward()
        gradients.append(relevance.grad[..., 0].numpy())
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)
