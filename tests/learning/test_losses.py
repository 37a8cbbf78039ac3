"""Losses against formulas written out in plain Python, golden values, masks, extremes and finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unskew.learning.losses import (
    LOSSES,
    lambda_gains,
    lambda_loss,
    list_log_softmax,
    log1mexp,
    page_count,
    pair_counts,
    pairwise_loss,
    sigmoid_loss,
    softmax_loss,
)
from unskew.tables.lists.inputs import Vectors
from unskew.types import ClickBatch

torch.set_num_threads(1)

SCORES = [[1.0, 2.0, 0.0], [0.5, -0.5, 1.5]]
CLICKS = [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
GARBAGE = [7.0, -1e4, 1e4, 3e38, -3e38, math.inf, -math.inf, math.nan]

Table = list[list[float]]
Loss = Callable[..., Tensor]
KINDS: dict[str, Loss] = {
    "pooled": softmax_loss,
    "list": lambda s, c, **k: softmax_loss(s, c, by_list=True, **k),
    "sigmoid": sigmoid_loss,
    "pairwise": pairwise_loss,
    "lambda": lambda_loss,
}
EVERY = pytest.mark.parametrize("loss", [pytest.param(loss, id=name) for name, loss in KINDS.items()])


def everywhere(values: Tensor) -> Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def tensors(*tables: Table) -> list[Tensor]:
    return [torch.tensor(table, dtype=torch.float64) for table in tables]


# ---- the formulas, without torch -----------------------------------------------------------------------------


def plain_log_softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    log_sum = top + math.log(sum(math.exp(s - top) for s in scores))
    return [s - log_sum for s in scores]


def plain_softmax(scores: Table, u: Table, kind: str) -> float:
    losses = [
        -sum(a * b for a, b in zip(row, plain_log_softmax(s), strict=True))
        for s, row in zip(scores, u, strict=True)
    ]
    totals = [sum(row) for row in u]
    if kind == "pooled":
        return sum(losses) / sum(totals)
    shares = [loss / total for loss, total in zip(losses, totals, strict=True) if total > 0]
    return sum(shares) / len(shares)


def plain_sigmoid(scores: Table, u: Table, n: Table) -> float:
    total = 0.0
    for s_row, u_row, n_row in zip(scores, u, n, strict=True):
        for s, wc, shown in zip(s_row, u_row, n_row, strict=True):
            g = 1 / (1 + math.exp(-s))
            total -= wc * math.log(g) + (shown - wc) * math.log(1 - g)
    return total / sum(max(row) for row in n)


def plain_pairs(scores: Table, grades: Table, w: Table, by_ndcg: bool) -> float:
    above = below = 0.0
    for s, y, weight in zip(scores, grades, w, strict=True):
        order = sorted(range(len(s)), key=lambda k: -s[k])
        discount = {k: 1 / math.log2(2 + rank) for rank, k in enumerate(order)}
        best = sum((2**g - 1) / math.log2(2 + r) for r, g in enumerate(sorted(y, reverse=True)))
        for i in range(len(s)):
            for j in range(len(s)):
                if y[i] > y[j]:
                    swap = abs((2 ** y[i] - 2 ** y[j]) * (discount[i] - discount[j])) / best
                    u = weight[i] * (swap if by_ndcg else 1.0)
                    above += u * math.log(1 + math.exp(-(s[i] - s[j])))
                    below += u
    return above / below


# ---- golden values, computed by hand from the formulas -------------------------------------------------------


def test_softmax_golden_values() -> None:
    s, c = tensors(SCORES, CLICKS)
    where = everywhere(c)
    assert softmax_loss(s, c, where=where).item() == pytest.approx(0.740939, abs=1e-6)
    w = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    assert softmax_loss(s, c, where=where, weights=w).item() == pytest.approx(0.550463, abs=1e-6)
    # per list: clicks of a list sum to 1, lists are averaged, as in public libraries for learning to rank
    w_list = softmax_loss(s, c, where=where, weights=w, by_list=True).item()
    assert w_list == pytest.approx(0.507606, abs=1e-6)


def test_pair_golden_values() -> None:
    # scores (1, 2, 0), a click on the second: log(1 + e^-1) = .313262 and log(1 + e^-2) = .126928
    s, c = tensors(SCORES[:1], CLICKS[:1])
    assert pairwise_loss(s, c, where=everywhere(c)).item() == pytest.approx((0.313262 + 0.126928) / 2, abs=1e-6)
    # second list: a click on .5 and on 1.5, none on -.5: the same two numbers the other way round
    s, c = tensors(SCORES, CLICKS)
    assert pairwise_loss(s, c, where=everywhere(c)).item() == pytest.approx(0.880379 / 4, abs=1e-6)


def test_lambda_golden_value() -> None:
    # ranks of (1, 2, 0) are 2, 1, 3; the click is worth 1 at rank 1, log2(3)^-1 = .630930 at rank 2, .5 at rank 3.
    # so pair (2, 1) decides 1 - .630930 of the nDCG, pair (2, 3) decides 1 - .5
    s, c = tensors(SCORES[:1], CLICKS[:1])
    gains = lambda_gains(s, c, where=everywhere(c))[0]
    assert gains[1].tolist() == pytest.approx([1 - 1 / math.log2(3), 0.0, 0.5], abs=1e-12)
    expected = (0.369070 * 0.313262 + 0.5 * 0.126928) / 0.869070
    assert lambda_loss(s, c, where=everywhere(c)).item() == pytest.approx(expected, abs=1e-6)


def test_sigmoid_golden_value() -> None:
    s, c = tensors([[0.0, 2.0]], [[1.0, 0.0]])
    assert sigmoid_loss(s, c, where=everywhere(c)).item() == pytest.approx(math.log(2) + math.log(1 + math.e**2))


# ---- the formulas on random lists ----------------------------------------------------------------------------

score = st.floats(-8, 8, allow_nan=False).map(lambda x: round(x, 3))


@st.composite
def lists(draw: st.DrawFn, unique: bool = False) -> tuple[Table, ...]:
    """Scores, clicks of single pages (at least one pair) and positive weights, [B, K] each."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    table = st.lists(st.lists(score, min_size=width, max_size=width, unique=unique), min_size=rows, max_size=rows)
    clicks = [[float(draw(st.booleans())) for _ in range(width)] for _ in range(rows)]
    clicks[0][0], clicks[0][1] = 1.0, 0.0
    weights = [[draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in range(width)] for _ in range(rows)]
    return draw(table), clicks, weights


