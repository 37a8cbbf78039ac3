"""Causal discovery on pages whose causes are known: precision and recall of edges into the click.

    python reproductions/experiments/causes.py --worlds 20 [--test kci] [--weak]

Each world has its own lists, its own strengths of every cause, and some causes taken out at random. With --weak
media lure and height draws as little as in the worlds that came first, before they were made stronger.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import machine

import unskew
from unskew.diagnosis.causal.graph import tier
from unskew_reproductions.experiments.random_page import random_page


def weaker(page):
    """The same world with lures of 0.3 to 0.5 in the place of 0.5 to 0.8, and height at 0.8 to 1.5, not 1 to 2."""
    top = page.lure[-1] and 0.3 + (page.lure[-1] - 0.5) * 2 / 3
    return page.model_copy(update={"lure": (0.0, top / 2, top), "sees": page.sees and 0.8 + (page.sees - 1) * 0.7})


def one(seed: int, sample: int | None, test: str, alpha: float, weak: bool):
    """The true causes of clicks, those found, all edges, and the processor time of one world."""
    page = weaker(random_page(seed)) if weak else random_page(seed)
    lists = unskew.make_lists(queries=1000, features=10, documents=12, seed=seed, world=seed)
    log = unskew.simulate(lists, page, pages=5000, seed=seed, truth=True)
    began = time.process_time()
    graph = unskew.causes(log, relevance="true_relevance", sample=sample, test=test, alpha=alpha, seed=seed)
    seconds = time.process_time() - began
    true = {cause for cause, effect in page.edges() if effect == "click"}
    forbidden = [edge for edge in graph.edges if tier(edge.cause) > tier(edge.effect)]
    return true, set(graph.parents("click")), forbidden, seconds


def main() -> None:
    """Print a line for each world, and the sums."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--test", default="both")
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--weak", action="store_true")
    asked = parser.parse_args()
    print(machine())
    print("| world | causes of clicks besides relevance | missed | wrong | seconds |\n|---|---|---|---|---|")
    right, found_all, true_all, broken, times = 0, 0, 0, 0, []
    for seed in range(asked.first, asked.first + asked.worlds):
        true, found, forbidden, seconds = one(seed, asked.sample, asked.test, asked.alpha, asked.weak)
        own, seen = true - {"relevance"}, found - {"relevance"}
        right, found_all, true_all = right + len(own & seen), found_all + len(seen), true_all + len(own)
        broken, times = broken + len(forbidden), [*times, seconds]
        cells = [", ".join(sorted(names)) or "-" for names in (own, own - seen, seen - own)]
        print(f"| {seed} | {' | '.join(cells)} | {seconds:.1f} |", flush=True)
    precision, recall = right / max(found_all, 1), right / max(true_all, 1)
    print(f"\nprecision {precision:.3f}, recall {recall:.3f}, relevance not counted")
    print(f"forbidden edges {broken}; processor seconds {np.median(times):.1f}, at most {max(times):.1f}")


if __name__ == "__main__":
    main()
