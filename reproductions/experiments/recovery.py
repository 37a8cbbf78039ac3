"""Do the methods recover examination, and do they close the gap between naive and labeled?

python reproductions/experiments/recovery.py [--seeds 5] [--first-seed 0] [--queries 2000]
    [--pages 1000000] [--steps 1000]
"""

from __future__ import annotations

import argparse

import torch
from common import arm, error, machine, print_table, world

import unskew
from unskew_reproductions import methods as beside

METHODS = {
    "naive": unskew.methods.Naive(),
    "labeled": unskew.methods.Labeled(documents="all"),
    "ipw": unskew.methods.IPW(),
    "dla": unskew.methods.DLA(),
    "regression_em": unskew.methods.RegressionEM(),
    "regression_em, gradient": unskew.methods.RegressionEM(form="gradient"),
    "regression_em, step 0.05": unskew.methods.RegressionEM(step=0.05),
    "pair_debias": beside.PairDebias(),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    results = {}
    for seed in seeds:
        log, test = world(seed, options.queries, options.pages)
        for name, method in METHODS.items():
            found = results[name, seed] = arm(log, test, method, seed=seed, steps=options.steps)
            curve = "" if found["examination"] is None else f"largest error {error(found['examination']):.3f}"
            print(
                f"seed {seed} {name:26s} nDCG@10 {found['ndcg']:.4f} {curve} {found['seconds']:.0f} s", flush=True
            )

    print(f"\n{machine()}\n")
    print_table(results, METHODS, seeds)

    steps = [point["step"] for point in results["dla", seeds[0]]["curve"]]
    shown = [step for step in (50, 100, 200, 400, 800, options.steps) if step in steps]
    print(
        "\nLargest error of a ratio while training, first seed:\n\n| method | "
        + " | ".join(map(str, shown))
        + " |"
    )
    print("|---" * (len(shown) + 1) + "|")
    for name in METHODS:
        curve = {point["step"]: point["propensity"] for point in results[name, seeds[0]]["curve"]}
        if results[name, seeds[0]]["examination"] is not None:
            print(f"| {name} | " + " | ".join(f"{error(curve[step]):.3f}" for step in shown) + " |")


if __name__ == "__main__":
    main()