@given(lists(unique=True))
@settings(max_examples=60, deadline=None)
def test_losses_are_their_formulas(case: tuple[Table, ...]) -> None:
    scores, clicks, weights = case
    s, c, w = tensors(*case)
    options = {"where": everywhere(c), "weights": w}
    u = (c * w).tolist()
    for kind in ("pooled", "list"):
        assert KINDS[kind](s, c, **options).item() == pytest.approx(plain_softmax(scores, u, kind), abs=1e-9)
    ones = [[1.0] * len(scores[0])] * len(scores)
    assert sigmoid_loss(s, c, **options).item() == pytest.approx(plain_sigmoid(scores, u, ones), abs=1e-9)
    assert pairwise_loss(s, c, **options).item() == pytest.approx(plain_pairs(scores, clicks, weights, False))
    assert lambda_loss(s, c, **options).item() == pytest.approx(plain_pairs(scores, clicks, weights, True))


def test_lambda_and_pairwise_take_grades() -> None:
    scores, grades = [[0.3, -0.2, 1.1, 0.9]], [[3.0, 0.0, 1.0, 4.0]]
    s, y = tensors(scores, grades)
    ones = [[1.0] * 4]
    assert pair_counts(y, everywhere(y)).sum().item() == 6
    assert lambda_loss(s, y, where=everywhere(y)).item() == pytest.approx(plain_pairs(scores, grades, ones, True))
    assert pairwise_loss(s, y, where=everywhere(y)).item() == pytest.approx(
        plain_pairs(scores, grades, ones, False)
    )


def test_sigmoid_takes_counts() -> None:
    scores, clicks, shown = [[0.3, -0.2], [1.0, 0.1]], [[30.0, 2.0], [1.0, 0.0]], [[50.0, 50.0], [3.0, 3.0]]
    s, c, n = tensors(scores, clicks, shown)
    loss = sigmoid_loss(s, c, where=everywhere(c), impressions=n)
    assert loss.item() == pytest.approx(plain_sigmoid(scores, clicks, shown))
    assert page_count(everywhere(c), n).item() == 53
    assert page_count(everywhere(c), None).item() == 2


