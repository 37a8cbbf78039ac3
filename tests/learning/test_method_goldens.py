"""Golden values and properties of the methods with vectors, towers, trust and decoupling, by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from torch import Tensor, nn

import unskew
from unskew.errors import ConfigError, DataError
from unskew.learning.factors import BiasTower
from unskew.learning.fitting.loop import Fit, Trainer, fit_side
from unskew.learning.fitting.training import Training, move_along
from unskew.learning.losses import lipschitz_penalty, softmax_loss
from unskew.learning.methods import (
    LBD,
    PAL,
    TAL,
    Additive,
    Affine,
    Context,
    EDot,
    EInter,
    MethodConfig,
    MethodModule,
    MixEM,
    Vectorization,
)
from unskew.learning.methods.affine import list_relevance
from unskew.learning.methods.base_vectors import base_loss, base_vector
from unskew.learning.methods.mixem import mixture_loss
from unskew.learning.rankers import MLP
from unskew.learning.rankers.networks import WithSide, penalty_of
from unskew.learning.rankers.networks import network as network_of
from unskew.learning.scoring.model import Model, build_tower
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import reduce_log
from unskew.logs.presentation import fit_presentation
from unskew.measuring import ndcg_metric
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.inputs import Vectors
from unskew.types import ClickBatch, Log
from unskew.workflows.runs.data import LogData
from unskew_reproductions.methods import AffineList, LBDBer, LBDLips, LBDReleased, Projected, Unlimited
from unskew_reproductions.methods.found_vectors import label_vector
from unskew_reproductions.methods.lbd_released import published_penalty

torch.set_num_threads(1)

SCORES = [[1.0, 2.0, 0.0], [0.5, -0.5, 1.5]]
CLICKS = [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]


class Given:
    """An input that gives these very documents, so that a loss can differentiate by them."""

    def __init__(self, documents: Tensor) -> None:
        self.documents = documents

    def gather(self, rows: Tensor) -> Tensor:
        return self.documents


def example(clicks: list[list[float]] = CLICKS, documents: Tensor | None = None) -> ClickBatch:
    """Pages without padding, results in the order of their ranks."""
    c = torch.tensor(clicks)
    return ClickBatch(
        input=Vectors(torch.zeros(c.numel(), 1) if documents is None else documents),
        rows=torch.arange(c.numel() if documents is None else len(documents)),
        packed=torch.arange(c.numel()),
        position=torch.arange(1, c.shape[1] + 1).expand(c.shape),
        clicks=c,
        impressions=torch.ones_like(c),
        where=torch.ones_like(c, dtype=torch.bool),
    )


def everywhere(x: Tensor) -> Tensor:
    return torch.ones_like(x, dtype=torch.bool)


def sig(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def assign(parameter: Tensor, values: object) -> None:
    with torch.no_grad():
        parameter.copy_(torch.as_tensor(values, dtype=parameter.dtype))


# ---- MixEM ---------------------------------------------------------------------------------------------------


def test_mixture_loss_of_the_public_documentation() -> None:
    """TensorFlow Ranking's documentation of its mixture EM loss prints 1.3198698 and, with a second list, the mean
    1.909512."""
    z = torch.tensor([[[0.6, 0.8], [0.5, 0.8]], [[0.9, 0.2], [0.9, 0.2]]])
    z = torch.cat([z, torch.tensor([[[math.nan], [0.4]], [[math.nan], [0.8]]])], dim=-1)
    clicks = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    where = torch.tensor([[True, True, False], [True, True, True]])
    losses = mixture_loss(z, clicks, where=where)
    assert losses[0].item() == pytest.approx(1.3198698, abs=1e-6)
    assert losses.mean().item() == pytest.approx(1.909512, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_mixture_loss_by_hand(temperature: float) -> None:
    method = MixEM(temperature=temperature, centred=False).build(Context(3))
    e, t = [0.4, -0.2, -0.7], [-1.0, 0.3, 0.6]
    assign(method.bias.tables["position"], e)
    assign(method.offsets, t)
    total = 0.0
    for s, c in zip(SCORES, CLICKS, strict=True):
        models = [
            [t[0]] * 3,
            [t[1] + x for x in e],
            [t[2] + x for x in s],
            [x + y for x, y in zip(e, s, strict=True)],
        ]
        losses = [
            -sum(math.log(sig(z)) if k else math.log(1 - sig(z)) for z, k in zip(zs, c, strict=True))
            for zs in models
        ]
        share = [math.exp(-x / temperature) for x in losses]
        total += sum(p * x for p, x in zip(share, losses, strict=True)) / sum(share)
    loss = method(torch.tensor(SCORES).unsqueeze(-1), example())
    assert loss.item() == pytest.approx(total / 2, abs=1e-5)


def test_mixture_shares_are_constants() -> None:
    """The gradient is that of sum p l with p as numbers: no gradient runs through the assignment."""
    z = torch.randn(4, 1, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    c = torch.tensor([[1.0, 0.0, 0.0]])
    mixture_loss(z, c, where=everywhere(c)).sum().backward()
    bce = nn.functional.binary_cross_entropy_with_logits(z, c.expand_as(z), reduction="none").sum(-1)
    share = torch.softmax(-bce, dim=0).unsqueeze(-1)
    torch.testing.assert_close(z.grad, (share * (z.sigmoid() - c)).detach())


def test_mixem_learns_from_pages_without_a_click() -> None:
    batch = example([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    relevance = torch.tensor(SCORES).unsqueeze(-1)
    alone = MixEM(centred=False).build(Context(3))(relevance[:1], example([[0.0, 1.0, 0.0]]))
    assert MixEM(centred=False).build(Context(3))(relevance, batch).item() != pytest.approx(alone.item())


def test_mixem_starts_at_the_click_rate(log: Log) -> None:
    method = MixEM().build(LogData(log).context(MixEM()))
    rates = method.bias.tables["position"].sigmoid()
    for rank, rate in enumerate(rates.tolist(), start=1):
        shown, rest = log.position == rank, 10 * log.click.mean()
        assert rate == pytest.approx((log.click[shown].sum() + rest) / (shown.sum() + 10), rel=1e-4)
    assert method.offsets.sigmoid().tolist() == pytest.approx([rates.mean().item(), 0.5, rates.mean().item()])


# ---- Additive, EDot, EInter ----------------------------------------------------------------------------------


def test_additive_by_hand() -> None:
    e = [0.3, -0.1, -0.8]
    total = listwise = 0.0
    for s, c in zip(SCORES, CLICKS, strict=True):
        z = [a + b for a, b in zip(s, e, strict=True)]
        total -= sum(math.log(sig(x)) if k else math.log(1 - sig(x)) for x, k in zip(z, c, strict=True))
        listwise -= sum(k * (x - math.log(sum(map(math.exp, z)))) for x, k in zip(z, c, strict=True))
    for config, expected in ((Additive(centred=False), total / 2), (Additive(loss="softmax"), listwise / 3)):
        method = config.build(Context(3))
        assign(method.bias.tables["position"], e)
        loss = method(torch.tensor(SCORES).unsqueeze(-1), example())
        assert loss.item() == pytest.approx(expected, abs=1e-6)
        (curve,) = method.curves()
        assert curve.values == pytest.approx([1, math.exp(-0.4), math.exp(-1.1)], abs=1e-6)
        odds = config.loss == "sigmoid"
        assert curve.what == ("odds of a click" if odds else "examination")
        assert (method.propensity() is None) == odds


def test_einter_without_interaction_is_additive() -> None:
    """B = 0: the document gives b_r . r, the rank b_v . v + b."""
    torch.manual_seed(0)
    einter, additive = EInter(dimension=4).build(Context(3)), Additive().build(Context(3))
    assert einter.interaction.abs().sum() == 0  # where training starts
    v = torch.randn(3, 4)
    assign(einter.bias.tables["position"], torch.cat([v, torch.full((3, 1), 0.7)], dim=-1))
    assign(einter.rank_weight, torch.randn(4))
    assign(additive.bias.tables["position"], v @ einter.rank_weight + 0.7)
    r = torch.randn(2, 3, 4)
    f = (r @ einter.relevance_weight).unsqueeze(-1)
    assert einter(r, example()).item() == pytest.approx(additive(f, example()).item(), abs=1e-6)


@pytest.mark.parametrize(("canonical", "served"), [(1, 0), (2, 1), (99, 2)])
def test_edot_and_einter_logits_by_hand_and_score_at_a_canonical_rank(canonical: int, served: int) -> None:
    """Past the last rank it is the last."""
    torch.manual_seed(0)
    r, batch, d = torch.randn(2, 3, 2), example(), range(2)
    for config in (
        EDot(dimension=2, canonical=canonical, centred=False),
        EInter(dimension=2, canonical=canonical, centred=False),
    ):
        method = config.build(Context(3))
        assert method.outputs == 2
        if isinstance(config, EInter):
            assign(method.interaction, torch.randn(2, 2))
        level = [0.4, -0.3, 0.1]
        assign(method.bias.tables["position"][:, 2], level)
        v = method.bias.tables["position"][:, :2].tolist()

        def z(
            q: int,
            k: int,
            rank: int,
            v: list[list[float]] = v,
            level: list[float] = level,
            method: nn.Module = method,
        ) -> float:
            x = r[q, k].tolist()
            if not isinstance(config, EInter):  # noqa: B023
                return sum(x[i] * v[rank][i] for i in d) + level[rank]
            both = sum(x[i] * method.interaction[i, j].item() * v[rank][j] for i in d for j in d)
            single = [
                x[i] * method.relevance_weight[i].item() + v[rank][i] * method.rank_weight[i].item() for i in d
            ]
            return both + sum(single) + level[rank]

        where = torch.tensor([[True, True, True], [True, True, False]])
        shown, first = method.click_probability(r, batch), method.score(r, where)
        for q, k in itertools.product(range(2), range(3)):
            assert shown[q, k].item() == pytest.approx(sig(z(q, k, k)), abs=1e-5)
            assert first[q, k].item() == pytest.approx(z(q, k, served) if where[q, k] else 0.0, abs=1e-5)
        torch.testing.assert_close(method.click_scores(r, batch).exp(), shown)
        loss = nn.functional.binary_cross_entropy(shown, batch.clicks, reduction="sum") / 2
        torch.testing.assert_close(method(r, batch), loss)


# ---- PAL and TAL ---------------------------------------------------------------------------------------------


def test_pal_is_a_product_of_sigmoids() -> None:
    method, e = PAL(centred=False).build(Context(3)), [2.0, 0.5, -1.0]
    assign(method.seen.tables["position"], e)
    total = 0.0
    for s, c in zip(SCORES, CLICKS, strict=True):
        p = [sig(a) * sig(b) for a, b in zip(e, s, strict=True)]
        total -= sum(math.log(x) if k else math.log(1 - x) for x, k in zip(p, c, strict=True))
    relevance = torch.tensor(SCORES).unsqueeze(-1)
    assert method(relevance, example()).item() == pytest.approx(total / 2, abs=1e-6)
    assert method.click_probability(relevance, example())[0, 1].item() == pytest.approx(sig(0.5) * sig(2.0))
    assert method.propensity().tolist() == pytest.approx([1, sig(0.5) / sig(2.0), sig(-1.0) / sig(2.0)])


def test_tal_in_log_space_is_the_direct_formula() -> None:
    method, u, v = TAL(centred=False).build(Context(3)), [1.5, 0.2, -0.4], [-0.5, -2.0, 0.3]
    assign(method.relevant.tables["position"], u)
    assign(method.trusted.tables["position"], v)
    assign(method.level, 0.0)
    plus = [sig(x) for x in u]
    minus = [a * sig(b) for a, b in zip(plus, v, strict=True)]
    total = 0.0
    for s, c in zip(SCORES, CLICKS, strict=True):
        p = [plus[k] * sig(s[k]) + minus[k] * (1 - sig(s[k])) for k in range(3)]
        total -= sum(math.log(x) if k else math.log(1 - x) for x, k in zip(p, c, strict=True))
    assert method(torch.tensor(SCORES).unsqueeze(-1), example()).item() == pytest.approx(total / 2, abs=1e-6)
    alpha, beta = method.affine()
    assert alpha.tolist() == pytest.approx([a - b for a, b in zip(plus, minus, strict=True)])
    assert beta.tolist() == pytest.approx(minus)
    assert method.propensity() is None
    assert [curve.values for curve in method.curves()] == [
        pytest.approx(each.tolist(), abs=1e-6) for each in (alpha, beta)
    ]


@pytest.mark.parametrize("size", [1.0, 10.0, 1e3])
def test_tal_never_rewards_irrelevance(size: float) -> None:
    method = TAL().build(Context(50))
    torch.manual_seed(0)
    assign(method.relevant.tables["position"], size * torch.randn(50))
    assign(method.trusted.tables["position"], size * torch.randn(50))
    alpha, beta = method.affine()
    assert (alpha >= 0).all()
    assert (beta >= 0).all()
    batch = example([[0.0] * 50])
    low, high = (method.click_scores(torch.full((1, 50, 1), s), batch) for s in (-3.0, 3.0))
    assert (high >= low).all()


# ---- the two affine methods ----------------------------------------------------------------------------------


def test_list_relevance_by_hand() -> None:
    s = [0.3, -0.4, 1.1]
    scores, where = torch.tensor([[*s, 9.0]]), torch.tensor([[True, True, True, False]])
    e = [math.exp(x) for x in s]
    mean = sum(s) / 3
    expected = {
        "minmax": [(x - min(e)) / (max(e) - min(e)) for x in e],
        "sigmoid": [sig(x - mean) for x in s],
        "softmax": [x / sum(e) for x in e],
    }
    for kind, values in expected.items():
        assert list_relevance(scores, where, kind)[0, :3].tolist() == pytest.approx(values, abs=1e-6)
        far = list_relevance(torch.tensor([[1e4, -1e4, 0.0]]), where[:, :3], kind)
        assert far.isfinite().all()
        assert ((far >= 0) & (far <= 1)).all()
    alike = torch.zeros(1, 3)
    assert list_relevance(alike, everywhere(alike), "minmax").tolist() == [
        [0.5, 0.5, 0.5]
    ]  # nothing is told apart


def test_affine_em_step_and_labels_by_hand() -> None:
    """Two ranks, two rankings of 10 and 4 pages."""
    method = Affine(relevance="sigmoid", step=0.5).build(Context(2)).train()
    z = {"plus": [0.8, 0.6], "minus": [0.3, 0.1], "rate": [0.5, 0.5]}
    for name, values in z.items():
        assign(getattr(method, name), values)
    scores, clicks, shown = [[0.7, -0.2], [-0.5, 0.4]], [[6.0, 1.0], [1.0, 3.0]], [10.0, 4.0]
    batch = replace(example(clicks), impressions=torch.tensor([[10.0, 10.0], [4.0, 4.0]]))
    loss = method(torch.tensor(scores).unsqueeze(-1), batch).item()
    after: dict[str, list[float]] = {name: [] for name in z}
    for k in range(2):
        plus, minus = z["plus"][k], z["minus"][k]
        sums = dict.fromkeys(("hit", "miss", "off", "none"), 0.0)
        for s, c, n in zip(scores, clicks, shown, strict=True):
            r = sig(s[k] - sum(s) / 2)
            click = plus * r + minus * (1 - r)
            given, without = r * plus / click, r * (1 - plus) / (1 - click)
            sums["hit"] += c[k] * given
            sums["miss"] += (n - c[k]) * without
            sums["off"] += c[k] * (1 - given)
            sums["none"] += (n - c[k]) * (1 - without)
        after["plus"].append((plus + sums["hit"] / (sums["hit"] + sums["miss"])) / 2)
        after["minus"].append((minus + sums["off"] / (sums["off"] + sums["none"])) / 2)
        after["rate"].append((0.5 + sum(c[k] for c in clicks) / 14) / 2)
    for name, values in after.items():
        assert getattr(method, name).tolist() == pytest.approx(values, abs=1e-6)
    total = weight = 0.0
    for s, c, n in zip(scores, clicks, shown, strict=True):
        for k in range(2):
            low = min(after["minus"][k], after["rate"][k])
            label = max(0.0, n * (c[k] / n - low) / (after["plus"][k] - low))
            total -= label * (s[k] - math.log(sum(map(math.exp, s))))
            weight += label
    assert loss == pytest.approx(total / weight, abs=1e-6)


def test_affine_em_finds_the_click_model_it_is_given() -> None:
    """Relevance known and certain: the fixed point is the click rate of relevant and of irrelevant documents."""
    method = Affine(step=1.0, relevance="minmax").build(Context(2)).train()
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).unsqueeze(-1)
    batch = replace(example([[70.0, 10.0], [20.0, 45.0]]), impressions=torch.full((2, 2), 100.0))
    for _ in range(3):
        method(scores, batch)
    assert method.plus.tolist() == pytest.approx([0.7, 0.45], abs=1e-5)
    assert method.minus.tolist() == pytest.approx([0.2, 0.1], abs=1e-5)
    assert [curve.values for curve in method.curves()] == [
        pytest.approx([0.5, 0.35], abs=1e-5),
        pytest.approx([0.2, 0.1], abs=1e-5),
    ]


def test_affine_never_takes_more_off_than_the_mean_rate() -> None:
    """m = min(z-, mean rate): at z- above the mean rate of the rank, labels would all be below 0."""
    method = Affine().build(Context(2)).eval()
    for name, values in {"plus": [0.9, 0.8], "minus": [0.5, 0.5], "rate": [0.6, 0.2]}.items():
        assign(getattr(method, name), values)
    batch = replace(example([[8.0, 3.0]]), impressions=torch.full((1, 2), 10.0))
    labels = [(8 - 5) / (0.9 - 0.5), (3 - 2) / (0.8 - 0.2)]
    s = [0.4, -0.3]
    total = -sum(y * (x - math.log(sum(map(math.exp, s)))) for x, y in zip(s, labels, strict=True))
    loss = method(torch.tensor([s]).unsqueeze(-1), batch).item()
    assert loss == pytest.approx(total / sum(labels), abs=1e-6)


def test_affine_list_is_vectorization_with_a_constant_coordinate() -> None:
    torch.manual_seed(0)
    affine = AffineList().build(Context(3))
    vector = Projected(dimension=2, project="pca").build(Context(3))
    a, b, f = torch.rand(3) + 0.1, torch.randn(3), torch.randn(2, 3, 1)
    assign(affine.stretch, a.log())
    assign(affine.shift, b)
    assign(vector.observation.tables["position"], torch.stack([a, b], dim=-1))
    r = torch.cat([f, torch.ones_like(f), torch.zeros(2, 3, 4)], dim=-1)
    assert affine(f, example()).item() == pytest.approx(vector(r, example()).item(), abs=1e-6)
    torch.testing.assert_close(affine.score(f, everywhere(f[..., 0])), f[..., 0])
    z = [[(a[k] * f[q, k, 0] + b[k]).item() for k in range(3)] for q in range(2)]
    loss = -sum(
        c * (x - math.log(sum(map(math.exp, row))))
        for row, clicks in zip(z, CLICKS, strict=True)
        for x, c in zip(row, clicks, strict=True)
    )
    assert affine(f, example()).item() == pytest.approx(loss / 3, abs=1e-6)


# ---- Vectorization -------------------------------------------------------------------------------------------


def test_vectorization_in_one_dimension_is_a_product() -> None:
    method, o = Projected(dimension=1, project="pca", levels=False).build(Context(3)), [1.0, 0.6, -0.2]
    assign(method.observation.tables["position"], [[x] for x in o])
    r = torch.tensor(SCORES).unsqueeze(-1)
    outputs = torch.cat([r, torch.zeros(2, 3, 2)], dim=-1)
    product = torch.tensor(SCORES) * torch.tensor(o)
    expected = softmax_loss(product, torch.tensor(CLICKS), where=everywhere(product))
    torch.testing.assert_close(method.click_scores(outputs, example()), product)
    torch.testing.assert_close(method(outputs, example()), expected)


def test_vectorization_has_a_level_apart_from_relevance() -> None:
    """z = r . o + l; l starts at the click rates, is not in the score, and relevance starts at 0."""
    facts = LogData(unskew.simulate(unskew.make_lists(20, 4, 6, seed=0), pages=500, seed=0, cutoff=3)).facts()
    context = Context(3, facts)
    method = Projected(dimension=2, project="pca").build(context)
    torch.testing.assert_close(method.level.tables["position"].detach(), context.click_rates().log())
    assign(method.level.tables["position"], [0.5, -1.0, 2.0])
    assign(method.observation.tables["position"], [[1.0, 2.0], [0.5, 0.0], [3.0, -1.0]])
    r = torch.tensor([[[0.3, 0.1], [1.0, 2.0], [-1.0, 0.5]]])
    batch, where = example([[1.0, 0.0, 0.0]]), everywhere(r[..., 0])
    z = method.click_scores(r, batch)[0].tolist()
    assert z == pytest.approx([0.3 + 0.2 + 0.5, 0.5 - 1.0, -3.0 - 0.5 + 2.0])
    before = method.score(r, where)
    assign(method.level.tables["position"], [9.0, 9.0, -9.0])
    torch.testing.assert_close(method.score(r, where), before)
    tower = build_tower(MLP(sizes=(4,)), 5, method)
    assert (tower(torch.randn(7, 5)) == 0).all()
    assert Vectorization(levels=False).build(context).level is None


def test_vectorization_contains_trust_bias() -> None:
    """Section 4.4: r = (g, 1), o = theta (eps+ - eps-, eps-) gives theta (eps+ g + eps- (1 - g))."""
    theta, plus, minus = [0.68, 0.61, 0.48], [0.98, 0.95, 0.9], [0.65, 0.4, 0.2]
    method = Vectorization(dimension=2, levels=False).build(Context(3))
    o = [[t * (a - b), t * b] for t, a, b in zip(theta, plus, minus, strict=True)]
    assign(method.observation.tables["position"], o)
    g = [[0.1, 0.9, 0.5], [0.0, 1.0, 0.3]]
    r = torch.stack([torch.tensor(g), torch.ones(2, 3)], dim=-1)
    got = method.click_scores(torch.cat([r, torch.zeros(2, 3, 4)], dim=-1), example())
    for q, k in itertools.product(range(2), range(3)):
        expected = theta[k] * (plus[k] * g[q][k] + minus[k] * (1 - g[q][k]))
        assert got[q, k].item() == pytest.approx(expected, abs=1e-6)


def test_base_vector_is_the_precision_weighted_mean_and_most_likely() -> None:
    rng = np.random.default_rng(0)
    mu, v = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 3, 2))
    where = np.array([[True, True, True], [True, False, True]])
    spoilt = [np.where(where[..., None], x, np.nan) for x in (mu, v)]
    got = base_vector(*(torch.from_numpy(x) for x in spoilt), torch.from_numpy(where)).numpy()
    for q in range(2):
        inside = [i for i in range(3) if where[q, i]]
        for j in range(2):
            precision = [math.exp(-v[q, i, j]) for i in inside]
            mean = sum(p * mu[q, i, j] for p, i in zip(precision, inside, strict=True)) / sum(precision)
            assert got[q, j] == pytest.approx(mean, abs=1e-12)

        def unlikely(o: np.ndarray, q: int = q, inside: list[int] = inside) -> float:
            return -float(norm.logpdf(o, mu[q, inside], np.exp(v[q, inside] / 2)).sum())

        best = minimize(unlikely, np.zeros(2), method="BFGS", options={"gtol": 1e-8})
        np.testing.assert_allclose(got[q], best.x, atol=1e-5)
    nothing = base_vector(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool))
    assert nothing.tolist() == [[0, 0, 0]]


def test_base_loss_by_hand_and_by_likelihood() -> None:
    rng = np.random.default_rng(1)
    mu, v, o = rng.normal(size=(3, 1, 2, 2))  # one list of two results in two dimensions
    n = [3.0, 1.0]
    got = base_loss(*map(torch.from_numpy, (mu, v, o)), where=torch.ones(1, 2) > 0, weights=torch.tensor([n]))
    total = 0.0
    for i in range(2):
        for j in range(2):
            total += n[i] / 2 * ((mu[0, i, j] - o[0, i, j]) ** 2 * math.exp(-v[0, i, j]) + v[0, i, j])
    assert got.item() == pytest.approx(total / 4, abs=1e-12)
    likelihood = norm.logpdf(o, mu, np.exp(v / 2)).mean(-1) + math.log(2 * math.pi) / 2
    assert got.item() == pytest.approx(-2 * (likelihood[0] * n).sum() / 4, abs=1e-12)


def test_base_model_learns_mean_and_spread_of_what_it_sees() -> None:
    """One document at rank 1 three times and at rank 2 once: mu and exp v are mean and variance of its o."""
    mu, v = torch.zeros(1, 2, 1, requires_grad=True), torch.zeros(1, 2, 1, requires_grad=True)
    o, n = torch.tensor([[[1.0], [5.0]]]), torch.tensor([[3.0, 1.0]])
    loss = base_loss(mu + 2.0, v + math.log(3.0), o, where=n > 0, weights=n)
    loss.backward()
    assert mu.grad.sum().item() == pytest.approx(0, abs=1e-6)  # mean 2, variance (3 * 1 + 9) / 4 = 3
    assert v.grad.sum().item() == pytest.approx(0, abs=1e-6)


def test_vectorization_scores_by_the_base_vector_once_it_is_ready() -> None:
    method = Vectorization(dimension=2).build(Context(3)).eval()
    assign(method.common.mean, [0.5, -1.0])
    r = torch.tensor([[[1.0, 2.0], [3.0, 1.0], [9.0, 9.0]]])
    mu, v = torch.tensor([[[2.0, 0.0], [4.0, 1.0], [9.0, 9.0]]]), torch.zeros(1, 3, 2)
    outputs, where = torch.cat([r, mu, v], dim=-1), torch.tensor([[True, True, False]])
    assert method.score(outputs, where).tolist() == [[0.5 - 2, 1.5 - 1, 0]]
    method.ready.fill_(1)
    assert method.score(outputs, where).tolist() == [[3 + 1, 9 + 0.5, 0]]  # b = (3, 0.5)


def test_vectorization_follows_the_mean_embedding_of_what_is_shown() -> None:
    method = Vectorization(dimension=1).build(Context(2)).train()
    assign(method.observation.tables["position"], [[3.0], [-1.0]])
    batch = replace(example([[1.0, 0.0]]), impressions=torch.tensor([[3.0, 1.0]]))
    method(torch.zeros(1, 2, 3), batch)
    assert method.common.mean.tolist() == pytest.approx([0.95 + 0.05 * 2.0])
    method(torch.zeros(1, 2, 3), replace(batch, where=batch.where & False))  # nothing shown, nothing learned
    assert method.common.mean.tolist() == pytest.approx([0.95 + 0.05 * 2.0])


def test_joint_schedule_holds_o_at_ones_first() -> None:
    method = Vectorization(dimension=1, schedule="joint", freeze=2).build(Context(2)).train()
    assign(method.observation.tables["position"], [[3.0], [-1.0]])
    batch, outputs = example([[1.0, 0.0]]), torch.tensor([[[1.0, 0.2, 0.3], [2.0, 0.1, -0.4]]])
    early = -(1 - math.log(math.exp(1) + math.exp(2)))
    assert [method(outputs, batch).item() for _ in range(2)] == pytest.approx([early, early])
    assert method.ready.item() == 0
    late = -(3 - math.log(math.exp(3) + math.exp(-2)))
    base = ((0.2 - 3) ** 2 * math.exp(-0.3) + 0.3 + (0.1 + 1) ** 2 * math.exp(0.4) - 0.4) / 2
    assert method(outputs, batch).item() == pytest.approx(late + base, abs=1e-6)
    assert (method.ready.item(), method.step.item()) == (1, 3)


def test_the_joint_schedule_penalises_the_weights_of_the_base_model_from_the_first_step() -> None:
    losses = []
    for penalty in (0.0, 0.5):
        config = Vectorization(
            dimension=1, schedule="joint", freeze=1, penalty=penalty, base=(256, 64), levels=False
        )
        method = config.build(Context(3))
        tower = build_tower(MLP(sizes=(4,)), 6, method)
        assert isinstance(tower, WithSide)
        assert not any("tower" in name for name, _ in method.named_parameters())  # they are the ranker's
        for weight in tower.side.parameters():
            assign(weight, torch.full_like(weight, 0.1 if weight.ndim > 1 else 9.0))
        losses.append(
            [(method.train()(torch.ones(2, 3, 3), example()) + penalty_of(tower)).item() for _ in range(2)]
        )
    norm = 0.01 * (6 * 256 + 256 * 64 + 64 * 2) / 2  # no biases
    assert [late - early for early, late in zip(*losses, strict=True)] == pytest.approx([0.5 * norm] * 2, rel=1e-5)


def test_the_base_loss_does_not_move_what_it_describes() -> None:
    """o and r have the gradient of the click loss alone, with a base model or without."""
    gradients = []
    for config in (Vectorization(schedule="joint", freeze=0), Vectorization(), Projected(project="pca")):
        torch.manual_seed(0)
        method = config.build(Context(3)).train()
        outputs = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0), requires_grad=True)
        method(outputs, example()).backward()
        assert outputs.grad is not None
        gradients.append((method.observation.tables["position"].grad, outputs.grad[..., :3]))
        assert (outputs.grad[..., 3:] != 0).any() == (not isinstance(config, Projected))
    for one, other in (gradients[:2], gradients[1:]):
        torch.testing.assert_close(one, other)


def factored(**settings: Any) -> MethodModule:
    """With ranks 1 and 2, and three devices, of which the last two codes are unseen and missing."""
    presentation = fit_presentation({"serp_device": np.arange(1)}, ["serp_device"])
    kind = Projected if "project" in settings else Vectorization
    config = kind(dimension=2, factors=("serp_device",), **settings)
    return config.build(Context(2, presentation=presentation))


def test_factors_add_their_embeddings() -> None:
    method = factored()
    tables = method.observation.tables
    assert (tables["position"][0] == tables["position"][1]).all()
    assert tables["position"][0, 0] != tables["position"][0, 1]  # apart, so that r fills both
    assert factored(levels=False).observation.tables["position"].tolist() == [[1, 1], [1, 1]]
    assert (tables["serp_device"] == 0).all()  # at first nothing is told apart
    assign(tables["position"], [[1.0, 2.0], [3.0, 4.0]])
    assign(tables["serp_device"], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    batch = replace(example([[0.0, 0.0, 0.0]]), serp={"serp_device": torch.tensor([[0, 2, 7]], dtype=torch.int8)})
    expected = [1.1, 2.2, 3.5, 4.6, 3.5, 4.6]  # past the end of a table: its last row
    assert method.embedding(batch).flatten().tolist() == pytest.approx(expected)


def test_observation_may_be_a_network_on_all_factors() -> None:
    """It starts where the table does, and factors may interact in it."""
    torch.manual_seed(0)
    method = factored(bias="tower")
    batch = replace(example([[0.0, 0.0]]), serp={"serp_device": torch.tensor([[0, 1]])})
    tower = method.observation
    assert isinstance(tower, BiasTower)
    values = method.factors.of(batch)
    hidden = tower.bias + tower.codes(values)
    start = tower.start.tables["position"][0]
    torch.testing.assert_close(method.embedding(batch), start + tower.layers(hidden))
    other = replace(batch, serp={"serp_device": torch.tensor([[1, 1]])})
    at = [method.embedding(each) for each in (batch, other)]
    swapped = method.embedding(replace(other, position=torch.tensor([[2, 2]])))
    assert not torch.allclose(at[1][0, 0] - at[0][0, 0], swapped[0, 0] - at[0][0, 1])


def test_the_most_likely_factors_by_hand() -> None:
    """t* = argmax of the product of P(t | x_i), each factor by itself; then o(t*)."""
    method = factored(project="factor").eval()
    method.ready.fill_(1)
    assign(method.observation.tables["position"], [[1.0, 2.0], [3.0, -1.0]])
    assign(method.observation.tables["serp_device"], [[0.0, 0.0], [0.5, 0.5], [9.0, 9.0]])
    rank = torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.01, 0.99]]).log()  # the last is padding
    device = torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.0, 0.0, 1.0]]).log().clamp(min=-50)
    r = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    outputs = torch.cat([r, rank + 3.0, device], dim=-1).unsqueeze(0)
    where = torch.tensor([[True, True, False]])
    # ranks: .7 * .4 = .28 against .3 * .6 = .18; devices: .10, .28, .01
    assert method.base(outputs, where).tolist() == [pytest.approx([1.5, 2.5])]
    assert method.score(outputs, where).tolist() == [pytest.approx([1.5, 2.5, 0.0])]
    batch = replace(
        example([[1.0, 0.0, 0.0]]), where=where, impressions=torch.tensor([[3.0, 1.0, 0.0]]),
        serp={"serp_device": torch.tensor([[1, 1, 0]])},
    )  # fmt: skip
    loss = -(3 * (math.log(0.7) + math.log(0.4)) + math.log(0.6) + math.log(0.7)) / 4
    assert method.side_loss(outputs, batch).item() == pytest.approx(loss, abs=1e-5)


def test_by_the_most_likely_factor_every_list_is_projected_on_o_of_a_rank(log: Log) -> None:
    config = Projected(dimension=2, project="factor")
    model = unskew.learn(log, config, ranker=MLP(sizes=(8,)), steps=30, seed=0).model
    assert isinstance(model, Model)
    relevance, where = model.relevance(model.prepared(log.lists), log.lists.sizes)
    found = model.method.base(relevance, where)
    table = model.method.observation.tables["position"]
    assert all((table == row).all(-1).any() for row in found)


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(queries=12, features=6, documents=(3, 8), seed=1)
    log = simulate(lists, PositionBias(), pages=400, seed=2, cutoff=5)
    device = np.random.default_rng(5).integers(0, 3, len(log)).astype(np.int16)
    return replace(log, columns={**log.columns, "serp_device": np.repeat(device, log.sizes)})


@pytest.mark.parametrize(
    "config",
    [
        Vectorization(),
        Vectorization(schedule="joint", freeze=3),
        Vectorization(dimension=2, factors=("serp_device",)),
        LBDReleased(gaussian=True),
    ],
)
def test_runs_with_side_networks_and_factors_come_back(config: Vectorization, log: Log, tmp_path: Path) -> None:
    model = unskew.learn(log, config, ranker=MLP(sizes=(8,)), steps=8, batch=16, out=tmp_path / "run").model
    again = unskew.load(tmp_path / "run")
    assert again.score(log.lists).tobytes() == model.score(log.lists).tobytes()
    assert again.presentation == model.presentation
    assert model.presentation.sizes == ({"serp_device": 5} if config.serp else {})  # two more: unseen and missing
    if isinstance(config, Vectorization):
        assert model.method.ready.item() == again.method.ready.item() == 1
        sizes = {name: len(table) for name, table in again.method.observation.tables.items()}
        assert sizes == {"position": 5} | model.presentation.sizes


@pytest.mark.parametrize("config", [Vectorization(), Vectorization(schedule="joint", freeze=3), LBD()])
def test_interrupted_training_resumes_to_the_same_weights(config: MethodConfig, log: Log, tmp_path: Path) -> None:
    """The side network of two stages has no optimiser state until its turn; draws depend on seed and step."""

    def trainer(steps: int) -> Trainer:
        torch.manual_seed(0)
        method = config.build(LogData(log).context(config))
        tower = build_tower(MLP(sizes=(4,)), 6, method)
        return Trainer(tower, method, Training(steps=steps, schedule="constant", validate_every=2))

    batches = Batches(reduce_log(log), size=8)
    straight, first, second = trainer(8), trainer(5), trainer(8)
    straight.run(batches)
    first.run(batches, checkpoints=tmp_path)
    assert second.resume(tmp_path)
    second.run(batches)
    expected = straight.modules.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in second.modules.state_dict().items())


def test_factors_must_be_in_the_log(log: Log) -> None:
    with pytest.raises(DataError, match="no column serp_none"):
        unskew.learn(log, Vectorization(factors=("serp_none",)), steps=1)
    for column in (np.full(len(log.row), "a"), -log.position, log.position / 7):  # any kind of column will do
        odd = replace(log, columns={"serp_odd": column})
        unskew.learn(odd, Vectorization(factors=("serp_odd",)), ranker="linear", steps=1, threads=1)


def test_finish_trains_the_base_model_alone(log: Log) -> None:
    torch.manual_seed(0)
    method = Vectorization(dimension=2).build(Context(5))
    assign(method.observation.tables["position"], torch.randn(5, 2))
    tower = build_tower(MLP(sizes=(4,)), 6, method).eval()
    assert isinstance(tower, WithSide)
    batches = Batches(reduce_log(log), size=32)
    batch = batches.at(0)
    before = {name: value.clone() for name, value in nn.ModuleDict({"t": tower, "m": method}).state_dict().items()}
    first = method.side_loss(batch.pad(tower(batch.documents)), batch).item()
    fit_side(tower, method, batches, Training(), Fit(step=30))
    assert method.side_loss(batch.pad(tower(batch.documents)), batch).item() < first
    for name, value in nn.ModuleDict({"t": tower, "m": method}).state_dict().items():
        assert torch.equal(value, before[name]) == ("side" not in name), name


def test_plain_networks_have_no_normalisation() -> None:
    network = network_of(3, (8, 2), MLP(), norm=False)
    assert [type(layer).__name__ for layer in network] == ["Linear", "ELU", "Linear"]
    assert all((layer.bias == 0).all() for layer in network if isinstance(layer, nn.Linear))


# ---- LBD -----------------------------------------------------------------------------------------------------

P = 3


def smooth_network() -> tuple[nn.Module, Tensor]:
    """A network in double precision from two features to P ranks, and four documents."""
    torch.manual_seed(0)
    return MLP(sizes=(5,)).build(2, P).double(), torch.randn(4, 2, dtype=torch.float64, requires_grad=True)


def test_lipschitz_penalty_is_the_mean_squared_gradient_norm() -> None:
    """Exactly, averaged over all sign vectors; weights count a document several times."""
    network, x = smooth_network()
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    jacobian = torch.func.vmap(torch.func.jacrev(plain(network)))(x.detach())  # [n, P, D]
    norms = jacobian.square().sum(-1).mean(-1)
    expected = (weights * norms).sum() / weights.sum()
    signs = [torch.tensor(s, dtype=torch.float64) for s in itertools.product((-1.0, 1.0), repeat=P)]
    values = [lipschitz_penalty(network(x), x, weights=weights, signs=s) for s in signs]
    assert torch.stack(values).mean().item() == pytest.approx(expected.item(), rel=1e-10)
    assert torch.stack(values).std() > 0


def plain(network: nn.Module):  # type: ignore[no-untyped-def]
    """The network as a function of one document, its activations not in place."""
    layers = [nn.ELU() if isinstance(layer, nn.ELU) else layer for layer in network]
    return nn.Sequential(*layers)


def test_the_penalty_trains_the_network() -> None:
    """Gradients with respect to weights agree with finite differences."""
    network, x = smooth_network()
    signs, weights = torch.tensor([1.0, -1.0, 1.0]).double(), torch.ones(4).double()

    def penalty() -> Tensor:
        return lipschitz_penalty(network(x), x, weights=weights, signs=signs)

    penalty().backward()
    for parameter in network.parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad
        for i in range(0, len(flat), 3):
            kept, step = flat[i].item(), 1e-6
            ends = []
            for move in (step, -step):
                flat[i] = kept + move
                ends.append(penalty().item())
            flat[i] = kept
            slope = (ends[0] - ends[1]) / (2 * step)
            got = 0.0 if gradient is None else gradient.view(-1)[i].item()
            assert got == pytest.approx(slope, abs=1e-6)


def test_published_penalty_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """h = X W: dg / dX_i = 10 / (n P) sum over kept p of W_p."""
    x = torch.randn(2, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    w = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.7, -1.0]])
    monkeypatch.setattr(torch, "rand_like", lambda h: torch.tensor([[0.05, 0.5, 0.01], [0.9, 0.02, 0.1]]))
    first, second = (1.0 + 0.5, 0.3 - 1.0), (-2.0, 0.7)
    by_hand = (10 / 6) ** 2 * sum(value**2 for value in (*first, *second))
    assert published_penalty(x @ w, x).item() == pytest.approx(by_hand, rel=1e-5)


def test_published_penalty_in_expectation() -> None:
    """1 / (n P)^2 sum over documents of || sum_p grad h_p ||^2 + 9 sum_p || grad h_p ||^2, for h linear."""
    torch.manual_seed(0)
    x, w = torch.randn(2, 2, requires_grad=True), torch.randn(2, P)
    drawn = [published_penalty(x @ w, x).item() for _ in range(4000)]
    expected = 2 * (w.sum(-1).square().sum() + 9 * w.square().sum()).item() / (2 * P) ** 2
    assert abs(np.mean(drawn) - expected) < 4 * np.std(drawn) / math.sqrt(len(drawn))


def lbd_outputs() -> tuple[Tensor, list[list[float]]]:
    """r and h of two pages of three results at three ranks, and h at each result's own rank."""
    h = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(4))
    own = [[h[q, k, k].item() for k in range(3)] for q in range(2)]
    return torch.cat([torch.tensor(SCORES).unsqueeze(-1), h], dim=-1), own


