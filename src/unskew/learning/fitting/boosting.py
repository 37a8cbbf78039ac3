"""Boosting on the gradient of any method: each round fits one tree per relevance output to the loss of all clicks.

With F [N, O] the relevance outputs of the documents shown, L the method's loss and N their number,

    g = N dL / dF                            by autograd; a document of several rankings gets the sum over them
    h_do = sum_p |s_d (H (s * 1_p))_do|      H = N d2L / dF2, s_d = +-1 at random, 1_p all documents' output p

are what LightGBM grows a tree on: leaf value = -learning_rate sum g / (sum h + l2). Losses are means over pages
or clicks, so the factor N keeps g and h of the same size however many pages and queries there are.

The curvature h is Hutchinson's estimate of the Hessian's diagonal, by a second backward pass. For a loss that adds
up over documents it is exact: n p (1 - p) for cross-entropy. For a list softmax its mean is the diagonal
w p_k (1 - p_k), and it is never negative. Where a loss is not convex, magnitudes replace signs. All outputs of a
document move in one round, so each counts the curvature that it shares with the others. A floor of |g| / 10 bounds
the step of a document.

Between rounds the method's own parameters, and a network beside the trees where there is one, take a few optimiser
steps; EM updates happen in training mode, as ever. A network that gives some of the relevance outputs is what a
method differentiates by the features, and its step size is shrunk as the trees are: a faster one takes from them
what is theirs to explain. The rest (validation, patience, Ctrl-C, the best round) is the Trainer's.

What a tree may split on is drawn from (seed, round, output), and a checkpoint holds the trees and the outputs, so
a resumed run grows the same trees as an uninterrupted one.

Legend: N documents shown, O outputs, R rows of the reduced log, B rows of a chunk, K results of a page.
"""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unskew.errors import DataError
from unskew.learning.boosters import TREE_FORMATS, package
from unskew.learning.fitting.loop import Draws, Trainer
from unskew.learning.fitting.runtime import seed_draws
from unskew.learning.fitting.training import Training, by_rate
from unskew.learning.methods.contract import MethodModule
from unskew.learning.rankers.networks import WithSide, penalty_of
from unskew.learning.rankers.trees import Trees, tree_rankers
from unskew.logs.counts.batches import Batches
from unskew.tables.lists.inputs import Vectors
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
        """Validations come at least twenty times in a run."""
        every = min(config.validate_every, max(trees.rounds // 20, 1))
        keep = min(config.checkpoint_every, max(trees.rounds // 4, 1))
        rounds = {"steps": trees.rounds, "validate_every": every, "checkpoint_every": keep}
        config = config.model_copy(update=rounds)
        self.trees, (self.tree_ranker,) = trees, tree_rankers(ranker)
        self.tree_ranker.threads = config.threads or 0
        super().__init__(ranker, method, config, identity)
        own = len(by_rate(method))
        self.learned = isinstance(ranker, WithSide) or own > 0
        groups = self.optimizer.param_groups
        for group in groups[: len(groups) - own] if method.boosted is not None else ():  # the method's come last
            group["base"] *= trees.learning_rate
        self.table: Batches | None = None
        self.restored: Tensor | None = None  # outputs of a checkpoint

    def finish(self) -> None:
        """The trees of the best round remain, and nothing of the training data."""
        super().finish()
        self.tree_ranker.boosters = [*self.tree_ranker.forest().compact().boosters]
        self.table = None

    def step(self, batches: Draws, step: int) -> tuple[Tensor, int]:
        """One round: gradient, a tree for each output, then steps of the method's parameters."""
        seed_draws(self.config.seed * 1_000_003 + step, self.device)
        if self.table is None:
            assert isinstance(batches, Batches), "trees grow from a table in memory"
            self.begin(batches)
        self.modules.train()
        loss, gradient, curvature = self.differentiate(step)
        self.grow(gradient, curvature, step)
        steps, chunks = self.trees.bias_steps if self.learned else 0, self.chunks(step)
        for number in range(steps):  # of the method's parameters, and of a network beside the trees
            index = chunks[(step * steps + number) % len(chunks)]
            relevance, batch = self.relevance(index, self.outputs.float())
            self.update(self.method(relevance, batch) + penalty_of(self.ranker), step)
        return loss, len(self.outputs)

    def begin(self, batches: Batches) -> None:
        """Number the documents shown from 0 to N, and build a booster for each output: empty, or as restored."""
        where = batches.row >= 0
        shown: Tensor = torch.unique(batches.row[where])  # [N] rows of the lists' features, ascending
        self.table = copy.copy(batches)
        self.table.row = torch.where(where, torch.searchsorted(shown, batches.row.clamp(min=0)), -1)
        features = batches.input.gather(shown)
        side = isinstance(self.ranker, WithSide)
        # only a network beside the trees reads them
        self.table.input = Vectors(features if side else features[:, :0])
        self.features = features.cpu().numpy()
        self.settings = self.trees.parameters(threads=self.config.threads)
        if self.restored is None:
            self.outputs, shared = self.tree_ranker(features).double(), self.dataset()
            count = self.outputs.shape[1]
            self.tree_ranker.boosters = [package("lightgbm").Booster(self.settings, shared) for _ in range(count)]
        else:
            self.outputs = self.restored.to(features.device)
            self.tree_ranker.boosters = [self.go_on(read) for read in self.tree_ranker.boosters]

    def dataset(self) -> Any:
        """The documents shown as LightGBM takes them."""
        labels = [0.0] * len(self.features)
        return package("lightgbm").Dataset(self.features, labels, params=self.settings, free_raw_data=False)

    def go_on(self, read: Any) -> Any:
        """A booster that can grow, with the trees of one that was read.

        LightGBM draws features otherwise in the first round of a booster; so that round is spent here, on no tree.
        """
        flat = [fill(len(self.features), dtype=np.float32) for fill in (np.zeros, np.ones)]
        return package("lightgbm").train(
            self.settings | {"objective": lambda _scores, _data: flat},
            self.dataset(),
            num_boost_round=1,
            init_model=read,
            keep_training_booster=True,
        )

    def chunks(self, step: int) -> list[Tensor]:
        """The rows of this round, cut so that a chunk fits in memory."""
        assert self.table is not None
        rows, width = self.table.row.shape
        index = torch.arange(rows)
        if rows > self.trees.rows:
            generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + step)
            index = torch.randperm(rows, generator=generator)[: self.trees.rows]
        widest = max(
            width, self.outputs.shape[1], self.features.shape[1] if isinstance(self.ranker, WithSide) else 0
        )
        size = max(_CELLS // (width * widest), 1)
        return list(torch.split(index.to(self.table.device), size))

    def relevance(self, index: Tensor, outputs: Tensor) -> tuple[Tensor, ClickBatch]:
        """These rows as a batch, and the relevance outputs of their documents, [B, K, O]."""
        assert self.table is not None
        batch = self.table.rows(index)
        batch.documents.requires_grad_(self.method.input_gradient)
        own = outputs[self.table.row[index].flatten()[batch.packed]]
        if isinstance(self.ranker, WithSide):
            own = self.ranker.join(own, batch.documents)
        return batch.pad(own), batch

    def differentiate(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Mean loss, and g and h of the documents shown, summed over chunks by their share of the pages."""
        outputs = self.outputs.float().requires_grad_()
        signs = torch.randint(0, 2, (len(outputs),), device=outputs.device).to(outputs) * 2 - 1
        total, weight = torch.zeros((), device=outputs.device), torch.zeros((), device=outputs.device)
        gradient, curvature = torch.zeros_like(outputs), torch.zeros_like(outputs)
        for index in self.chunks(step):
            relevance, batch = self.relevance(index, outputs)
            pages = batch.impressions.amax(-1).sum()
            loss = self.method(relevance, batch) + penalty_of(self.ranker)
            g, h = derivatives(loss, outputs, signs)
            total, weight = total + pages * loss.detach(), weight + pages
            gradient, curvature = gradient + pages * g, curvature + pages * h
        scale = len(outputs) / weight
        gradient = gradient * scale
        return total / weight, gradient, positive(curvature * scale, gradient)

    def grow(self, gradient: Tensor, curvature: Tensor, step: int) -> None:
        """Add a tree to every booster, and what it says to the outputs."""
        ranker = self.tree_ranker
        for output, booster in enumerate(ranker.boosters):
            pair = tuple(values[:, output].contiguous().cpu().numpy() for values in (gradient, curvature))
            before = booster.current_iteration()
            # never that of the round before: LightGBM takes up only a new one
            seed = 1 + (self.config.seed * 1009 + step * 7919 + output * 104_729) % (2**31 - 1)
            add_tree(booster, pair, seed)
            added = booster.current_iteration() - before  # 0 where no split was worth it
            if added:
                grown = TREE_FORMATS["lightgbm"].grown(booster, self.features, before, added, ranker.threads)
                self.outputs[:, output] += torch.from_numpy(grown).to(self.outputs)
            ranker.kept[output] = booster.current_iteration()

    def state(self) -> dict[str, Tensor]:
        """What the Trainer keeps, the trees as the bytes of their text, and the outputs."""
        texts = [booster.model_to_string(num_iteration=-1) for booster in self.tree_ranker.boosters]
        read = [torch.frombuffer(bytearray(text, "utf-8"), dtype=torch.uint8) for text in texts]
        trees = {f"trees.{output}": text for output, text in enumerate(read)}
        return super().state() | trees | {"outputs": self.outputs}

    def restore(self, tensors: dict[str, Tensor], place: dict[str, Any]) -> None:
        """Go on where a checkpoint was written."""
        super().restore(tensors, place)
        ranker = self.tree_ranker
        texts = [tensors[f"trees.{output}"].numpy().tobytes() for output in range(len(ranker.kept))]
        ranker.boosters = [TREE_FORMATS["lightgbm"].opened(text.decode()) for text in texts]
        self.restored = tensors["outputs"]


def add_tree(booster: Any, pair: tuple[Array, ...], seed: int) -> None:
    """Let LightGBM fit a tree to gradient and curvature, on features drawn by the seed."""
    try:
        booster.reset_parameter({"feature_fraction_seed": seed})
        booster.update(fobj=lambda _scores, _data: pair)
    except package("lightgbm").basic.LightGBMError as error:
        hint = "trees need features that differ between the documents shown"
        raise DataError(f"LightGBM cannot grow a tree: {error}", hint=hint) from error