@given(lists(unique=True), st.floats(-50, 50))
@settings(max_examples=40, deadline=None)
def test_adding_a_constant_to_a_list_changes_nothing(case: tuple[Table, ...], shift: float) -> None:
    s, c, w = tensors(*case)
    where = everywhere(c)
    for name, loss in KINDS.items():
        if name not in ("sigmoid", "lambda"):  # lambda: rounding can turn near ties
            assert loss(s + shift, c, where=where, weights=w).item() == pytest.approx(
                loss(s, c, where=where, weights=w).item(), abs=1e-9
            )


@given(lists(unique=True), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_results_and_of_lists_does_not_matter(case: tuple[Table, ...], rng) -> None:
    s, c, w = tensors(*case)
    columns, rows = list(range(s.shape[1])), list(range(s.shape[0]))
    rng.shuffle(columns)
    rng.shuffle(rows)
    turned = [x[rows][:, columns] for x in (s, c, w)]
    where = everywhere(c)
    for loss in KINDS.values():
        assert loss(turned[0], turned[1], where=where, weights=turned[2]).item() == pytest.approx(
            loss(s, c, where=where, weights=w).item(), abs=1e-9
        )


# ---- masks ---------------------------------------------------------------------------------------------------


def value_and_gradient(loss: Loss, s: Tensor, *args: Tensor, **options: Tensor) -> tuple[float, Tensor]:
    s = s.clone().requires_grad_()
    value = loss(s, *args, **options)
    (gradient,) = torch.autograd.grad(value, s)
    return value.item(), gradient


@EVERY
@pytest.mark.parametrize("garbage", GARBAGE)
def test_padding_never_matters(loss: Loss, garbage: float) -> None:
    s, c = tensors(SCORES, CLICKS)
    s, c = s.float(), c.float()
    w = torch.tensor([[1.0, 2.0, 4.0]]).expand(2, 3)
    value, gradient = value_and_gradient(loss, s, c, where=everywhere(c), weights=w)
    spoilt = [torch.cat([x, torch.full((2, 2), y)], 1) for x, y in ((s, garbage), (c, garbage), (w, garbage))]
    where = torch.tensor([[True, True, True, False, False]]).expand(2, 5)
    padded, padded_gradient = value_and_gradient(loss, spoilt[0], spoilt[1], where=where, weights=spoilt[2])
    assert padded == pytest.approx(value, rel=1e-6)  # sums of five and of three numbers round differently
    torch.testing.assert_close(padded_gradient[:, :3], gradient, rtol=1e-5, atol=1e-7)
    assert torch.equal(padded_gradient[:, 3:], torch.zeros(2, 2))


@EVERY
def test_a_list_of_padding_does_not_matter(loss: Loss) -> None:
    s, c = tensors(SCORES, CLICKS)
    value, _ = value_and_gradient(loss, s, c, where=everywhere(c))
    more = [torch.cat([x, torch.full((1, 3), 9.0)]) for x in (s, c)]
    where = torch.tensor([[True] * 3, [True] * 3, [False] * 3])
    padded, gradient = value_and_gradient(loss, more[0].double(), more[1].double(), where=where)
    assert padded == pytest.approx(value, abs=1e-12)
    assert torch.equal(gradient[2], torch.zeros(3, dtype=torch.float64))


@EVERY
def test_nothing_to_learn_from_gives_zero(loss: Loss) -> None:
    s, c = tensors(SCORES, CLICKS)
    nowhere = torch.zeros_like(c, dtype=torch.bool)
    value, gradient = value_and_gradient(loss, s, c, where=nowhere)
    assert value == 0
    assert torch.equal(gradient, torch.zeros_like(s))
    unclicked = torch.zeros_like(c)
    value, gradient = value_and_gradient(loss, s, unclicked, where=everywhere(c))
    assert torch.isfinite(gradient).all()
    if loss is not sigmoid_loss:  # no click is evidence only to a pointwise loss
        assert value == 0
        assert torch.equal(gradient, torch.zeros_like(s))
    else:
        assert value > 0
        assert (gradient > 0).all()


@EVERY
@pytest.mark.parametrize("size", [1e4, 1e8])
def test_huge_scores_stay_finite(loss: Loss, size: float) -> None:
    s = torch.tensor([[size, -size, 0.0], [-size, size, size]])
    for clicks in (CLICKS, [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]):
        value, gradient = value_and_gradient(loss, s, torch.tensor(clicks), where=everywhere(s))
        assert math.isfinite(value)
        assert torch.isfinite(gradient).all()


@EVERY
def test_gradients_against_finite_differences(loss: Loss) -> None:
    s, c, w = tensors(
        [[0.3, -0.9, 1.4, 0.0], [2.0, 0.7, -0.3, 0.0]], [[1, 0, 1, 0], [0, 1, 0, 0]], [[1.0, 2.0, 3.0, 9.0]] * 2
    )
    where = torch.tensor([[True, True, True, False], [True, True, True, True]])
    s = s.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, c, where=where, weights=w), (s,))
    assert torch.autograd.gradgradcheck(lambda x: loss(x, c, where=where, weights=w), (s,))