RELEASED = {"observation": "free", "dropping": "drawn"}


def test_unlimited_by_hand() -> None:
    outputs, own = lbd_outputs()
    method = Unlimited(**RELEASED).build(Context(3)).train()
    assert (method.outputs, method.input_gradient) == (4, False)
    total = 0.0
    for s, h, c in zip(SCORES, own, CLICKS, strict=True):
        z = [a + b for a, b in zip(s, h, strict=True)]
        total -= sum(k * (x - math.log(sum(map(math.exp, z)))) for x, k in zip(z, c, strict=True))
    assert method(outputs, example()).item() == pytest.approx(total / 3, abs=1e-6)
    assert method.score(outputs, example().where).tolist() == SCORES  # rank by r alone
    z = torch.tensor(SCORES) + torch.tensor(own)
    torch.testing.assert_close(method.click_scores(outputs, example()), z)


@pytest.mark.parametrize("t", [0.0, 0.2])
def test_observation_is_a_probability_with_a_floor_by_hand(t: float) -> None:
    """log(t + (1 - t) sig(b + h)), in training and after it."""
    outputs, own = lbd_outputs()
    method = LBD(strength=0.0, drop=t).build(Context(3)).train()
    assign(method.level.tables["position"], torch.tensor([1.0, -0.5, -3.0]))
    z, total = [], 0.0
    for s, h, c in zip(SCORES, own, CLICKS, strict=True):
        o = [1 / (1 + math.exp(-(a + b))) for a, b in zip(h, (1.0, -0.5, -3.0), strict=True)]
        z.append([a + math.log(t + (1 - t) * b) for a, b in zip(s, o, strict=True)])
        total -= sum(k * (x - math.log(sum(map(math.exp, z[-1])))) for x, k in zip(z[-1], c, strict=True))
    for _ in range(2):
        assert method(outputs, example()).item() == pytest.approx(total / 3, abs=1e-6)
        torch.testing.assert_close(method.click_scores(outputs, example()), torch.tensor(z))
        method.eval()


