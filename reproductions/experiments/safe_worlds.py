"""Is a safe ranker ever worse than what was shown? Safe and unsafe learning in worlds whose truth is known.

    python reproductions/experiments/safe_worlds.py --worlds 0 200 --out safe.csv

Every world of `proof_worlds` trains a linear ranker, safe (`engine = "safe"`). What the method would have ranked
by alone is in the same run: its correction. Each is compared with the logging ranker, query by query, by nDCG@10
of the true grades of 1,500 other queries, which come with the ranks that the logging ranker gives. Where it
changes from week to week, its ranks and its nDCG are averaged over weeks.
"""

from __future__ import annotations

import argparse
import ast
import csv
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from proof_worlds import World
from scipy.stats import ttest_1samp

import unskew
from unskew.measuring import ndcg_metric
from unskew.types import Array

BRIEF = unskew.Training(steps=250)
METHODS = ("dla", "additive", "naive")


def graded(world: World, scores: Array) -> Array:
    """nDCG@10 of every test query that has a good document, by its grades."""
    values = ndcg_metric(scores, world.test.labels, offsets=world.test.offsets, at=10)
    return values[~np.isnan(values)]


def ranks(world: World, week: int) -> Array:
    """The rank that the logging ranker of a week gives every test document."""
    scores, lists = world.logging_scores(world.test, week), world.test
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    order, found = np.lexsort((-scores, query)), np.empty(len(scores))
    found[order] = np.arange(len(scores)) - lists.offsets[query[order]] + 1
    return found


def rows(world: World, names: list[str]) -> Iterator[dict[str, Any]]:
    """A safe run by each method, and what it would be without, against the logging ranker of a world."""
    weeks = [graded(world, world.logging_scores(world.test, week)) for week in range(world.weeks)]
    shown = np.mean(weeks, axis=0)
    test = replace(world.test, shown=np.mean([ranks(world, week) for week in range(world.weeks)], axis=0))
    about = {
        "world": world.seed,
        "kind": f"{world.behaviour}, {'steep' if world.steep else 'flat'}, {world.logger}",
        "pages": world.pages,
        "shuffled": world.shuffled,
        "logging": round(float(shown.mean()), 4),
    }
    for name in names:
        began = time.process_time()
        made = unskew.learn(world.train, name, engine="safe", ranker="linear", training=BRIEF)
        told, taken = made.metrics.safety, time.process_time() - began
        for safe in (True, False):
            gain = graded(world, made.score(test) if safe else made.model.correction(test)) - shown
            yield about | {
                "method": name,
                "safe": safe,
                "gain": round(float(gain.mean()), 5),
                "p": float(ttest_1samp(gain, 0).pvalue) if gain.any() else 1.0,
                "share": told.share,
                "bound": told.bound,
                "seconds": round(taken, 2),
            }


def summary(found: list[dict[str, Any]]) -> list[str]:
    """How often each was better and worse than what was shown; worse is also told after Holm's correction."""
    lines = ["| method | safe | worlds | mean gain | better | worse | worse, corrected | worst | moved |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in METHODS:
        for safe in (False, True):
            some = [row for row in found if row["method"] == name and row["safe"] == safe]
            if not some:
                continue
            gain, p = (np.array([row[key] for row in some]) for key in ("gain", "p"))
            worse, better = (p < 0.05) & (gain < 0), (p < 0.05) & (gain > 0)
            moved = sum(row["share"] > 0 for row in some) if safe else len(some)
            counts = f"{better.sum()} | {worse.sum()} | {(holm(p) & (gain < 0)).sum()}"
            head = f"| {name} | {'yes' if safe else 'no'} | {len(some)} | {gain.mean():+.4f}"
            lines.append(f"{head} | {counts} | {gain.min():+.4f} | {moved} |")
    return lines


def holm(p: Array) -> Array:
    """Which tests find something at 5 % over all of them together."""
    order = np.argsort(p)
    passed = np.cumprod(p[order] * (len(p) - np.arange(len(p))) < 0.05).astype(bool)
    found = np.zeros(len(p), bool)
    found[order] = passed
    return found


def main() -> None:
    """Run the worlds, write a row for each run, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", nargs=2, type=int, default=(0, 200))
    parser.add_argument("--methods", nargs="+", default=["dla"])
    parser.add_argument("--out", type=Path, help="CSV of every run, to go on from where it stopped")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = read(asked.out)
    done = {(row["world"], row["method"]) for row in found}
    for seed in range(*asked.worlds):
        missing = [name for name in asked.methods if (seed, name) not in done]
        found += rows(World(seed), missing) if missing else ()
        if asked.out is not None:
            write(asked.out, found)
    print("\n".join(summary(found)))


def read(path: Path | None) -> list[dict[str, Any]]:
    """Rows of runs that are done."""
    if path is None or not path.exists():
        return []
    with path.open(newline="") as file:
        return [{key: ast.literal_eval(value) for key, value in row.items()} for row in csv.DictReader(file)]


def write(path: Path, found: list[dict[str, Any]]) -> None:
    """All rows, each value as Python writes it."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows({key: repr(value) for key, value in row.items()} for row in found)


if __name__ == "__main__":
    main()
