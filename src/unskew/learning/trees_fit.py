"""Boosting on the gradient of any method: each round fits one tree per relevance output to the loss of all clicks.

With F [N, O] the relevance outputs of the documents shown, L the method's loss and N their number,

    g = N dL / dF                            by autograd; a document of several rankings gets the sum over them
    h_do = sum_p |s_d (H (s * 1_p))_do|      H = N d2L / dF2, s_d = +-1 at random, 1_p all documents' output p

are what LightGBM grows a tree on: leaf value = -learning_rate sum g / (sum h + l2). Losses are means over sessions
or clicks, so the factor N keeps g and h of the same size however many sessions and queries there are.

The curvature h is Hutchinson's estimate of the Hessian's diagonal, by a second backward pass. For a loss that adds
up over documents it is exact: n p (1 - p) for cross-entropy. For a list softmax its mean is the diagonal
w p_k (1 - p_k), and it is never negative. Where a loss is not convex, magnitudes replace signs. All outputs of a
document move in one round, so each counts the curvature that it shares with the others. A floor of |g| / 10 bounds
the step of a document.

Between rounds the method's own parameters take a few optimiser steps; EM updates happen in training mode, as ever.
The rest (validation, patience, Ctrl-C, the best round) is the Trainer's.

Legend: N documents shown, O outputs, R rows of the reduced log, B rows of a chunk, K results of a page.
"""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unskew.clicks.batches import Batches
from unskew.errors import ConfigError, DataError
from unskew.learning.methods.contract import MethodModule
from unskew.learning.rankers import WithSide
from unskew.learning.train import Fit, Report, Trainer, Training, Validate
from unskew.learning.trees import TreeRanker, Trees, lightgbm
from unskew.types import Array, ClickBatch

_CELLS = 4_000_000  # numbers in the largest tensor of a chunk


