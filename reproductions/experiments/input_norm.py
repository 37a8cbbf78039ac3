"""What does normalising each document's raw feature vector cost, as the published rankers do?

python reproductions/experiments/input_norm.py [--seeds 3]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import arm, error, machine, spread, world

import unskew

RANKERS = {"raw features": False, "LayerNorm on raw features": True}
METHODS = {"labeled": unskew.methods.Labeled(documents="all"), "dla": unskew.methods.DLA()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = {(kind, name): [] for kind in RANKERS for name in METHODS}
    for seed in range(options.seeds):
        log, test = world(seed, 2000, 1_000_000)
        for kind, norm in RANKERS.items():
            for name, method in METHODS.items():
                ranker = unskew.rankers.MLP(sizes=(64, 32), input_norm=norm)
                results[kind, name].append(arm(log, test, method, ranker=ranker, seed=seed, steps=1000))
    print(f"{machine()}\n\n| ranker sees | method | nDCG@10 | largest error of a ratio, mean |\n|---|---|---|---|")
    for (kind, name), runs in results.items():
        errors = [error(run["examination"]) for run in runs if run["examination"] is not None]
        worst = f"{np.mean(errors):.3f}" if errors else ""
        print(f"| {kind} | {name} | {spread([run['ndcg'] for run in runs])} | {worst} |")


if __name__ == "__main__":
    main()
