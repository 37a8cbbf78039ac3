"""Scoring: a vectorization model, which runs its base network beside the ranker, against the ranker alone.

Both score the same 256 lists of 24 documents with 700 features, hidden layers of 512, 256 and 128 units. The base
network of 256 and 64 units adds 0.38 times the ranker's matrix products, that of 128 and 64 adds 0.19 times. They
take turns; a ratio is taken for each turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import torch
from common import PUBLISHED, Options, Row, quartiles, timed

from unskew.learning.methods import Context, MethodConfig, Naive, Vectorization
from unskew.learning.rankers import MLP
from unskew.learning.scoring.model import Model, build
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.scaling import fit_scaler

LISTS, DOCUMENTS, FEATURES, POSITIONS = 256, 24, 700, 10
BASES = ((256, 64), (128, 64))
"""The published base model, and one of half its cost."""
MOST = 1.25


def compare(what: str, sides: list[Callable[[], object]], turns: int) -> Row:
    """The median ratio over many turns."""
    for side in sides * 2:
        side()
    pairs = [[timed(side) for side in sides] for _ in range(turns)]
    ratios = [vector.cpu / scalar.cpu for vector, scalar in pairs]
    wall = statistics.median(vector.wall / scalar.wall for vector, scalar in pairs)
    times = [statistics.median(1000 * watch.cpu for watch in side) for side in zip(*pairs, strict=True)]
    middle = statistics.median(ratios)
    return Row(
        what,
        f"{middle:.2f} ({times[0]:.1f} ms over {times[1]:.1f} ms)",
        f"{quartiles(ratios)}; wall {wall:.2f}",
        f"at most {MOST}",
        middle <= MOST,
    )


def score(options: Options) -> list[Row]:
    """From features as they come, and from scaled ones."""
    lists = make_lists(LISTS, FEATURES, (DOCUMENTS, DOCUMENTS), seed=0)
    scaler = fit_scaler("standard", lists)
    scaled = torch.from_numpy(np.asarray(scaler.apply(lists).features, np.float32))

    def model(method: MethodConfig) -> Model:
        torch.manual_seed(0)
        return build(method, MLP(sizes=PUBLISHED), scaler, FEATURES, Context(positions=POSITIONS))

    scalar, turns, rows = model(Naive()), 10 if options.quick else 50, []
    for base in BASES:
        vector = model(Vectorization(dimension=5, base=base))
        vector.method.ready.fill_(1)
        what = f"vectorization, d = 5, base of {' and '.join(map(str, base))}"
        sides = [lambda m=m: m.score(lists) for m in (vector, scalar)]
        rows.append(compare(f"{what}: Model.score", sides, turns))
        sides = [lambda m=m: m.score_prepared(scaled, lists.sizes) for m in (vector, scalar)]
        rows.append(compare("the same, features scaled already", sides, turns))
    return rows