def derivatives(loss: Tensor, outputs: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient and curvature estimate of a loss with respect to outputs [N, O]; signs are +-1, [N].

    >>> f = torch.zeros(2, 1, requires_grad=True)
    >>> g, h = derivatives(torch.nn.functional.softplus(f).sum(), f, torch.tensor([1.0, -1.0]))
    >>> g.flatten().tolist(), h.flatten().tolist()
    ([0.5, 0.5], [0.25, 0.25])
    """
    (gradient,) = torch.autograd.grad(loss, outputs, create_graph=True)
    curvature = torch.zeros_like(gradient)
    for output in range(outputs.shape[1]):
        if not gradient.requires_grad:  # a loss that is linear in the outputs
            break
        along = (gradient[:, output] * signs).sum()  # H is symmetric: this gives its product with the probe
        (product,) = torch.autograd.grad(along, outputs, retain_graph=True, allow_unused=True)
        if product is not None:
            curvature += (product * signs.unsqueeze(-1)).abs()
    return gradient.detach(), curvature.detach()


def positive(curvature: Tensor, gradient: Tensor) -> Tensor:
    """The curvature with a floor of |g| / 10, positive and finite."""
    floor = gradient.abs() / 10
    return torch.where(curvature.isfinite(), torch.maximum(curvature, floor), floor).clamp(min=1e-6)


class Boosting(Trainer):
    """Trains a tower of trees; a step is a round."""

    def __init__(
        self,
        ranker: nn.Module,
        method: MethodModule,
        trees: Trees,
        config: Training,
        identity: dict[str, Any] | None = None,
    ) -> None:
        """Refuse what trees cannot do; validations come at least twenty times in a run."""
        every = min(config.validate_every, max(trees.rounds // 20, 1))
        config = config.model_copy(update={"steps": trees.rounds, "validate_every": every})
        self.trees, self.tree_ranker = trees, boosted_part(ranker, method)
        self.tree_ranker.threads = config.threads or 0
        super().__init__(ranker, method, config, identity)
        self.learned = any(True for _ in method.parameters())
        self.table: Batches | None = None

    def run(
        self,
        batches: Batches,
        *,
        validate: Validate | None = None,
        report: Report | None = None,
        checkpoints: Path | None = None,
    ) -> Fit:
        """Grow to the last round, to the end of patience, or to Ctrl-C; the trees of the best round remain."""
        fit = super().run(batches, validate=validate, report=report, checkpoints=checkpoints)
        self.tree_ranker.truncate()
        self.table = None
        return fit

    def step(self, batches: Batches, step: int) -> tuple[Tensor, int]:
        """One round: gradient, a tree for each output, then steps of the method's parameters."""
        torch.manual_seed(self.config.seed * 1_000_003 + step)
        if self.table is None:
            self.begin(batches)
        self.modules.train()
        loss, gradient, curvature = self.differentiate(step)
        self.grow(gradient, curvature)
        for number in range(self.trees.bias_steps if self.learned else 0):
            self.bias_step(step, number)
        return loss, len(self.outputs)

    def begin(self, batches: Batches) -> None:
        """Number the documents shown from 0 to N, and build an empty booster for each output."""
        where = batches.row >= 0
        shown: Tensor = torch.unique(batches.row[where])  # [N] rows of the lists' features, ascending
        self.table = copy.copy(batches)
        self.table.row = torch.where(where, torch.searchsorted(shown, batches.row.clamp(min=0)), -1)
        features = batches.features[shown]
        side = isinstance(self.ranker, WithSide)
        self.table.features = features if side else features[:, :0]  # only a network beside the trees reads them
        self.features = features.cpu().numpy()
        self.outputs = self.tree_ranker(features).double()
        library, config = lightgbm(), self.config
        settings = self.trees.parameters(seed=config.seed, threads=config.threads)
        data = library.Dataset(self.features, label=[0.0] * len(features), params=settings)
        self.tree_ranker.boosters = [
            library.Booster(settings | {"seed": (config.seed * 1009 + output) % 2**31}, data)
            for output in range(self.outputs.shape[1])
        ]

    def chunks(self, step: int) -> list[Tensor]:
        """The rows of this round, cut so that a chunk fits in memory."""
        assert self.table is not None
        rows, width = self.table.row.shape
        index = torch.arange(rows)
        if rows > self.trees.rows:
            generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + step)
            index = torch.randperm(rows, generator=generator)[: self.trees.rows]
        size = max(_CELLS // (width * max(width, self.outputs.shape[1])), 1)
        return list(torch.split(index.to(self.table.device), size))

    def relevance(self, index: Tensor, outputs: Tensor) -> tuple[Tensor, ClickBatch]:
        """These rows as a batch, and the relevance outputs of their documents, [B, K, O]."""
        assert self.table is not None
        batch = self.table.rows(index)
        own = outputs[self.table.row[index].flatten()[batch.packed]]
        if isinstance(self.ranker, WithSide):
            own = self.ranker.join(own, batch.documents)
        return batch.pad(own), batch

    def differentiate(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Mean loss, and g and h of the documents shown, summed over chunks by their share of the sessions."""
        outputs = self.outputs.float().requires_grad_()
        signs = torch.randint(0, 2, (len(outputs),), device=outputs.device).to(outputs) * 2 - 1
        total, weight = torch.zeros((), device=outputs.device), torch.zeros((), device=outputs.device)
        gradient, curvature = torch.zeros_like(outputs), torch.zeros_like(outputs)
        for index in self.chunks(step):
            relevance, batch = self.relevance(index, outputs)
            sessions = batch.impressions.amax(-1).sum()
            loss = self.method(relevance, batch)
            g, h = derivatives(loss, outputs, signs)
            total, weight = total + sessions * loss.detach(), weight + sessions
            gradient, curvature = gradient + sessions * g, curvature + sessions * h
        scale = len(outputs) / weight
        gradient = gradient * scale
        return total / weight, gradient, positive(curvature * scale, gradient)

    def grow(self, gradient: Tensor, curvature: Tensor) -> None:
        """Add a tree to every booster, and what it says to the outputs."""
        ranker = self.tree_ranker
        for output, booster in enumerate(ranker.boosters):
            pair = tuple(values[:, output].contiguous().cpu().numpy() for values in (gradient, curvature))
            before = booster.current_iteration()
            add_tree(booster, pair)
            added = booster.current_iteration() - before  # 0 where no split was worth it
            if added:
                grown = ranker.grown(booster, self.features, before, added)
                self.outputs[:, output] += grown.to(self.outputs)
            ranker.kept[output] = booster.current_iteration()

    def bias_step(self, step: int, number: int) -> None:
        """One optimiser step of the method's parameters, and of a network beside the trees, on one chunk."""
        chunks = self.chunks(step)
        index = chunks[(step * self.trees.bias_steps + number) % len(chunks)]
        relevance, batch = self.relevance(index, self.outputs.float())
        loss = self.method(relevance, batch)
        self.update(loss, step)

    def save(self, folder: Path) -> None:
        """Write no checkpoint: boosting does not resume."""

    def resume(self, folder: Path | None) -> bool:
        """Never takes up a checkpoint; says so where a run was interrupted."""
        if folder is not None and (folder / "run.json").exists():
            done = json.loads((folder / "run.json").read_text()).get("steps", 0)
            warnings.warn(
                f"an interrupted run of trees does not resume; its {done} rounds are grown again", stacklevel=5
            )
        return False


def add_tree(booster: Any, pair: tuple[Array, ...]) -> None:
    """Let LightGBM fit a tree to gradient and curvature."""
    try:
        booster.update(fobj=lambda _scores, _data: pair)
    except lightgbm().basic.LightGBMError as error:
        hint = "trees need features that differ between the documents shown"
        raise DataError(f"LightGBM cannot grow a tree: {error}", hint=hint) from error


def boosted_part(ranker: nn.Module, method: MethodModule) -> TreeRanker:
    """The trees of a tower, if this method can be trained with them."""
    if method.input_gradient:
        raise ConfigError(
            "the method differentiates the ranker by its features, and trees have no such derivative; choose a "
            "network, or lbd_ber or unlimited, or method.strength = 0"
        )
    part = ranker.ranker if isinstance(ranker, WithSide) else ranker
    if not isinstance(part, TreeRanker):
        raise ConfigError(f"the method builds its own {type(part).__name__}, which trees cannot replace")
    return part