def test_lbd_trains_everything_against_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click loss through the floor and penalty on the probability: of every weight, through both derivatives."""
    monkeypatch.setattr(torch, "randint", lambda low, high, size: torch.tensor([1, 0, 1]))
    torch.manual_seed(0)
    network, x = MLP(sizes=(5,)).build(2, 1 + P).double(), torch.randn(6, 2, dtype=torch.float64)
    method = LBD(strength=3.0, drop=0.2).build(Context(P)).double().train()
    assign(method.level.tables["position"], torch.tensor([0.5, -0.5, -1.0]))
    batch = replace(example(), input=Given(x.requires_grad_()))

    def loss() -> Tensor:
        return method(batch.pad(network(x)), batch)

    loss().backward()
    for parameter in (*network.parameters(), *method.parameters()):
        flat, gradient = parameter.data.view(-1), parameter.grad
        assert gradient is not None
        for i in range(0, len(flat), 3):
            kept, ends = flat[i].item(), []
            for move in (1e-6, -1e-6):
                flat[i] = kept + move
                ends.append(loss().item())
            flat[i] = kept
            assert gradient.view(-1)[i].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("gaussian", [False, True])
def test_observation_starts_as_a_function_of_rank_alone(gaussian: bool) -> None:
    for ranker in (MLP(sizes=(4,)), MLP(sizes=())):
        method = LBDReleased(gaussian=gaussian).build(Context(3))
        outputs = build_tower(ranker, 5, method)(torch.randn(7, 5))
        assert (outputs[:, 1:4] == 0).all()
        assert (outputs[:, 0] != 0).all()
        free = LBDReleased(observation="free").build(Context(3))
        assert (build_tower(ranker, 5, free)(torch.randn(7, 5)) != 0).all()


def test_lbd_adds_its_penalty_in_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randint", lambda low, high, size: torch.tensor([1, 0, 1]))
    torch.manual_seed(0)
    network, x = nn.Linear(2, 4), torch.randn(6, 2, requires_grad=True)
    batch = replace(example(), input=Given(x))
    lips = LBDLips(strength=2.0, **RELEASED).build(Context(3))
    free = Unlimited(**RELEASED).build(Context(3))
    assert lips.input_gradient
    relevance = batch.pad(network(x))
    extra = lips(relevance, batch) - free(relevance, batch)
    w = network.weight.detach()[1:]  # of h; r is free to change as it likes
    assert extra.item() == pytest.approx(2.0 * (w[0] - w[1] + w[2]).square().sum().item() / 3, rel=1e-4)
    with torch.no_grad():
        assert lips.eval()(relevance, batch).item() == free.eval()(relevance, batch).item()


def test_bernoulli_drops_with_probability_t_and_does_not_rescale(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, own = lbd_outputs()
    method = LBDBer(drop=0.25, **RELEASED).build(Context(3)).train()
    seen: list[Tensor] = []
    monkeypatch.setattr(
        "unskew.learning.methods.contract.softmax_loss", lambda z, *_, **__: seen.append(z) or torch.zeros(())
    )
    torch.manual_seed(0)
    for _ in range(2000):
        method(outputs, example())
    h = torch.stack(seen) - torch.tensor(SCORES)
    kept = torch.isclose(h, torch.tensor(own), atol=1e-5)
    dropped = torch.isclose(h, torch.zeros(()), atol=1e-6)
    assert (kept ^ dropped).all()
    share = dropped.float().mean((0, 1, 2)).item()
    assert abs(share - 0.25) < 4 * math.sqrt(0.25 * 0.75 / dropped.numel())
    both = dropped.float().flatten(1)  # independent from result to result
    assert np.abs(np.corrcoef(both.T.numpy()) - np.eye(6)).max() < 0.1
    method.eval()(outputs, example())
    torch.testing.assert_close(seen[-1], torch.tensor(SCORES) + torch.tensor(own))


def test_reduced_counts_are_right_on_average_where_observation_is_dropped() -> None:
    """Two pages of one ranking as one row: the same expected loss."""
    outputs, _ = lbd_outputs()
    method = LBDBer(drop=0.3, **RELEASED).build(Context(3)).train()
    pages = example([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    counts = replace(example([[1.0, 1.0, 1.0]]), impressions=torch.full((1, 3), 2.0))
    torch.manual_seed(0)
    means, errors = [], []
    for relevance, batch in ((outputs[:1].expand(2, -1, -1), pages), (outputs[:1], counts)):
        losses = [method(relevance, batch).item() for _ in range(3000)]
        means.append(np.mean(losses))
        errors.append(np.std(losses) / math.sqrt(len(losses)))
    assert abs(means[0] - means[1]) < 4 * math.hypot(*errors)


def test_gaussian_lbd_draws_in_training_and_takes_the_mean_after() -> None:
    outputs, own = lbd_outputs()
    log_variance = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(5))
    wide, batch = torch.cat([outputs, log_variance], dim=-1), example()
    method = LBDReleased(gaussian=True, strength=0.0, drop=0.0, **RELEASED).build(Context(3)).train()
    assert method.outputs == 8
    torch.manual_seed(0)
    drawn = torch.stack([method.parts(wide, batch)[1] for _ in range(4000)])
    spread = (log_variance[..., 1:] / 2).exp()
    assert ((drawn.mean(0) - outputs[..., 1:]).abs() < 5 * spread / math.sqrt(4000)).all()
    assert ((drawn.std(0) / spread - 1).abs() < 0.06).all()
    method.eval()
    torch.testing.assert_close(method.click_scores(wide, batch), torch.tensor(SCORES) + torch.tensor(own))
    assert method.score(wide, batch.where).tolist() == SCORES


def test_the_three_variants_are_lbd_with_parts_turned_off() -> None:
    on = {(type(c).__name__, c.strength > 0, c.drop > 0) for c in (LBD(), LBDLips(), LBDBer(), Unlimited())}
    assert on == {
        ("LBD", True, True),
        ("LBDLips", True, False),
        ("LBDBer", False, True),
        ("Unlimited", False, False),
    }
    with pytest.raises(ConfigError, match=r"LBD\.name: unknown name '\w+'\. .*Known: lbd"):
        LBD(name="lbd_ber")  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_the_base_model_goes_on_with_the_optimiser_asked_for(log: Log, optimizer: str) -> None:
    """One step of it by hand: step size, clip and the penalty on weights alone."""
    torch.manual_seed(0)
    strength = 200.0  # so that the penalty moves the weights as much as the likelihood does
    method = Vectorization(dimension=2, penalty=strength).build(Context(5))
    tower = build_tower(MLP(sizes=(4,)), 6, method)
    assert isinstance(tower, WithSide)
    batches = Batches(reduce_log(log), size=32)
    batch = batches.at(0)
    loss = method.side_loss(batch.pad(tower(batch.documents)), batch)
    weights = list(tower.side.parameters())
    gradients = torch.autograd.grad(loss, weights)
    gradients = [g + strength * w.detach() if w.ndim > 1 else g for g, w in zip(gradients, weights, strict=True)]
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
    gradients = [g * min(1.0, 0.7 / norm.item()) for g in gradients]
    step = {"sgd": lambda g: 0.1 * g, "adagrad": lambda g: 0.1 * g / (0.1 + g.square()).sqrt()}[optimizer]
    expected = [w.detach() - step(g) for w, g in zip(weights, gradients, strict=True)]
    training = Training(optimizer=optimizer, learning_rate=0.1, clip=0.7)
    fit_side(tower, method, batches, training, Fit(step=1))
    for weight, value in zip(tower.side.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.detach(), value, rtol=1e-4, atol=1e-6)


class Watched:
    """Batches that write down which of them are drawn."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.drawn = batches, list[int]()

    def at(self, step: int) -> ClickBatch:
        self.drawn.append(step)
        return self.batches.at(step)


