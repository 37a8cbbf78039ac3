"""Rankers whose relevance starts at 0, in three confounded worlds: how well do methods rank, and how steadily?

python reproductions/experiments/starts.py [--ranker linear] [--seeds 70 3]

docs/records/levels.md has it beside the version in which weights of linear rankers were drawn.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import unskew
from unskew.measuring import mean_over_seeds, ndcg_metric
from unskew_reproductions.behaviours import EVERY

METHODS = ("naive", "labeled", "dla", "regression_em", "additive", "tal", "affine", "lbd", "vectorization", "edot")


def ndcg(run, lists):
    return float(np.nanmean(ndcg_metric(run.score(lists), lists.labels, offsets=lists.offsets, at=10)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranker", default="linear")
    parser.add_argument("--behaviours", nargs="+", default=["position", "trust", "click_matrix"])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs=2, default=(70, 3), help="first, and how many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, count = options.seeds
    for behaviour in options.behaviours:
        found = {name: [] for name in options.methods}
        for seed in range(first, first + count):
            lists, test = (
                unskew.make_lists(queries, 25, seed=seed + offset)
                for queries, offset in ((options.queries, 0), (400, 10_000))
            )
            log = unskew.simulate(lists, EVERY[behaviour](), pages=options.pages, seed=seed)
            for name, values in found.items():
                values.append(
                    ndcg(unskew.learn(log, name, ranker=options.ranker, seed=seed, threads=1, engine="none"), test)
                )
        print(f"\n| {behaviour} | nDCG@10 |\n|---|---|", flush=True)
        for name, values in found.items():
            mean = mean_over_seeds(values)
            print(f"| {name} | {mean.mean:.3f} ± {mean.sd:.3f} |", flush=True)


if __name__ == "__main__":
    main()
