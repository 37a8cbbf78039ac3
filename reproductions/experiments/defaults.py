"""How the defaults are chosen, and shown: settings over worlds of many kinds.

    python reproductions/experiments/defaults.py choose            # worlds and seeds that choose
    python reproductions/experiments/defaults.py show              # others, that show
    python reproductions/experiments/defaults.py choose --arms sizes --worlds "readme;mq2008" --methods dla

An arm is a ranker and training settings. A row has nDCG@10 over whole lists of test queries, the largest relative
error of an examination ratio where a method has one, and processor seconds of `learn`. No arm reads a label.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

import unskew
from unskew.measuring import ndcg_metric
from unskew.simulation import PositionBias, SvmLogger
from unskew.types import Lists
from unskew_reproductions.formats.labelled import read_preset

EYES = tuple(PositionBias().curve)
FLAT, STEEP = tuple(k**-0.5 for k in range(1, 11)), tuple(k**-2.0 for k in range(1, 11))


USUAL, WEAK, STRONG = SvmLogger(), SvmLogger(favourite=4.0), SvmLogger(share=1.0, favourite=0.3)


@dataclass(frozen=True)
class World:
    """Lists to learn from and to test on, and how a log is drawn."""

    lists: Callable[[int], tuple[Lists, Lists]]
    """Training and test lists of a seed."""
    pages: int
    randomized: float = 0.0
    curve: tuple[float, ...] = EYES
    logger: SvmLogger = USUAL


def generated(
    queries: int, seed: int, *, features: int = 40, documents: int = 24, world: int = 0
) -> tuple[Lists, Lists]:
    """Training lists of a seed, and 500 test lists."""
    make = partial(unskew.make_lists, features=features, documents=documents, world=world)
    return make(queries, seed=seed), make(500, seed=seed + 1_000_000)


def folder(name: str) -> Path:
    """A data set in the folder that UNSKEW_DATA names."""
    return Path(os.environ["UNSKEW_DATA"]) / name


def mq2008(fold: int) -> tuple[Lists, Lists]:
    """Training and test lists of a fold: queries with a relevant document, grades 0, 2 and 4."""
    splits = read_preset("mq2008", folder("mq2008"), fold=fold)

    def graded(lists: Lists) -> Lists:
        relevant = np.maximum.reduceat(lists.labels, lists.offsets[:-1]) > 0
        return replace(lists, labels=lists.labels * 2).take(relevant)

    return graded(splits.train), graded(splits.test)


def mslr(seed: int) -> tuple[Lists, Lists]:
    """Two thirds of the sample's queries to learn from, the others to test on; drawn by the seed."""
    lists = unskew.read_letor(sorted(folder("mslr_sample").glob("*.txt*")))
    train = np.random.default_rng(seed).permutation(len(lists)) < 118
    return lists.take(train), lists.take(~train)


WORLDS: dict[str, dict[str, World]] = {
    "choose": {
        "readme": World(partial(generated, 2000), 1_000_000),
        "1,500 queries": World(partial(generated, 1500), 500_000),
        "300 queries": World(partial(generated, 300), 100_000, 0.05),
        "5,000 queries": World(partial(generated, 5000), 200_000, 0.05),
        "weak logger": World(partial(generated, 1000), 200_000, 0.05, logger=WEAK),
        "strong logger": World(partial(generated, 1000), 200_000, logger=STRONG),
        "flat": World(partial(generated, 1000), 200_000, 0.05, FLAT),
        "steep": World(partial(generated, 1000), 200_000, 0.05, STEEP),
        "ten of 140": World(partial(generated, 100, documents=140, features=25), 100_000, 1.0),
        "mq2008": World(lambda seed: mq2008(1 + seed % 2), 200_000, 0.05),
        "mslr": World(mslr, 100_000, 0.05),
    },
    "show": {
        "readme": World(partial(generated, 2000, world=1), 1_000_000),
        "1,200 queries": World(partial(generated, 1200, features=60, world=2), 400_000),
        "400 queries": World(partial(generated, 400, world=3), 100_000, 0.05),
        "4,000 queries": World(partial(generated, 4000, features=100, world=4), 300_000, 0.02),
        "weak logger": World(partial(generated, 800, world=5), 200_000, 0.05, logger=WEAK),
        "strong logger": World(partial(generated, 800, world=6), 200_000, logger=STRONG),
        "flat": World(partial(generated, 1000, world=7), 200_000, 0.05, FLAT),
        "steep": World(partial(generated, 1000, world=8), 200_000, 0.05, STEEP),
        "ten of 120": World(partial(generated, 100, documents=120, features=30, world=9), 100_000, 1.0),
        "mq2008": World(lambda seed: mq2008(3 + seed % 3), 200_000, 0.05),
        "mslr": World(lambda seed: mslr(seed + 50), 100_000, 0.05),
    },
}
SEEDS = {"choose": 0, "show": 100}
"""First seed."""