def test_the_base_model_goes_on_over_as_many_batches_as_the_run_had(log: Log) -> None:
    method = Vectorization(dimension=2).build(Context(5))
    tower = build_tower(MLP(sizes=(4,)), 6, method)
    assert isinstance(tower, WithSide)
    batches = Watched(Batches(reduce_log(log), size=8))
    fit_side(tower, method, batches, Training(), Fit(step=7))
    assert batches.drawn == list(range(7))


def test_the_gradients_of_the_two_networks_are_clipped_apart() -> None:
    method = Vectorization(dimension=1).build(Context(3))
    tower = build_tower(MLP(sizes=(4,)), 6, method)
    trainer = Trainer(tower, method, Training(optimizer="sgd", learning_rate=1.0, clip=1.0, schedule="constant"))
    before = [weight.detach().clone() for weight in tower.parameters()]
    for weight in tower.parameters():
        weight.grad = torch.full_like(weight, 1e6)
    for weight in tower.ranker.parameters():
        weight.grad = torch.full_like(weight, 1e-3)
    move_along(trainer.optimizer, trainer.config.rate(0), trainer.config.clip)
    moved = [b - a.detach() for b, a in zip(before, tower.parameters(), strict=True)]
    own = len(list(tower.ranker.parameters()))
    assert all(torch.allclose(m, torch.full_like(m, 1e-3), atol=1e-6) for m in moved[:own])
    assert torch.stack([m.square().sum() for m in moved[own:]]).sum().sqrt().item() == pytest.approx(1, rel=1e-3)


