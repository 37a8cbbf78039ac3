"""One optimiser step against the bare matrix products of its network, and where the rest goes.

A step is all of `Trainer.step`: gather the batch, forward, loss, backward, clip, optimiser. The bare products are
`torch.mm` calls of the same shapes: x W' of every layer, then the gradient of each W, and of each x but the first.
The two take turns; a ratio is taken for each turn. `parts` walks through a step of the default network piece by
piece, `one_or_two` compares one thread with two over networks of growing size.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import torch
from common import PUBLISHED, Options, Row, Stopwatch, quartiles, timed

from unskew.learning.fitting.loop import Trainer
from unskew.learning.fitting.runtime import WORTHWHILE, seed_draws, threads
from unskew.learning.fitting.training import Training, clip_gradient
from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import MLP
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import Facts, reduce_log
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists

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


def training_of(features: int, method: str, sizes: tuple[int, ...]) -> tuple[Trainer, Batches]:
    """A trainer, and full batches of 256 lists of 10 documents."""
    lists = make_lists(LISTS * 8, features, (RESULTS, RESULTS), seed=0)
    log = simulate(lists, PositionBias(), pages=100_000, seed=0)
    torch.manual_seed(0)
    module = METHODS[method]().build(Context(positions=RESULTS, facts=Facts.of(log)))
    trainer = Trainer(MLP(sizes=sizes).build(features, 1), module, Training(batch=LISTS))
    return trainer, Batches(reduce_log(log), size=LISTS)


def compare(features: int, method: str, sizes: tuple[int, ...], turns: int) -> Row:
    """The median ratio over many turns."""
    trainer, batches = training_of(features, method, sizes)
    products = bare_products(LISTS * RESULTS, (features, *sizes, 1))
    for warm in range(3):
        trainer.step(batches, warm)
        products()
    pairs = [(timed(lambda t=turn: trainer.step(batches, t)), timed(products)) for turn in range(turns)]
    ratios = [ours.cpu / bare.cpu for ours, bare in pairs]
    wall = statistics.median(ours.wall / bare.wall for ours, bare in pairs)
    times = [statistics.median(1000 * watch.cpu for watch in side) for side in zip(*pairs, strict=True)]
    middle, large = statistics.median(ratios), sizes == PUBLISHED
    return Row(
        f"{method}, {features} features, {'-'.join(map(str, sizes))}",
        f"{middle:.2f} ({times[0]:.1f} ms over {times[1]:.1f} ms)",
        f"{quartiles(ratios)}; wall {wall:.2f}",
        "at most 1.3" if large else "",
        middle <= 1.3 if large else None,
    )


def laps(trainer: Trainer, batches: Batches, step: int, times: dict[str, list[float]]) -> None:
    """`Trainer.step` piece by piece, the processor seconds of each."""
    began = time.process_time()

    def lap(name: str) -> None:
        nonlocal began
        times[name].append(time.process_time() - began)
        began = time.process_time()

    seed_draws(step, trainer.device)
    lap("seed")
    batch = batches.at(step)
    lap("rows of the batch")
    outputs = batch.documents
    lap("their documents")
    for layer in trainer.ranker.children():
        outputs = layer(outputs)
        lap(f"forward, {type(layer).__name__}")
    loss = trainer.method(batch.pad(outputs), batch)
    lap("loss")
    trainer.forget_gradient()
    loss.backward()
    lap("backward")
    for group in trainer.optimizer.param_groups:
        clip_gradient(group["params"], 5.0)
    lap("clip")
    trainer.optimizer.step()
    lap("optimiser")


def parts(method: str, turns: int) -> list[Row]:
    """Where the time of a step of the default network goes: medians, and their share of the whole."""
    trainer, batches = training_of(40, method, MLP().sizes)
    products = bare_products(LISTS * RESULTS, (40, *MLP().sizes, 1))
    times: dict[str, list[float]] = defaultdict(list)
    for turn in range(turns + 10):
        laps(trainer, batches, turn, times)
    layers = Counter(type(layer).__name__ for layer in trainer.ranker.children())
    count = {f"forward, {kind}": times_each for kind, times_each in layers.items()}
    spent = {name: 1000 * statistics.median(values) * count.get(name, 1) for name, values in times.items()}
    spent["(bare products, forward and backward)"] = 1000 * statistics.median(
        timed(products).cpu for _ in range(turns)
    )
    whole = sum(value for name, value in spent.items() if not name.startswith("("))
    return [
        Row(f"{method}, 40 features: {name}", f"{value:.3f} ms ({value / whole:.0%})")
        for name, value in spent.items()
    ]


def step(options: Options) -> list[Row]:
    """The published network over both widths, the default one, and its parts."""
    turns = 20 if options.quick else 100
    rows = [compare(features, method, PUBLISHED, turns) for features in (136, 700) for method in ("naive", "dla")]
    rows += [compare(40, method, MLP().sizes, turns) for method in ("naive", "dla")]
    return rows + parts("dla", 2 * turns)


def one_or_two(options: Options) -> list[Row]:
    """A step with one thread and with two, by multiplications of its forward products."""
    shapes = (40, (64, 32)), (136, (64, 32)), (136, (128, 64)), (136, (256, 128)), (136, PUBLISHED)
    return [second_thread(features, sizes, 20 if options.quick else 60) for features, sizes in shapes]


def second_thread(features: int, sizes: tuple[int, ...], turns: int) -> Row:
    """What a second thread does to the time of a step; the two take turns."""
    trainer, batches = training_of(features, "naive", sizes)
    work = LISTS * RESULTS * sum(weight.numel() for weight in trainer.ranker.parameters())
    watches: dict[int, list[Stopwatch]] = {1: [], 2: []}
    for turn in range(-3, turns):
        for count, found in watches.items():
            with threads(count):
                watch = timed(lambda: trainer.step(batches, turn % 8))  # noqa: B023
                found += [watch] if turn >= 0 else []
    pairs = list(zip(watches[1], watches[2], strict=True))
    wall = statistics.median(two.wall / one.wall for one, two in pairs)
    cpu = statistics.median(two.cpu / one.cpu for one, two in pairs)
    what = f"{features}-{'-'.join(map(str, sizes))}, {work / 1e6:.0f} million multiplications"
    chosen = "one thread" if work < WORTHWHILE else "as many as torch has"
    return Row(what, f"{wall:.2f} of the wall time", f"{cpu:.2f} of the processor time", chosen)
