"""BAL and others on whole pages: DCG@10 and ERR@10 over seeds, where the page has bias and where it has none.

    python reproductions/experiments/whole_page.py --seeds 5 --worlds page,none

Every seed has its own world, lists and clicks. All methods that can take factors get the same ones.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from common import machine

import unskew
from unskew.learning.methods import BAL, DLA, Additive, RegressionEM
from unskew.measuring.experiments.tests import paired_t_test
from unskew.simulation import WholePage
from unskew_reproductions.methods import FBBAL, PBBAL, PairDebias

FACTORS = ("serp_media", "serp_height", "serp_max_height")
WORLDS = {"page": WholePage(), "none": WholePage(lure=(0.0,), sees=0.0)}
ARMS = {
    "naive": "naive",
    "ipw": "ipw",
    "dla": "dla",
    "regression_em": "regression_em",
    "pair_debias": PairDebias(),
    "additive": "additive",
    "dla, factors": DLA(factors=FACTORS),
    "regression_em, factors": RegressionEM(factors=FACTORS),
    "additive, factors": Additive(factors=FACTORS),
    "bal": BAL(factors=FACTORS),
    "pb_bal": PBBAL(factors=FACTORS),
    "fb_bal": FBBAL(factors=FACTORS),
    "bal, no weights": BAL(factors=FACTORS, clip=1.0),
    "fb_bal, unclipped": FBBAL(factors=FACTORS, clip=1e6),
}
METRICS = ("dcg@10", "err@10")


def one(world: str, seed: int, names, asked):
    """Each arm on one seed: its metrics for every query."""
    lists = {"features": 20, "documents": 20, "world": seed}
    train = unskew.make_lists(queries=asked.queries, seed=seed, **lists)
    test = unskew.make_lists(queries=asked.tested, seed=seed + 1_000_000, **lists)
    log = unskew.simulate(train, WORLDS[world], pages=asked.pages, seed=seed, randomized=asked.randomized)
    found = {}
    for name in names:
        began = time.process_time()
        run = unskew.learn(log, ARMS[name], seed=seed, steps=asked.steps, batch=128, threads=1, engine="none")
        report = unskew.measure_ranking(run.score(test), test, list(METRICS))
        found[name] = {metric: report.per_query[metric] for metric in METRICS}
        means = ", ".join(f"{metric} {np.nanmean(found[name][metric]):.4f}" for metric in METRICS)
        graph = run.fit.curve[-1]["notes"].get("graph", "")
        spent = time.process_time() - began
        print(f"  {world} seed {seed} {name}: {means} ({spent:.1f} s) {graph}", flush=True)
    return found


def main() -> None:
    """Print every run, and for each world a table over seeds with tests against bal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--worlds", default="page,none")
    parser.add_argument("--arms", default="", help="separated by ;")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--tested", type=int, default=300)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--randomized", type=float, default=0.02)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names = asked.arms.split(";") if asked.arms else list(ARMS)
    print(machine())
    for world in asked.worlds.split(","):
        runs = [one(world, seed, names, asked) for seed in range(asked.first, asked.first + asked.seeds)]
        print(f"\n{world}\n\n| method | DCG@10 | ERR@10 | bal better by, DCG@10 | p, seeds | p, queries |")
        print("|---|---|---|---|---|---|")
        for name in names:
            print(row(runs, name), flush=True)
        print()


def row(runs, name: str) -> str:
    """Means with their deviation over seeds, and how bal compares over seeds and over all queries."""
    cells = []
    for metric in METRICS:
        means = [np.nanmean(run[name][metric]) for run in runs]
        cells.append(f"{np.mean(means):.3f} ± {np.std(means, ddof=1) if len(means) > 1 else 0:.3f}")
    if name == "bal" or "bal" not in runs[0]:
        return f"| {name} | {' | '.join(cells)} | | | |"
    ours, theirs = ([run[who]["dcg@10"] for run in runs] for who in ("bal", name))
    over = np.mean([np.nanmean(a) - np.nanmean(b) for a, b in zip(ours, theirs, strict=True)])
    seeds = paired_t_test(*([np.nanmean(each) for each in side] for side in (ours, theirs))).p
    queries = paired_t_test(np.concatenate(ours), np.concatenate(theirs)).p
    return f"| {name} | {' | '.join(cells)} | {over:+.3f} | {seeds:.2g} | {queries:.2g} |"


if __name__ == "__main__":
    main()