def test_what_validation_chooses_is_what_the_model_ranks_by(log: Log) -> None:
    """The best validation of a run is that of the scores which the model gives."""
    lists = make_lists(queries=30, features=6, documents=(3, 8), seed=3)
    for config in (
        Vectorization(dimension=2),
        Projected(dimension=2, project="labels"),
        Projected(project="pca"),
    ):
        run = unskew.learn(
            log, config, ranker=MLP(sizes=(8,)), steps=40, validate_every=5, validation=lists, seed=0
        )
        ndcg = np.nanmean(ndcg_metric(run.score(lists), lists.labels, offsets=lists.offsets, at=10))
        assert ndcg == pytest.approx(run.fit.best, abs=1e-6)


def test_base_vectors_from_labels_by_hand() -> None:
    """Two lists with levels of their own: the slopes within lists decide; numpy's least squares agrees."""
    rng = np.random.default_rng(0)
    r, b = rng.normal(size=(2, 5, 3)), np.array([1.0, -2.0, 0.5])
    y = r @ b + np.array([[10.0], [-3.0]]) + 0.1 * rng.normal(size=(2, 5))
    where = np.array([[True] * 5, [True] * 4 + [False]])
    x = np.concatenate([r[q][where[q]] - r[q][where[q]].mean(0) for q in range(2)])
    target = np.concatenate([y[q][where[q]] - y[q][where[q]].mean() for q in range(2)])
    spoilt = np.where(where[..., None], r, 1e9)
    found = label_vector(*map(torch.from_numpy, (spoilt, y, where)))
    np.testing.assert_allclose(found, np.linalg.lstsq(x, target, rcond=None)[0], atol=1e-4)
    nothing = label_vector(torch.zeros(1, 2, 3), torch.ones(1, 2), torch.ones(1, 2) > 0)
    assert nothing.isfinite().all()


