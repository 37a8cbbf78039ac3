"""Which defaults of `dla`, `affine` and `tower_dropout` do no harm: chosen on some worlds, shown on others.

    python reproductions/experiments/safe_defaults.py dla              # worlds that choose
    python reproductions/experiments/safe_defaults.py dla --show       # others, that show
    python reproductions/experiments/safe_defaults.py affine,tower_dropout [--show]

A row is an arm in a world: nDCG@10 on test lists, mean and standard deviation over seeds, less that of `naive`.
The world of `dla` is position bias of several severities, that of `affine` trust bias, that of `tower_dropout`
position bias over good and bad logging rankers. No arm reads a label.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import unskew
from unskew.measuring import ndcg_metric
from unskew.simulation import PositionBias, SvmLogger, TrustBias
from unskew.simulation.behaviours.behaviour import Behaviour
from unskew_reproductions import methods as beside
from unskew_reproductions.formats.labelled import read_preset

M = unskew.methods
USUAL, WEAK, STRONG = SvmLogger(), SvmLogger(favourite=4.0), SvmLogger(share=1.0, favourite=0.3)


@dataclass(frozen=True)
class World:
    """How clicks are made: a behaviour, a logging ranker, and lists of a world of their own."""

    behaviour: Behaviour
    logger: SvmLogger = USUAL
    world: int | None = 0
    """Of the generated lists; none takes MQ2008."""


def position(severity: float) -> PositionBias:
    return PositionBias(severity=severity)


CHOOSE, SHOW = "choose", "show"
WORLDS = {
    "dla": {
        CHOOSE: {"severity 0.5": World(position(0.5)), "severity 2": World(position(2.0))},
        SHOW: {
            "severity 0.3": World(position(0.3), world=1),
            "severity 1": World(position(1.0), world=2),
            "severity 3": World(position(3.0), world=3),
            "strong logger, severity 2": World(position(2.0), STRONG, world=6),
            "trust": World(TrustBias(), world=4),
            "mq2008": World(position(1.0), world=None),
            "mq2008, severity 2": World(position(2.0), world=None),
        },
    },
    "affine": {
        CHOOSE: {"trust": World(TrustBias()), "trust, published": World(TrustBias(version="published"))},
        SHOW: {
            "trust": World(TrustBias(), world=5),
            "trust, severity 0.5": World(TrustBias(severity=0.5), world=6),
            "trust, weak logger": World(TrustBias(), WEAK, world=7),
            "severity 1": World(position(1.0), world=8),
        },
    },
    "tower_dropout": {
        CHOOSE: {"strong logger": World(position(1.0), STRONG), "weak logger": World(position(1.0), WEAK)},
        SHOW: {
            "strong logger": World(position(1.0), STRONG, world=9),
            "weak logger": World(position(1.0), WEAK, world=10),
            "usual logger": World(position(1.0), world=11),
            "strong logger, severity 2": World(position(2.0), STRONG, world=12),
        },
    },
}
ARMS = {
    "dla": {
        "naive": M.Naive(),
        **{f"dla, weights to {w}": M.DLA(max_weight=w) for w in (None, 30.0, 10.0, 5.0, 3.0)},
    },
    "affine": {
        "naive": M.Naive(),
        "tal": M.TAL(),
        "affine_list": beside.AffineList(),
        **{
            f"affine, {r}, step {s}": M.Affine(relevance=r, step=s)
            for r, s in (("sigmoid", 0.1), ("sigmoid", 0.5), ("minmax", 0.1), ("softmax", 0.1))
        },
    },
    "tower_dropout": {
        "naive": M.Naive(),
        "additive": M.Additive(),
        "additive, softmax": M.Additive(loss="softmax"),
        **{f"tower_dropout, {rate}": beside.TowerDropout(rate=rate) for rate in (0.1, 0.3, 0.6)},
        **{
            f"tower_dropout, softmax, {rate}": beside.TowerDropout(loss="softmax", rate=rate)
            for rate in (0.1, 0.3)
        },
        **{f"gradient_reversal, {s}": beside.GradientReversal(strength=s) for s in (0.03, 0.1, 0.5)},
    },
}


def lists_of(world: int | None, seed: int, queries: int):
    """Training and test lists."""
    if world is not None:
        make = {"features": 20, "world": world}
        return unskew.make_lists(queries, seed=seed, **make), unskew.make_lists(300, seed=seed + 1_000_000, **make)
    splits = read_preset("mq2008", Path(os.environ["UNSKEW_DATA"]) / "mq2008", fold=1 + seed % 5)
    return splits.train, splits.test


def ndcg(scores, lists):
    return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", type=lambda text: text.split(","))
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--arms", help="only arms whose name matches this expression, and naive")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, part = (100, SHOW) if options.show else (0, CHOOSE)
    training = {"steps": options.steps, "threads": 1, "ranker": unskew.rankers.MLP(sizes=(64, 32))}
    for which in options.which:
        for name, world in WORLDS[which][part].items():
            found = defaultdict(list)
            for seed in range(first, first + options.seeds):
                lists, test = lists_of(world.world, seed, options.queries)
                drawn = {"pages": options.pages, "randomized": 0.05, "logger": world.logger, "seed": seed}
                log = unskew.simulate(lists, world.behaviour, **drawn)
                for arm, method in ARMS[which].items():
                    if options.arms is None or arm == "naive" or re.search(options.arms, arm):
                        run = unskew.learn(log, method, seed=seed, **training, engine="none")
                        found[arm].append(ndcg(run.score(test), test))
            for arm, values in found.items():
                gain = np.subtract(values, found["naive"])
                mean = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
                print(f"| {name} | {arm} | {mean} | {gain.mean():+.3f} (worst {gain.min():+.3f}) |", flush=True)


if __name__ == "__main__":
    main()