# ---- log1mexp and the list softmax ---------------------------------------------------------------------------


def exact_log1mexp(x: float) -> float:
    with localcontext() as context:
        context.prec = 400
        return float((1 - Decimal(x).exp()).ln())


@pytest.mark.parametrize(
    "x", [-1e-25, -1e-12, -1e-8, -1e-4, -0.5, -0.6931471, -0.6931472, -1.0, -5.0, -15.0, -50.0, -200.0]
)
def test_log1mexp_is_exact(x: float) -> None:
    value = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    result = log1mexp(value)
    result.backward()
    assert result.item() == pytest.approx(exact_log1mexp(x), rel=1e-14)
    assert value.grad is not None
    assert value.grad.item() == pytest.approx(-1 / math.expm1(-x) if x > -700 else 0.0, rel=1e-12)
    single = log1mexp(torch.tensor(x, dtype=torch.float32)).item()
    assert single == pytest.approx(exact_log1mexp(torch.tensor(x).item()), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("x", [0.0, -0.0, 1e-6, -1e-45, -1e-30, -1e4, -math.inf])
def test_log1mexp_has_a_finite_gradient(x: float, dtype: torch.dtype) -> None:
    value = torch.tensor(x, dtype=dtype, requires_grad=True)
    result = log1mexp(value)
    result.backward()
    assert value.grad is not None
    assert math.isfinite(result.item())
    assert math.isfinite(value.grad.item())


def test_log1mexp_still_moves_saturated_probabilities() -> None:
    # log(1 - sig(z)^2) = log1mexp(2 log sig(z)); at z = 20 its derivative is -2 sig^2 (1 - sig) / (1 - sig^2) = -1
    z = torch.tensor(20.0, requires_grad=True)
    log1mexp(2 * torch.nn.functional.logsigmoid(z)).backward()
    assert z.grad is not None
    assert z.grad.item() == pytest.approx(-1.0, abs=1e-5)


def test_list_log_softmax() -> None:
    s = torch.tensor([[1.0, 2.0, 9.0], [3.0, 3.0, 3.0]], dtype=torch.float64)
    where = torch.tensor([[True, True, False], [False, False, False]])
    expected = [*plain_log_softmax([1.0, 2.0]), 0.0, 0.0, 0.0, 0.0]
    assert list_log_softmax(s, where).flatten().tolist() == pytest.approx(expected, abs=1e-12)


# ---- the table that methods choose from ----------------------------------------------------------------------


def test_named_losses_use_what_their_reduction_keeps() -> None:
    s, c = tensors(SCORES, CLICKS)
    where = everywhere(c)
    pairs = torch.arange(18, dtype=torch.float64).view(2, 3, 3)
    batch = ClickBatch(
        input=Vectors(s.view(-1, 1)), rows=torch.arange(6),
        packed=torch.arange(6), position=torch.ones(2, 3, dtype=torch.int64),
        clicks=c, impressions=2 * torch.ones_like(c), where=where, pairs=pairs,
    )  # fmt: skip
    w = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64).expand(2, 3)
    expected = {
        "softmax": ("counts", softmax_loss(s, c, where=where, weights=w)),
        "softmax_list": ("pages", softmax_loss(s, c, where=where, weights=w, by_list=True)),
        "sigmoid": ("counts", sigmoid_loss(s, c, where=where, weights=w, impressions=batch.impressions)),
        "pairwise": ("pairs", pairwise_loss(s, c, where=where, weights=w, pairs=pairs)),
        "lambda": ("pages", lambda_loss(s, c, where=where, weights=w)),
    }
    assert set(LOSSES) == set(expected)
    for name, (reduction, value) in expected.items():
        assert LOSSES[name].reduction == reduction
        assert LOSSES[name].function(s, batch, w).item() == value.item()
    assert expected["pairwise"][1].item() != pairwise_loss(s, c, where=where, weights=w).item()
