"""Does `upe` estimate examination better than `dla` where the logging ranker is strong, and does it rank better?

Position-based clicks, nothing shuffled. The weak logging ranker has seen 1 % of the labels and has a wrong
favourite feature; the strong one has seen 30 % and has none, so that what is on top is relevant.

    python reproductions/experiments/upe.py
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import torch
from common import error

import unskew
from unskew.measuring import mean_over_seeds, ndcg_metric
from unskew.simulation.logger import SvmLogger
from unskew_reproductions import methods as beside

OWN = {
    "ipw": unskew.methods.IPW(propensity="oracle"),
    **dict.fromkeys(("upe, by rank", "upe, by score"), beside.UPE()),
    "upe, embedded": beside.UPE(confounding="embedded"),
}
LOGGERS = {"weak": SvmLogger(), "strong": SvmLogger(share=0.3, favourite=0.0)}
ARMS = ("naive", "dla", "upe, by rank", "upe, by score", "upe, embedded", "ipw", "labeled")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 3), help="first, and how many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, count = options.seeds
    for name, logger in LOGGERS.items():
        found = {arm: ([], []) for arm in ARMS}
        for seed in range(first, first + count):
            lists, test = (
                unskew.make_lists(queries, 25, seed=seed + offset)
                for queries, offset in ((options.queries, 0), (500, 10_000))
            )
            log = unskew.simulate(lists, "position", pages=options.pages, seed=seed, logger=logger, truth=True)
            scored = replace(log, columns={**log.columns, "logging_score": logger.scores(lists, seed)[log.row]})
            for arm in ARMS:
                method = OWN.get(arm, arm.split(",")[0])
                run = unskew.learn(
                    scored if arm.endswith("score") else log, method, ranker="mlp", steps=options.steps, seed=seed,
                    threads=1, engine="none")  # fmt: skip
                ndcg = ndcg_metric(run.score(test), test.labels, offsets=test.offsets, at=10)
                found[arm][0].append(float(np.nanmean(ndcg)))
                if run.propensity() is not None:
                    found[arm][1].append(error(run.propensity()))
        print(f"\n| {name} logging ranker | nDCG@10 | largest error of a ratio (worst seed) |\n|---|---|---|")
        for arm, (ndcgs, errors) in found.items():
            ratios = f"{np.mean(errors):.2f} ({max(errors):.2f})" if errors else ""
            mean = mean_over_seeds(ndcgs)
            print(f"| {arm} | {mean.mean:.3f} ± {mean.sd:.3f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