def mlp(*sizes: int, dropout: float = 0.0, **training: object) -> dict[str, object]:
    """An arm: hidden layers and training settings."""
    return {"ranker": unskew.rankers.MLP(sizes=sizes, dropout=dropout), **training}


FORMER = {"steps": 1000, "learning_rate": 0.003, "weight_decay": 0.0}
"""How networks were trained before, of 512, 256 and 128 units."""
ARMS: dict[str, dict[str, dict[str, object]]] = {
    "defaults": {"defaults": {}, "64-32, 1,000 steps": mlp(64, 32, **FORMER)},
    "before": {"before": mlp(512, 256, 128, **FORMER)},
    "sizes": {
        "linear": {"ranker": unskew.rankers.Linear(), **FORMER},
        **{"-".join(map(str, sizes)): mlp(*sizes, **FORMER) for sizes in ((16,), (32, 16), (64, 32), (128, 64))},
    },
    "dropout": {f"64-32, dropout {share:g}": mlp(64, 32, dropout=share, **FORMER) for share in (0.0, 0.1, 0.3)},
    "decay": {
        f"64-32, decay {decay:g}": mlp(64, 32, **FORMER | {"weight_decay": decay})
        for decay in (0.0, 0.001, 0.003, 0.01, 0.03)
    },
    "rates": {f"rate {rate:g}": {"learning_rate": rate} for rate in (0.003, 0.006, 0.01)},
}
"""Arms that were tried, in the order of the choices; those of a choice have what was chosen before."""


def measured(world: World, method: str, arm: dict[str, object], seed: int) -> dict[str, float]:
    """One arm in one world."""
    train, test = world.lists(seed)
    log = unskew.simulate(
        train,
        PositionBias(curve=world.curve),
        pages=world.pages,
        seed=seed,
        randomized=world.randomized,
        cutoff=10,
        logger=world.logger,
    )
    began = time.process_time()
    run = unskew.learn(log, method, seed=seed, **({"threads": 1} | arm), engine="none")
    seconds = time.process_time() - began
    found = run.propensity()
    truth = np.asarray(world.curve) / world.curve[0]
    return {
        "ndcg": float(np.nanmean(ndcg_metric(run.score(test), test.labels, offsets=test.offsets, at=10))),
        "error": float("nan") if found is None else float(np.abs(found / truth[: len(found)] - 1).max()),
        "seconds": seconds,
        "steps": run.fit.step,
        "best_step": run.fit.best_step,
    }


def main() -> None:
    """Run what was asked for, a line for each run, then a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(WORLDS))
    parser.add_argument("--arms", default="sizes", choices=list(ARMS))
    parser.add_argument("--worlds", type=lambda text: text.split(";"), help="their names, with ; between")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=["naive", "dla", "regression_em"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="add each run to this file as a line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, world in WORLDS[options.part].items():
        if options.worlds and name not in options.worlds:
            continue
        for method in options.methods:
            for arm, setting in ARMS[options.arms].items():
                for seed in range(SEEDS[options.part], SEEDS[options.part] + options.seeds):
                    row = {"world": name, "method": method, "arm": arm, "seed": seed}
                    row |= measured(world, method, setting, seed)
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    if options.out is not None:
                        with options.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")
    print(table(rows))


def table(rows: list[dict[str, object]]) -> str:
    """nDCG@10, error of ratios and seconds by world, method and arm, means over seeds."""
    groups: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for row in rows:
        groups.setdefault((row["world"], row["method"], row["arm"]), []).append(row)
    lines = [
        "| world | method | arm | nDCG@10 | error of a ratio | steps | processor s |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for key, found in groups.items():
        mean = {
            name: float(np.mean([row[name] for row in found])) for name in ("ndcg", "error", "steps", "seconds")
        }
        error = "" if np.isnan(mean["error"]) else f"{mean['error']:.2f}"
        numbers = [f"{mean['ndcg']:.3f}", error, f"{mean['steps']:.0f}", f"{mean['seconds']:.1f}"]
        lines.append(f"| {' | '.join([*map(str, key), *numbers])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
