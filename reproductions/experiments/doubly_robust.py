"""Does the regression of `doubly_robust`, and do documents that were never shown, help where clicks are few?

Ten documents of each list are shown, in the order of a logging ranker with a wrong favourite feature, and never
shuffled; examination is known. nDCG@10 over whole lists of other queries.

    python reproductions/experiments/doubly_robust.py                    # weights chosen on held-out clicks
    python reproductions/experiments/doubly_robust.py --labels           # on labelled lists
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import unskew
from unskew.measuring import mean_over_seeds, ndcg_metric

IPW, DoublyRobust = unskew.methods.IPW, unskew.methods.DoublyRobust
ARMS = {
    "naive": unskew.methods.Naive(),
    "ipw": IPW(propensity="oracle"),
    "ipw, weights up to 5": IPW(propensity="oracle", max_weight=5.0),
    "doubly_robust, shown alone": DoublyRobust(propensity="oracle", candidates=0),
    "doubly_robust": DoublyRobust(propensity="oracle"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", action="store_true", help="choose weights on labelled lists")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--documents", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--pages", type=int, nargs="+", default=[1000, 4000, 16_000])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 5), help="first, and how many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, count = options.seeds
    for documents in options.documents:
        for pages in options.pages:
            found = {name: [] for name in ARMS}
            for seed in range(first, first + count):
                made = [
                    unskew.make_lists(queries, 25, documents, seed=seed + offset)
                    for queries, offset in ((options.queries, 0), (200, 10_000), (100, 20_000))
                ]
                lists, test, labelled = made
                log = unskew.simulate(lists, "position", pages=pages, seed=seed, cutoff=10, truth=True)
                for name, method in ARMS.items():
                    run = unskew.learn(
                        log, method, ranker="mlp", steps=options.steps, validate_every=25, seed=seed, threads=1,
                        validation=labelled if options.labels else None, engine="none")  # fmt: skip
                    ndcg = ndcg_metric(run.score(test), test.labels, offsets=test.offsets, at=10)
                    found[name].append(float(np.nanmean(ndcg)))
            print(
                f"\n| {documents} documents, {pages} pages | nDCG@10 | over ipw | worst seed |\n|---|---|---|---|"
            )
            for name, values in found.items():
                over = [value - other for value, other in zip(values, found["ipw"], strict=True)]
                mean, gain = mean_over_seeds(values), f"{np.mean(over):+.3f} | {min(over):+.3f}"
                print(f"| {name} | {mean.mean:.3f} ± {mean.sd:.3f} | {gain} |", flush=True)


if __name__ == "__main__":
    main()
