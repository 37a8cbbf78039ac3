"""MQ2008 fold 1 with PBM clicks: methods on trees, and the LambdaMART that one would otherwise reach for.

python experiments/trees.py FOLDER [--seeds 2] [--per-query 300] [--arms ipw,dla,additive,lightgbm_position]

Weights are chosen on validation labels. Baselines take 20,000 sessions with a click.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from common import machine, spread
from mq2008 import graded

import unskew
from unskew.measuring import ndcg_metric

REFUSE = ("lbd", "lbd_lips")  # they differentiate the ranker by its features


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--fold", type=int, default=1)
    parser.add_argument("--per-query", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--threads", type=int, default=1)
    every = [name for name in unskew.METHODS if name not in REFUSE] + list(unskew.BASELINES)
    parser.add_argument("--arms", default=",".join(every))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    splits = unskew.read_preset("mq2008", options.folder, fold=options.fold)
    train, validation, test = graded(splits.train), graded(splits.validation), graded(splits.test)
    common = {"validation": validation, "threads": options.threads}
    results: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        log = unskew.simulate(
            train,
            unskew.PositionBias(),
            sessions=options.per_query * len(train),
            seed=seed,
            randomized=0.05,
            logger=unskew.SvmLogger(share=options.share),
        )
        for name in options.arms.split(","):
            began = time.perf_counter()
            if name in unskew.BASELINES:
                given = {"rounds": options.rounds, "sessions": 20_000}
                model = unskew.fit_baseline(name, log, seed=seed, **given, **common)
            else:
                trees = unskew.Trees(rounds=options.rounds)
                model = unskew.learn(log, name, ranker=trees, scaling="none", seed=seed, **common)
            ndcg = float(np.nanmean(ndcg_metric(model.score(test), test.labels, offsets=test.offsets, at=10)))
            results.setdefault(name, []).append(ndcg)
            print(f"seed {seed} {name:18s} {ndcg:.4f} {time.perf_counter() - began:.0f} s", flush=True)
    print(f"\n{machine()}\n\n| arm | nDCG@10 |\n|---|---|")
    for name, values in results.items():
        print(f"| {name} | {spread(values)} |")


if __name__ == "__main__":
    main()
