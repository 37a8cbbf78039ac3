"""Level is not relevance: do methods rank documents that were never shown, where ten of many are?

Two bars over all methods, as nDCG@10 over whole training lists, most of whose documents were never shown. With
all pages shuffled nothing is confounded, and no method should rank below list-wise `naive`. With 5 % shuffled
pages none should rank below the logging ranker, unless training says that the data cannot tell.

    python reproductions/experiments/levels.py    # generated lists of 120 documents, all pages shuffled
    python reproductions/experiments/levels.py --randomized 0.05       # few of them
    python reproductions/experiments/levels.py --mslr FOLDER    # MSLR-WEB files in a folder
    python reproductions/experiments/levels.py --scaling query_minmax --methods naive,additive,additive-as_is

`-sigmoid` after a name takes the pointwise loss, `-as_is` the relevance outputs as they are (`centred = false`).
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch

import unskew
from unskew.measuring import ndcg_metric
from unskew.simulation.logger import logging_scores
from unskew_reproductions import methods as beside

METHODS = {**unskew.methods.METHODS, **beside.METHODS}
ARMS = ["naive-sigmoid", "ipw-sigmoid", *METHODS]
RANKERS = (unskew.rankers.Linear(), unskew.rankers.MLP(sizes=(64, 32)))


def ndcg(scores, lists):
    return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))


def method_of(arm):
    name, *marks = arm.split("-")
    options = {"loss": "sigmoid"} if "sigmoid" in marks else {}
    return METHODS[name](**options, **({"centred": False} if "as_is" in marks else {}))


def lists_of(options, seed):
    if options.mslr is None:
        return unskew.make_lists(options.queries, 25, options.documents, seed=seed + 3)
    return unskew.read_letor(sorted(options.mslr.glob("*.txt*")))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mslr", type=Path, help="folder with LETOR files, in the place of generated lists")
    parser.add_argument("--queries", type=int, default=63)
    parser.add_argument("--documents", type=int, default=120)
    parser.add_argument("--pages", type=int, default=60_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--randomized", type=float, default=1.0)
    parser.add_argument("--scaling", default="standard")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=ARMS)
    parser.add_argument("--rankers", type=lambda text: text.split(","), default=["linear", "mlp"])
    return parser.parse_args()


def main():
    options = read_options()
    torch.set_num_threads(1)
    found, said = defaultdict(list), defaultdict(Counter)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        lists = lists_of(options, seed)
        share = options.randomized
        log = unskew.simulate(lists, "position", pages=options.pages, seed=seed, cutoff=10, randomized=share)
        found["any order", ""].append(ndcg(np.random.default_rng(seed).random(len(lists.labels)), lists))
        found["logging ranker", ""].append(ndcg(logging_scores(lists, seed=seed), lists))
        training = {"steps": options.steps, "seed": seed, "threads": 1}
        for arm in options.methods:
            for ranker in (ranker for ranker in RANKERS if ranker.name in options.rankers):
                run = unskew.learn(
                    log, method_of(arm), ranker=ranker, scaling=options.scaling, **training, engine="none"
                )
                found[arm, ranker.name].append(ndcg(run.score(lists), lists))
                standing = run.metrics.standing.verdict
                said[arm, ranker.name][standing] += 1
                print(f"seed {seed} {arm} {ranker.name} {found[arm, ranker.name][-1]:.4f} {standing}", flush=True)
    report(found, said)


def report(found, said):
    """Each arm's nDCG@10 over seeds, and how far it is from list-wise naive, seed by seed."""
    print(f"\n| {'method':<18} | ranker | nDCG@10 | less naive | training says |\n|---|---|---:|---:|---|")
    for (arm, ranker), values in found.items():
        verdicts = ", ".join(f"{verdict} ({count})" for verdict, count in said[arm, ranker].items())
        ahead = np.subtract(values, found.get(("naive", ranker), np.nan))
        error = np.std(ahead, ddof=1) / len(ahead) ** 0.5 if len(ahead) > 1 else np.nan
        mean = f"{np.mean(values):.3f} ± {np.std(values):.3f}"
        print(f"| `{arm}` | {ranker} | {mean} | {np.mean(ahead):+.3f} ± {error:.3f} | {verdicts} |")


if __name__ == "__main__":
    main()