def test_documents_are_projected_on_what_labels_asked_for() -> None:
    """Grades 2, 1, 5 of embeddings (1, 0), (0, 1), (2, 1): b = (2, 1); before that the mean of o."""
    method = Projected(dimension=2, project="labels").build(Context(3)).eval()
    assign(method.common.mean, [0.5, -1.0])
    r, where = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]]), torch.ones(1, 3) > 0
    assert method.score(r, where).tolist() == [[0.5, -1.0, 0.0]]
    method.settle(r, torch.tensor([[2.0, 1.0, 5.0]]), where)
    assert method.score(r, where).tolist() == [pytest.approx([2.0, 1.0, 5.0], abs=1e-3)]
    assert method.score_weights().tolist() == pytest.approx([2.0, 1.0], abs=1e-3)


def test_vectorization_by_labels_needs_them_and_says_so(log: Log) -> None:
    with pytest.raises(ConfigError, match="vectorization_projected as it is set needs labelled lists"):
        unskew.learn(log, Projected(project="labels"), steps=1)
    with pytest.raises(TypeError, match="takes nothing from labels"):
        LBD().build(Context(3)).settle(torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.ones(1, 1) > 0)


def test_the_principal_direction_is_that_of_the_embeddings_shown() -> None:
    """Numpy's singular vectors, and the sign in which the mean observation points."""
    rng = np.random.default_rng(0)
    r = torch.from_numpy(rng.normal(size=(8, 3, 2)) @ np.array([[2.0, 1.0], [0.0, 0.5]])).float()
    method = Projected(dimension=2, project="pca").build(Context(3)).train()
    assign(method.observation.tables["position"], -torch.ones(3, 2))
    batch = example([[1.0, 0.0, 0.0]] * 8)
    for _ in range(200):
        method(r, batch)
    flat = r.reshape(-1, 2).numpy()
    direction = np.linalg.svd(flat - flat.mean(0))[2][0]
    direction = -direction if direction.sum() > 0 else direction
    np.testing.assert_allclose(method.score_weights(), direction, atol=1e-3)
    np.testing.assert_allclose(method.eval().score(r, batch.where).numpy(), r.numpy() @ direction, atol=1e-2)
