"""Level is not relevance: do methods rank documents that were never shown, where ten of many are?

All pages are shuffled, so nothing is confounded; nDCG@10 over whole training lists, most of whose documents were
never shown. A ranker that must learn first that little is clicked puts the documents that were not shown on top.

    python experiments/levels.py                         # generated lists of 140 documents
    python experiments/levels.py --mslr FOLDER           # MSLR-WEB files in a folder
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import unskew
from unskew.measuring import ndcg_metric


def ndcg(scores, lists):
    return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mslr", type=Path, help="folder with LETOR files, in the place of generated lists")
    parser.add_argument("--queries", type=int, default=63)
    parser.add_argument("--documents", type=int, default=140)
    parser.add_argument("--pages", type=int, default=60_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--randomized", type=float, default=1.0)
    parser.add_argument("--scaling", default="standard")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=["naive-sigmoid", *unskew.METHODS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for seed in range(options.seeds):
        if options.mslr is None:
            lists = unskew.make_lists(options.queries, 25, options.documents, seed=seed + 3)
        else:
            lists = unskew.read_letor(sorted(options.mslr.glob("*.txt*")))
        log = unskew.simulate(
            lists, "position", pages=options.pages, seed=seed, cutoff=10, randomized=options.randomized
        )
        rng = np.random.default_rng(seed)
        found.setdefault(("any order", ""), []).append(ndcg(rng.random(len(lists.labels)), lists))
        for name in options.methods:
            method = unskew.methods.Naive(loss="sigmoid") if name == "naive-sigmoid" else unskew.METHODS[name]()
            for ranker in (unskew.rankers.Linear(), unskew.rankers.MLP(sizes=(64, 32))):
                run = unskew.learn(
                    log, method, ranker=ranker, scaling=options.scaling, steps=options.steps, seed=seed, threads=1
                )
                found.setdefault((name, ranker.name), []).append(ndcg(run.score(lists), lists))
        print(f"seed {seed} done", flush=True)
    for (name, ranker), values in found.items():
        print(f"{name:<18}{ranker:<8}{np.mean(values):.3f} ± {np.std(values):.3f}")


if __name__ == "__main__":
    main()
