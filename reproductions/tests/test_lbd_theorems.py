"""LBD's theorems as numerical checks: worlds and models that fit their clicks, drawn at random.

Assumption 1 leaves one freedom: s(x) = r(x) / r^(x) = o^_p(x) / o_p(x) is the same for all ranks. So a model is a
world and a function s that keeps r^ and o^ between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import unskew
from unskew.learning.methods import Context
from unskew.simulation.behaviours.behaviour import EYE_TRACKING
from unskew.types import Array
from unskew_reproductions.experiments.decoupling import largest_drop, least_slope, turned_round

X = np.linspace(0.0, 1.0, 81)
"""The documents of a world with one feature."""
THETA = np.asarray(EYE_TRACKING)[[0, 2, 5]]


@dataclass(frozen=True)
class World:
    """Relevance [N], observation [N, P] and the s [N] of a model, on X."""

    r: Array
    o: Array
    s: Array

    @property
    def learned_r(self) -> Array:
        return self.r / self.s

    @property
    def learned_o(self) -> Array:
        return self.o * self.s[:, None]

    @property
    def clicks(self) -> Array:
        return self.r[:, None] * self.o


def draw(seed: int) -> World:
    """Relevance that rises or falls, individual bias, and a wavy s; scaled so that nothing leaves (0, 1]."""
    rng = np.random.default_rng(seed)
    steep, middle, eta = rng.normal(0, 6), rng.uniform(0.2, 0.8), rng.uniform(0, 1)
    r = 0.03 + 0.87 / (1 + np.exp(-steep * (X - middle)))
    o = THETA ** (1 + eta * (X - 0.5))[:, None]
    s = np.exp(rng.uniform(0.0, 0.4) * np.sin(rng.uniform(1, 6) * X + rng.uniform(0, 6)))
    return World(r, o, s / max(float((s[:, None] * o).max()), 1.0))


WORLDS = [world for world in (draw(seed) for seed in range(150)) if world.learned_r.max() <= 1]


def slope(values: Array) -> float:
    """The Lipschitz constant of functions on X [N, P], with room for what the grid does not see."""
    return 1.01 * float(np.abs(np.gradient(values, X, axis=0, edge_order=2)).max())


def test_theorem_1_says_when_an_order_is_kept() -> None:
    """If int (b + a s) / o_p from x2 to x1 is at most s(x2) (r(x1) / r(x2) - 1), then r^(x1) >= r^(x2)."""
    promised = kept = lost = 0
    for world in WORLDS:
        a, b = slope(world.o), slope(world.learned_o)
        speed = (b + a * world.s[:, None]) / world.o  # [N, P]
        steps = (speed[1:] + speed[:-1]) / 2 * np.diff(X)[:, None]
        way = np.concatenate([np.zeros((1, len(THETA))), np.cumsum(steps, axis=0)])
        length = np.abs(way[:, None] - way[None]).min(-1)  # [x1, x2], along the best rank
        room = world.s[None] * (world.r[:, None] / world.r[None] - 1)
        pairs = (length <= room) & (world.r[:, None] > world.r[None])
        order = world.learned_r[:, None] >= world.learned_r[None]
        promised, kept = promised + int(pairs.sum()), kept + int((pairs & order).sum())
        lost += int((~order & (world.r[:, None] > world.r[None])).sum())
    assert promised == kept > 1000
    assert lost > 1000  # without the condition orders do get lost, so it says something


def test_theorem_2_bounds_the_lipschitz_constant_from_below() -> None:
    rng, nearly = np.random.default_rng(0), 0.0
    for world in WORLDS:
        first, second = rng.choice(len(X), (2, 40))
        first, second = first[first != second], second[first != second]
        bound = least_slope(world.clicks[first], world.clicks[second], np.abs(X[first] - X[second]))
        assert bound.max() <= slope(world.learned_o)
        nearly = max(nearly, float(bound.max()) / slope(world.learned_o))
    assert nearly > 0.3  # and not by being 0


def test_the_bound_of_theorem_2_is_the_least_there_is() -> None:
    """Against linear programming: minimise g with |m a_p - n b_p| <= g and m, n >= 1."""
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.01, 1, (2, 30, 4))
    found = least_slope(a, b, np.ones(30))
    for index in range(30):
        rows = np.stack([a[index], -b[index]], axis=1)
        bounds = np.concatenate([np.c_[rows, -np.ones(4)], np.c_[-rows, -np.ones(4)]])
        best = linprog([0, 0, 1], A_ub=bounds, b_ub=np.zeros(8), bounds=[(1, None), (1, None), (0, None)])
        assert found[index] == pytest.approx(best.fun, abs=1e-9)


def admissible(world: World, t: float) -> tuple[Array, Array]:
    """Least and largest r^ [N] that fit the clicks with o^ between t and 1; empty where the least is larger."""
    return world.clicks.max(-1), np.minimum(world.clicks.min(-1) / t, 1.0)


@pytest.mark.parametrize("t", [0.05, 0.2, 0.6])
def test_theorem_4_says_when_there_is_a_model_at_all(t: float) -> None:
    fits = [admissible(world, t)[0] <= admissible(world, t)[1] for world in WORLDS]
    allowed = [t <= largest_drop(world.o) for world in WORLDS]
    relevant = [world.clicks.max(-1) <= 1 for world in WORLDS]  # r^ <= 1 never forbids more: c_p <= r <= 1
    assert all((fit == ok).all() for fit, ok in zip(fits, allowed, strict=True))
    assert np.concatenate(relevant).all()
    everywhere = np.concatenate(allowed)
    assert everywhere.all() == (t < 0.1)
    assert everywhere.any() == (t < 0.6)


@pytest.mark.parametrize("t", [0.1, 0.2])
def test_theorem_3_says_which_orders_are_turned_round(t: float) -> None:
    """Where its condition holds, every r^ that fits puts x1 no higher than x2; the paper's is stricter."""
    turned = loose = 0
    for world in WORLDS:
        low, high = admissible(world, t)
        c, a = world.clicks, slope(world.o)
        here = turned_round(c[:, None], c[None], t)  # [x1, x2]
        fits = (low <= high)[:, None] & (low <= high)[None]
        assert (high[:, None] <= low[None] + 1e-12)[here & fits].all()
        gap = 1 + a * np.abs(X[:, None] - X[None])[..., None] / world.o[None]
        paper = (t >= (world.r[:, None] / world.r[None])[..., None] * gap).any(-1)
        assert here[paper].all()
        turned, loose = turned + int(here.sum()), loose + int(paper.sum())
    assert turned > loose > 0


