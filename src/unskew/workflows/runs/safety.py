"""How far a safe run may go from the order that was shown: as far as the clicks of held-out pages carry it.

    gain of a reach    sum over held-out clicks of 1 / log2(1 + rank with it) - 1 / log2(1 + rank with reach 1)
    lower bound        Student's, over queries, at risk / (number of reaches above 1)
    chosen             the reach with the highest lower bound, if that is above 0; else 1, the order that was shown

Shuffled pages decide where there are any with clicks: on them the comparison is fair. On other pages clicks favour
the order shown, so a gain against them is one, and it counts unless shuffled pages speak against it. Ranks are
those in the whole list: a document that no page showed takes a place and brings nothing.

Legend: R distinct pages, K results of a page, N documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor, nn

from unskew.errors import warn
from unskew.learning.methods.propensities import KnownPropensity
from unskew.learning.methods.safety import REACHES, UNLIMITED, imitation_loss, ranks_of
from unskew.learning.rankers.networks import WithSide
from unskew.learning.scoring.model import Model
from unskew.learning.scoring.scorer import Scorer
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import Counts, by_query, reduce_log
from unskew.results import Result
from unskew.types import Array, Log
from unskew.workflows.runs.data import LogData, TrainingData

FAITHFUL = 0.9
"""Of the pairs that any fixed order could tell, the share below which reach 1 is not the order that was shown."""
UNSEEN, MOST, STEPS, RIDGE = 50, 4096, 200, 1e-6
"""Of fitting m: documents of a query that were never shown, queries, steps, and the penalty."""
FEWEST = 10
"""Queries with clicks below which nothing is chosen."""


@dataclass(frozen=True)
class Safety(Result):
    """What held-out clicks allow a safe run."""

    reach: float | None
    """By what factor a rank may be from that in the order shown; 1: not at all, None: without limit."""
    gain: float | None
    """What a held-out click gains over the order shown; None without one."""
    bound: float | None
    """Lower bound of the gain."""
    agreement: float | None
    """Share of pairs of results of held-out pages that reach 1 orders as they were shown."""
    possible: float | None
    """The share that one order for every query could have; below 1 where the order shown changes."""
    by: str
    """Which clicks chose: shuffled, shown or none."""
    told = ("sentence",)

    @property
    def faithful(self) -> bool:
        """Whether reach 1 is the order that was shown, as far as held-out pages tell."""
        return self.agreement is not None and self.agreement >= FAITHFUL * (self.possible or 1.0)

    @property
    def sentence(self) -> str:
        """What was chosen, and why."""
        if self.gain is None or self.bound is None:
            said = "Safe: held-out clicks carry no change, so it ranks as was shown"
        else:
            far = "without limit" if self.reach is None else f"at most by a factor of {self.reach:g} in rank"
            clicks = "shuffled pages" if self.by == "shuffled" else "pages as shown"
            gains = f"a click on held-out {clicks} gains {self.gain:.3f}, {self.bound:.3f} at least"
            said = f"Safe: it moves documents {far}; {gains}"
        if self.agreement is None:
            return (
                f"{said}. No held-out page tells the order that was shown, so nobody knows whether it is imitated."
            )
        said += f". Without a change it orders {self.agreement:.0%} of the pairs of a held-out page as was shown"
        if not self.faithful:
            said += f", of {self.possible:.0%} that one order could: features do not tell that order, so it "
            said += "cannot fall back to it; give the score of today's ranker as a feature"
        return said + "."


def make_safe(model: Scorer, data: TrainingData) -> Safety | None:
    """Finish the imitation, and let held-out pages choose the reach of a safe model; None where it is not safe."""
    if not isinstance(model, Model) or not isinstance(model.method, KnownPropensity) or not model.method.safe:
        return None
    usual = parts_of(data.train).get("shown") if isinstance(data, LogData) else None
    if usual is not None:
        imitate(model, usual)
    parts = parts_of(data.held_out_pages())
    values = {name: (part, discounts(model, part)) for name, part in parts.items()}
    gains = {name: Gains.of(part, value) for name, (part, value) in values.items() if part.clicks.any()}
    reach, by, gain, bound = choose(gains, model.method.config.risk)
    model.method.reach.fill_(reach)
    alike = possible = None
    if "shown" in values:
        part, value = values["shown"]
        alike, possible = agreement(part, value[0]), agreement(part, -mean_rank(part))
    found = Safety(None if reach >= UNLIMITED else reach, gain, bound, alike, possible, by)
    if not found.faithful:
        warn(found.sentence)
    return found


def parts_of(log: Log | None) -> dict[str, Counts]:
    """The pages of a log, reduced, by how they were ordered: "shuffled" at random, or as "shown"."""
    if log is None or not len(log.row):
        return {}
    random = np.zeros(len(log.row), bool) if log.randomized is None else np.asarray(log.randomized, bool)
    page = np.repeat(np.arange(len(log)), log.sizes)
    some = np.bincount(page, random, minlength=len(log))
    chosen = {"shuffled": some == log.sizes, "shown": some == 0}
    return {name: reduce_log(log.take(mask & (log.sizes > 0))) for name, mask in chosen.items() if mask.any()}


def imitate(model: Model, part: Counts) -> None:
    """Fit the last layer of m to the orders of pages, to the end: it is convex, and steps of training stop short.

    A row is a query with the mean ranks of its documents; those that were never shown come last.
    """
    tower = model.ranker.ranker if isinstance(model.ranker, WithSide) else model.ranker
    if not isinstance(tower, nn.Sequential) or not isinstance(layer := tower[-1], nn.Linear):
        return  # trees, and rankers that read, keep what they learned
    counts = by_query(part, UNSEEN)
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(counts))[:MOST].copy())
    device = layer.weight.device
    batch = Batches(counts, model.input(part.lists, device), device=device).rows(rows.to(device))
    with torch.no_grad():
        hidden = batch.pad(tower[:-1](batch.documents)).double()  # [B, K, H]
    weight = layer.weight.detach()[1].double().requires_grad_()
    optimizer = torch.optim.LBFGS([weight], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = imitation_loss(hidden @ weight, batch) + RIDGE * weight.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        layer.weight[1] = weight.to(layer.weight)


@dataclass(frozen=True)
class Gains:
    """What clicks of pages gain with each reach over reach 1."""

    clicks: Array
    """[Q] of each query that has any."""
    gain: Array
    """[G, Q] sums over them, a row for each of `REACHES`."""

    @classmethod
    def of(cls, part: Counts, values: list[Array]) -> Gains:
        """From what clicks on results of pages are worth with each reach, [R, K] each."""
        _, query = np.unique(part.query, return_inverse=True)
        clicks = np.bincount(query, part.clicks.sum(1))
        sums = [np.bincount(query, (part.clicks * value).sum(1)) for value in values]
        return cls(clicks[clicks > 0], (np.stack(sums) - sums[0])[:, clicks > 0])

    def bounds(self, risk: float, sign: int = 1) -> Array:
        """Lower bound of the gain of a click with each reach, [G]; with sign -1 of the loss."""
        n, total = len(self.clicks), self.clicks.sum()
        if n < FEWEST:
            return np.full(len(self.gain), -np.inf)
        mean = self.gain.sum(1) / total
        spread = self.gain - mean[:, None] * self.clicks
        error = np.sqrt(n / (n - 1) * np.square(spread).sum(1)) / total
        lower: Array = sign * mean - stdtrit(n - 1, 1 - risk / max(len(self.gain) - 1, 1)) * error
        return lower


def choose(found: dict[str, Gains], risk: float) -> tuple[float, str, float | None, float | None]:
    """The reach, whose clicks chose it, the gain and its lower bound.

    >>> gain = np.array([[0.0] * 12, [2.0, 2.1, 1.9] * 4, [3.0, -3.0, 2.0] * 4])
    >>> choose({"shown": Gains(np.full(12, 10.0), gain)}, 0.05)[:2]
    (1.25, 'shown')
    """
    against = found["shuffled"].bounds(risk, -1) > 0 if "shuffled" in found else False
    for name in ("shuffled", "shown"):
        if name not in found:
            continue
        bounds = np.where(against, -np.inf, found[name].bounds(risk))
        best = int(bounds[1:].argmax()) + 1
        if bounds[best] > 0:
            gain = found[name].gain[best].sum() / found[name].clicks.sum()
            return REACHES[best], name, float(gain), float(bounds[best])
    return REACHES[0], "none", None, None


def discounts(model: Model, part: Counts) -> list[Array]:
    """1 / log2(1 + rank) of the results of pages in the whole list, [R, K], for each of `REACHES`."""
    method = model.method
    assert isinstance(method, KnownPropensity)
    queries, place = np.unique(part.query, return_inverse=True)
    lists = part.lists.take(queries)
    row = part.row - part.lists.offsets[part.query][:, None] + lists.offsets[place][:, None]
    relevance, mask = model.relevance(model.prepared(lists), lists.sizes)
    found = []
    for reach in REACHES:
        method.reach.fill_(reach)
        with torch.no_grad():
            ranks = ranks_of(method.score(relevance, mask), mask)[mask].cpu().numpy()  # [N]
        value = 1 / np.log2(1 + ranks)
        found.append(np.where(part.where, value[np.where(part.where, row, 0)], 0.0))
    return found


def mean_rank(part: Counts) -> Array:
    """The rank that pages showed each document at, on average, [R, K]."""
    row = part.row[part.where]
    size = int(row.max(initial=0)) + 1
    total, shown = (
        np.bincount(row, each[part.where], minlength=size)
        for each in (part.position * part.impressions, part.impressions)
    )
    ranks: Array = (total / np.maximum(shown, 1e-12))[np.where(part.where, part.row, 0)]
    return ranks


def agreement(part: Counts, value: Array) -> float:
    """Share of pairs of results of pages that values [R, K] order as they were shown; equal ones count a half."""
    both = part.where[:, :, None] & part.where[:, None, :]
    above = both & (part.position[:, :, None] < part.position[:, None, :])
    weight = above * part.impressions.max(1)[:, None, None]
    right = np.heaviside(value[:, :, None] - value[:, None, :], 0.5)
    total = weight.sum()
    return float((weight * right).sum() / total) if total else 1.0
