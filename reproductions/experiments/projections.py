"""What should relevance embeddings be projected on? The four ways of `vectorization`, chosen by labels.

python reproductions/experiments/projections.py
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import unskew
from unskew.measuring import mean_over_seeds, ndcg_metric
from unskew_reproductions.behaviours import EVERY
from unskew_reproductions.methods import Projected

PROJECTIONS = ("gaussian", "factor", "labels", "pca")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--behaviours", nargs="+", default=["position", "trust", "click_matrix"])
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--dimension", type=int, default=2)
    parser.add_argument("--labelled", type=int, default=20, help="labelled lists to choose by, and to solve for")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 3), help="first, and how many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, count = options.seeds
    for behaviour in options.behaviours:
        found = {project: [] for project in PROJECTIONS}
        for seed in range(first, first + count):
            lists, test, labelled = (
                unskew.make_lists(queries, 25, seed=seed + offset)
                for queries, offset in ((options.queries, 0), (400, 10_000), (options.labelled, 20_000))
            )
            log = unskew.simulate(lists, EVERY[behaviour](), pages=options.pages, seed=seed)
            for project in PROJECTIONS:
                own = {} if project == "gaussian" else {"project": project}
                kind = Projected if own else unskew.methods.Vectorization
                method = kind(dimension=options.dimension, **own)
                run = unskew.learn(
                    log,
                    method,
                    ranker="mlp",
                    validation=labelled,
                    steps=options.steps,
                    seed=seed,
                    threads=1,
                    engine="none",
                )
                ndcg = ndcg_metric(run.score(test), test.labels, offsets=test.offsets, at=10)
                found[project].append(float(np.nanmean(ndcg)))
        print(f"\n| {behaviour} | nDCG@10 |\n|---|---|", flush=True)
        for project, values in found.items():
            mean = mean_over_seeds(values)
            print(f"| {project} | {mean.mean:.3f} ± {mean.sd:.3f} |", flush=True)


if __name__ == "__main__":
    main()
