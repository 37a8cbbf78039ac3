"""PBM and UBM with attraction as a function of features, by gradient on counts: it holds for new documents.

    P(c) = θ σ(f(x)),   f a linear function or a small network of the standardised features

The counts are those of the models without features: clicks and impressions of a pair under a condition (rank for
PBM; rank and last click for UBM). A step takes a batch of pairs with all their conditions, so a pass costs what
there are pairs, whatever the number of pages. θ is fitted beside f, as log-odds, and starts where the model
without features ends. f starts as the mean attraction. Queries that are held out say which step was best.

Reference: as in `browsing.py`; attraction by features is that of Richardson, Dominowska and Ragno (WWW 2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from unskew.diagnosis.click_models.browsing import CellCounts, ExaminedModel
from unskew.diagnosis.click_models.contract import ClickModel
from unskew.diagnosis.click_models.em import SMALLEST
from unskew.diagnosis.click_models.fitted import FittedClickModel, find_model, fit_model
from unskew.diagnosis.click_models.pages import ShownPairs, pages_of_log, pairs_of
from unskew.errors import ConfigError, DataError
from unskew.settings import Config
from unskew.types import Array, Lists, Log

if TYPE_CHECKING:
    from torch import Tensor, nn

EVERY, FEW = 20, 20
"""Steps between two looks at held-out queries, and queries below which none is held out."""


@dataclass(frozen=True)
class FeatureClickModel:
    """A click model that judges any document by its features."""

    fitted: FittedClickModel
    """The model of the pairs that it was fitted to, with the attraction that features give them."""
    network: nn.Module
    mean: Array
    """[D] of the features."""
    scale: Array
    """[D] of the features."""

    def attractiveness(self, features: Array) -> Array:
        """The chance that each document is clicked once examined, [N], from features [N, D]."""
        import torch

        if features.ndim != 2 or features.shape[1] != len(self.mean):
            raise DataError(f"features are of shape {features.shape}", hint=f"give {len(self.mean)} a document")
        with torch.no_grad():
            odds = self.network(torch.from_numpy(standard(features, self.mean, self.scale))).squeeze(-1)
            found: Array = torch.sigmoid(odds).double().numpy()
        return np.clip(found, SMALLEST, 1 - SMALLEST)

    def on(self, lists: Lists) -> FittedClickModel:
        """The click model of all documents of these lists, shown or not."""
        every = np.arange(len(lists.features))
        return self.of(pairs_of(lists, every), self.attractiveness(np.asarray(lists.features)))

    def of(self, pairs: ShownPairs, attraction: Array) -> FittedClickModel:
        """The same readers, with other pairs; evidence is that of the log, where it has the pair."""
        found = np.append(self.fitted.pairs.find(pairs), len(self.fitted.pairs))
        told = self.fitted.evidence.items()
        evidence = {name: values[found] for name, values in told if name != "standard_error"}
        parameters = self.fitted.parameters | {"attractiveness": np.append(attraction, attraction.mean())}
        return replace(self.fitted, pairs=pairs, parameters=parameters, evidence=evidence)


class Descent(Config):
    """How a function of features is fitted."""

    hidden: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = ()
    """Layers of the network; none is a linear function."""
    steps: Annotated[int, Field(ge=1)] = 1000
    """Of Adam."""
    batch: Annotated[int, Field(ge=1)] = 4096
    """Pairs of a step."""
    rate: Annotated[float, Field(gt=0)] = 0.02
    """Step size of Adam at the start; it falls to 0."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the queries whose clicks say when it was best; 0 takes the last step."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the first weights and the order of pairs."""


def fit_with_features(
    log: Log, model: ClickModel | str = "pbm", descent: Descent | None = None
) -> FeatureClickModel:
    """Fit PBM or UBM to a log in memory, with attraction from the features of its lists.

    `descent` says how.
    """
    name, chosen = find_model(model)
    if not isinstance(chosen, ExaminedModel):
        raise ConfigError("features are for pbm and ubm", argument="model", value=name)
    pages = pages_of_log(log)
    plain = fit_model(name, chosen, pages)  # where θ starts, and what is known of each pair
    features = np.asarray(log.lists.features[np.unique(log.row)], np.float64)
    mean, spread = features.mean(0), features.std(0)
    scale = np.where(spread > 0, spread, 1.0)
    counts = chosen.counter(pages)(pages.weight)
    network, theta = descend(standard(features, mean, scale), counts, plain, descent or Descent())
    found = FeatureClickModel(
        replace(plain, parameters=plain.parameters | {"examination": theta}), network, mean, scale
    )
    return replace(found, fitted=found.of(plain.pairs, found.attractiveness(features)))


def descend(
    features: Array, counts: CellCounts, plain: FittedClickModel, asked: Descent
) -> tuple[nn.Module, Array]:
    """Adam over batches of pairs: the network, and θ of every condition, where held-out queries were told best."""
    import torch

    torch.manual_seed(asked.seed)
    rng = np.random.default_rng(asked.seed)
    network = small_network(features.shape[1], asked.hidden, float(plain.assumed["attractiveness"].mean))
    theta = torch.nn.Parameter(torch.logit(torch.from_numpy(plain.parameters["examination"]).float()))
    weights = [*network.parameters(), theta]
    adam = torch.optim.Adam(weights, lr=asked.rate)
    falls = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / asked.steps)
    held = _held_out(plain.pairs.query, asked.held_out, rng)
    judges = np.flatnonzero(held[counts.pair])

    def likelihood(some: Array) -> Tensor:
        """Of some cells; every pair passes the network once."""
        pairs, back = np.unique(counts.pair[some], return_inverse=True)
        odds = network(torch.from_numpy(features[pairs])).squeeze(-1)[torch.from_numpy(back)]
        parts = (counts.condition[some], counts.clicks[some], counts.unclicked[some])
        condition, clicks, unclicked = (torch.from_numpy(part) for part in parts)
        return log_likelihood(odds, theta[condition], clicks, unclicked)

    best, kept = -np.inf, [each.detach().clone() for each in weights]
    for step, some in enumerate(islice(_batches(counts, held, asked.batch, rng), asked.steps)):
        if len(judges) and step % EVERY == 0:
            with torch.no_grad():
                told = float(likelihood(judges))
            if told > best:
                best, kept = told, [each.detach().clone() for each in weights]
        adam.zero_grad()
        torch.autograd.backward(-likelihood(some))
        adam.step()
        falls.step()
    if len(judges):
        with torch.no_grad():
            for each, value in zip(weights, kept, strict=True):
                each.copy_(value)
    return network, np.clip(torch.sigmoid(theta).detach().double().numpy(), SMALLEST, 1 - SMALLEST)


def _held_out(query: Array, share: float, rng: np.random.Generator) -> Array:
    """Which pairs are of queries that say when to stop, [P] bool; none where there are few queries."""
    distinct, number = np.unique(query, return_inverse=True)
    chosen = rng.permutation(len(distinct)) < (share * len(distinct) if len(distinct) >= FEW else 0)
    return np.asarray(chosen[number])


def _batches(counts: CellCounts, held: Array, batch: int, rng: np.random.Generator) -> Iterator[Array]:
    """The cells of batches of pairs that are not held out, pass after pass."""
    parts = max(1, round(float((~held).sum()) / batch))
    while True:
        yield from cells_of(counts, np.where(held, parts, rng.integers(parts, size=len(held))), parts)


def cells_of(counts: CellCounts, part: Array, parts: int) -> Iterator[Array]:
    """The cells of the pairs of each part, by the part of every pair [P]; parts without a cell are left out, and
    pairs of a part beyond the last.
    """
    of_cell = part[counts.pair]
    order = np.argsort(of_cell, kind="stable")
    bounds = np.searchsorted(of_cell[order], np.arange(parts + 1))
    yield from (order[a:b] for a, b in pairwise(bounds.tolist()) if b > a)


def log_likelihood(attraction: Tensor, examination: Tensor, clicks: Tensor, unclicked: Tensor) -> Tensor:
    """Mean over impressions of c log p + (n - c) log(1 - p), p = σ(attraction) σ(examination)."""
    import torch
    from torch.nn.functional import logsigmoid

    log_p = (logsigmoid(attraction) + logsigmoid(examination)).clamp(max=-1e-7).double()
    total = clicks * log_p + unclicked * torch.log(-torch.expm1(log_p))
    found: Tensor = total.sum() / (clicks + unclicked).sum()
    return found


def small_network(width: int, hidden: Sequence[int], level: float) -> Any:
    """Layers with ELU between them; the last starts at 0, with the log-odds of the mean attraction as its bias."""
    from torch import nn

    sizes = [width, *hidden]
    layers: list[nn.Module] = []
    for one, other in pairwise(sizes):
        layers += [nn.Linear(one, other), nn.ELU()]
    last = nn.Linear(sizes[-1], 1)
    nn.init.zeros_(last.weight)
    nn.init.constant_(last.bias, float(np.log(level / (1 - level))))
    return nn.Sequential(*layers, last)


def standard(features: Array, mean: Array, scale: Array) -> Array:
    """Features less their mean, over their spread; float32."""
    return np.asarray(((np.asarray(features, np.float64) - mean) / scale).astype(np.float32))
