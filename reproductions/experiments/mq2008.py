"""MQ2008 fold 1 with PBM clicks: the same comparison on real features and grades.

python reproductions/experiments/mq2008.py FOLDER [--seeds 5] [--pages 200000] [--fold 1]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import torch
from common import arm, machine, print_table, spread

import unskew
from unskew.measuring import ndcg_metric
from unskew_reproductions import methods as beside
from unskew_reproductions.formats.labelled import read_preset

METHODS = {
    "naive": unskew.methods.Naive(),
    "labeled": unskew.methods.Labeled(documents="all"),
    "ipw": unskew.methods.IPW(),
    "dla": unskew.methods.DLA(),
    "regression_em": unskew.methods.RegressionEM(),
    "pair_debias": beside.PairDebias(),
}


def graded(lists: unskew.Lists) -> unskew.Lists:
    """Grades 0, 1, 2 as 0, 2, 4, and only queries with a relevant document."""
    relevant = np.maximum.reduceat(lists.labels, lists.offsets[:-1]) > 0
    return replace(lists, labels=lists.labels * 2).take(relevant)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--fold", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--scaling", default="none")
    parser.add_argument("--select", choices=("labels", "clicks"), default="labels")
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    splits = read_preset("mq2008", options.folder, fold=options.fold)
    train, validation, test = graded(splits.train), graded(splits.validation), graded(splits.test)
    print(f"{len(train)} training queries, {len(test)} test queries with a relevant document")
    logger = unskew.behaviours.SvmLogger(share=options.share)
    rankers = {"mlp": unskew.rankers.MLP(sizes=(64, 32)), "linear": unskew.rankers.Linear()}
    seeds = range(options.seeds)
    results = {kind: {} for kind in rankers}
    logging = []
    for seed in seeds:
        log = unskew.simulate(
            train, unskew.behaviours.PositionBias(), pages=options.pages, seed=seed, randomized=0.05, logger=logger
        )
        scores = logger.fit(train, seed).scores(test)
        logging.append(float(np.nanmean(ndcg_metric(scores, test.labels, offsets=test.offsets))))
        for kind, ranker in rankers.items():
            for name, method in METHODS.items():
                training = {"seed": seed, "steps": options.steps, "validate_every": 20, "scaling": options.scaling}
                chosen_by = validation if options.select == "labels" else None
                found = arm(log, test, method, ranker=ranker, validation=chosen_by, **training)
                results[kind][name, seed] = found
                print(
                    f"seed {seed} {kind} {name:16s} nDCG@10 {found['ndcg']:.4f} {found['seconds']:.0f} s",
                    flush=True,
                )

    print(f"\n{machine()}\n\nlogging ranker: {spread(logging)}")
    for kind, found in results.items():
        print(f"\nranker {kind}\n")
        print_table(found, METHODS, seeds)


if __name__ == "__main__":
    main()
