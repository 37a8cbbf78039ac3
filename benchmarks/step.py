"""One optimiser step against the bare matrix products of its network, forward and backward.

A step is all of `Trainer.step`: gather the batch, forward, loss, backward, clip, optimiser. The bare products are
`torch.mm` calls of the same shapes: x W' of every layer, then the gradient of each W, and of each x but the first.
The two take turns; a ratio is taken for each turn.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable

import torch
from common import PUBLISHED, Options, Row, quartiles, timed

from unskew.clicks.counts.batches import Batches
from unskew.clicks.counts.reduction import Facts, reduce_log
from unskew.clicks.lists.synthetic import make_lists
from unskew.clicks.simulate import PositionBias, simulate
from unskew.learning.fitting.loop import Trainer
from unskew.learning.fitting.training import Training
from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import MLP

LISTS, RESULTS = 256, 10


def bare_products(documents: int, widths: tuple[int, ...]) -> Callable[[], None]:
    """The matrix products of one step of a network with these widths."""
    shapes = list(itertools.pairwise(widths))
    inputs = [torch.randn(documents, width) for width, _ in shapes]
    gradients = [torch.randn(documents, size) for _, size in shapes]
    weights = [torch.randn(size, width) for width, size in shapes]

    def products() -> None:
        for x, weight in zip(inputs, weights, strict=True):
            torch.mm(x, weight.t())
        for layer in reversed(range(len(shapes))):
            torch.mm(gradients[layer].t(), inputs[layer])
            if layer > 0:
                torch.mm(gradients[layer], weights[layer])

    return products


def trainer_step(features: int, method: str) -> Callable[[int], object]:
    """A step on full batches of 256 lists of 10 documents."""
    lists = make_lists(LISTS * 8, features, (RESULTS, RESULTS), seed=0)
    log = simulate(lists, PositionBias(), pages=100_000, seed=0)
    batches = Batches(reduce_log(log), size=LISTS)
    torch.manual_seed(0)
    module = METHODS[method]().build(Context(positions=RESULTS, facts=Facts.of(log)))
    trainer = Trainer(MLP(sizes=PUBLISHED).build(features, 1), module, Training(batch=LISTS))
    return lambda step: trainer.step(batches, step % (LISTS * 8 // LISTS))


def compare(features: int, method: str, turns: int) -> Row:
    """The median ratio over many turns."""
    step = trainer_step(features, method)
    products = bare_products(LISTS * RESULTS, (features, *PUBLISHED, 1))
    for warm in range(3):
        step(warm)
        products()
    pairs = [(timed(lambda t=turn: step(t)), timed(products)) for turn in range(turns)]
    ratios = [ours.cpu / bare.cpu for ours, bare in pairs]
    wall = statistics.median(ours.wall / bare.wall for ours, bare in pairs)
    times = [statistics.median(1000 * watch.cpu for watch in side) for side in zip(*pairs, strict=True)]
    middle = statistics.median(ratios)
    return Row(
        f"{method}, {features} features",
        f"{middle:.2f} ({times[0]:.1f} ms over {times[1]:.1f} ms)",
        f"{quartiles(ratios)}; wall {wall:.2f}",
        "at most 1.3",
        middle <= 1.3,
    )


def step(options: Options) -> list[Row]:
    """Both widths, both methods."""
    turns = 20 if options.quick else 100
    return [compare(features, method, turns) for features in (136, 700) for method in ("naive", "dla")]
