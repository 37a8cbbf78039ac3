"""Why does pair_debias not correct a confounded log? Its weighted loss does; its estimate of the ratios does not.

python reproductions/experiments/pair_debias.py [--seeds 5]
"""

from __future__ import annotations

import argparse
from typing import Literal

import numpy as np
import torch
from common import THETA, arm, machine, spread, world

import unskew
from unskew_reproductions import methods as beside
from unskew_reproductions.methods.pair_debias import PairDebias


class FromTruth(PairDebias):
    """Pair debiasing whose t+ starts at the true examination; `moving` says whether it is then updated."""

    moving: bool = True
    name: Literal["pair_debias"] = "pair_debias"

    def build(self, context):
        method = super().build(context)
        method.clicked.copy_(torch.as_tensor(THETA))
        if not self.moving:
            method.update = lambda *args: None
        return method


METHODS = {
    "naive, pairwise loss": unskew.methods.Naive(loss="pairwise"),
    "t+ held at the truth": FromTruth(moving=False),
    "t+ starts at the truth, then updated": FromTruth(),
    "as published, p = 1": beside.PairDebias(),
    "as published, p = 0": beside.PairDebias(regularization=0.0),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = {name: [] for name in METHODS}
    for seed in range(options.seeds):
        log, test = world(seed, 2000, 1_000_000)
        for name, method in METHODS.items():
            results[name].append(arm(log, test, method, seed=seed, steps=500, validate_on="nothing"))
    print(f"{machine()}\n\n| arm | nDCG@10 | t+ at rank 10, mean (truth {THETA[9]:.3f}) |\n|---|---|---|")
    for name, runs in results.items():
        ratios = [run["examination"][9] for run in runs if run["examination"] is not None]
        print(
            f"| {name} | {spread([run['ndcg'] for run in runs])} | {np.mean(ratios):.3f} |"
            if ratios
            else f"| {name} | {spread([run['ndcg'] for run in runs])} | |"
        )


if __name__ == "__main__":
    main()