def test_the_method_has_the_floor_of_the_theorems() -> None:
    """o' = t + (1 - t) sig(b + h), between t and 1, at the rank that a result is shown at."""
    log = unskew.simulate(unskew.make_lists(8, 4, seed=0), pages=20, seed=0)
    batch = next(iter(_batches(log)))
    method = unskew.methods.LBD(drop=0.2, strength=0.0).build(Context(10)).eval()
    relevance = torch.randn(*batch.position.shape, method.outputs, generator=torch.Generator().manual_seed(0)) * 5
    r, log_o = method.parts(relevance, batch)
    seen = (method.click_scores(relevance, batch) - r).exp()[batch.where]
    rank = (batch.position - 1).clamp(min=0).unsqueeze(-1)
    expected = 0.2 + 0.8 * log_o.exp().gather(-1, rank).squeeze(-1)[batch.where]
    torch.testing.assert_close(seen, expected)
    assert (seen >= 0.2).all()
    assert (seen <= 1).all()
    assert seen.min() < 0.21  # the floor is reached


def _batches(log: unskew.Log):  # type: ignore[no-untyped-def]
    from unskew.logs.counts.batches import Batches
    from unskew.logs.counts.reduction import reduce_log
    from unskew.tables.lists.inputs import Vectors

    return Batches(reduce_log(log), Vectors.of(log.lists.features), size=64).in_order()
