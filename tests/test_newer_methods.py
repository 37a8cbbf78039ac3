"""Golden values and properties of upe, tower_dropout and gradient_reversal, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from unskew.clicks.lists.inputs import Vectors
from unskew.learning.losses import softmax_loss
from unskew.learning.methods import (
    DLA,
    UPE,
    Additive,
    Context,
    GradientReversal,
    TowerDropout,
)
from unskew.types import ClickBatch

torch.set_num_threads(1)
CLICKS = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
SCORES = torch.tensor([[1.0, 2.0, 0.0], [0.5, -0.5, 1.5]])
BIAS = torch.tensor([0.3, -0.2, -0.9])


def batch() -> ClickBatch:
    where = torch.ones_like(CLICKS, dtype=torch.bool)
    return ClickBatch(
        input=Vectors(torch.zeros(6, 1)),
        rows=torch.arange(6),
        packed=torch.arange(6),
        position=torch.tensor([[1, 2, 3], [1, 2, 3]]),
        clicks=CLICKS,
        impressions=torch.ones_like(CLICKS),
        where=where,
    )


def set_bias(table: torch.nn.Module) -> None:
    with torch.no_grad():
        table.values.copy_(BIAS)


def additive_loss() -> Tensor:
    method = Additive().build(Context(3))
    set_bias(method.bias)
    return method(SCORES.unsqueeze(-1), batch())


def test_tower_dropout_at_rate_0_is_additive() -> None:
    method = TowerDropout(rate=0.0).build(Context(3)).train()
    set_bias(method.bias)
    assert method(SCORES.unsqueeze(-1), batch()).item() == pytest.approx(additive_loss().item())


def test_tower_dropout_drops_in_training_only_and_is_right_on_average() -> None:
    method = TowerDropout(rate=0.4).build(Context(3))
    set_bias(method.bias)
    relevance = SCORES.unsqueeze(-1)
    expected = SCORES + BIAS
    torch.testing.assert_close(method.eval().logits(relevance, batch()), expected)
    torch.manual_seed(0)
    draws = torch.stack([method.train().logits(relevance, batch()) for _ in range(4000)])
    dropped = torch.isclose(draws, SCORES + BIAS.mean()).float().mean().item()  # their level stays
    assert dropped == pytest.approx(0.4, abs=0.02)
    torch.testing.assert_close(draws.mean(0), expected, atol=0.06, rtol=0)


def test_gradient_reversal_without_strength_is_additive() -> None:
    method = GradientReversal(strength=0.0).build(Context(3))
    set_bias(method.bias)
    assert method(SCORES.unsqueeze(-1), batch()).item() == pytest.approx(additive_loss().item())


def test_gradient_reversal_pushes_the_bias_against_its_own_head() -> None:
    """The adversarial part of the bias gradient is minus what it would be without the reversal."""
    gradients = {}
    for strength in (0.0, 1.0):
        method = GradientReversal(strength=strength).build(Context(3))
        set_bias(method.bias)
        method(SCORES.unsqueeze(-1), batch()).backward()
        gradients[strength] = method.bias.values.grad.clone()
        head = method.weight.grad
    adversarial = gradients[1.0] - gradients[0.0]
    clicks = CLICKS.sum(0)
    plain = (torch.sigmoid(BIAS) * 2 - clicks) / 2  # cross-entropy of two pages, averaged over them
    torch.testing.assert_close(adversarial, -plain)
    assert head is not None
    assert head.item() == pytest.approx((plain * BIAS).sum().item(), rel=1e-5)


def test_upe_without_a_confounder_is_dla_and_the_logging_ranker() -> None:
    b, m = batch(), torch.tensor([[0.4, 0.1, -0.2], [0.0, 0.3, 0.1]])
    upe, dla = UPE().build(Context(3)), DLA().build(Context(3))
    set_bias(upe.bias)
    set_bias(dla.bias)
    logging = softmax_loss(m, torch.tensor([[1.0, 1 / 2, 1 / 3]] * 2), where=b.where)
    found = upe(torch.stack([SCORES, m], dim=-1), b)
    assert found.item() == pytest.approx((dla(SCORES.unsqueeze(-1), b) + logging).item(), rel=1e-5)
    assert upe.propensity().tolist() == pytest.approx((BIAS - BIAS[0]).exp().tolist())


def test_upe_keeps_its_three_gradients_apart() -> None:
    relevance = torch.stack([SCORES, torch.zeros_like(SCORES)], dim=-1).requires_grad_()
    method = UPE().build(Context(3))
    with torch.no_grad():
        method.taste.fill_(2.0)
    method(relevance, batch()).backward()
    only_logging = torch.zeros_like(SCORES, requires_grad=True)
    softmax_loss(only_logging, torch.tensor([[1.0, 1 / 2, 1 / 3]] * 2), where=batch().where).backward()
    torch.testing.assert_close(relevance.grad[..., 1], only_logging.grad)
    assert method.taste.grad is not None
