"""Relevance estimators in a simulated search engine: IPW, affine and doubly robust, by how often a query is asked.

The whole system runs: a month of traffic, an examination model learned from display times, tracking, and
estimates from the tracked sums. Mean squared error of relevance over the pairs that were shown. Imputations: the
truth with noise, and trees on features, trained on clicks at random first slots of the same month.

    python reproductions/experiments/tracking.py --seeds 5 --first-seed 20
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import unskew
from unskew.errors import DataError
from unskew.simulation.search_engine import SCREEN
from unskew.tables.engine.engine import connect
from unskew.tracking.display_times import DisplayTimes, add_examination, learn_examination
from unskew.tracking.estimators import TrustCurves, estimate
from unskew.tracking.judgments import batch_of
from unskew.tracking.shrinkage import learn_pull, shrunken
from unskew.tracking.store import open_tracking, writing
from unskew.tracking.track import deliver
from unskew.tracking.trust import RandomSlots, RankSums
from unskew.tracking.windows import read_window

ALPHA, BETA = SCREEN.affine(10)
BUCKETS = {"all": (0, 10**9), "head": (1000, 10**9), "mid": (20, 1000), "tail": (0, 20)}
"""Pages of a query in the month."""
EXAMINATIONS = {
    "ours": DisplayTimes(),
    "own click": DisplayTimes(own_click=True, observed=False),
    "true": None,
}
"""How ê is found: the default; as published, by clicks alone, the result's own included; what happened."""


def trees(log, seed):
    """Relevance by features, from clicks in random slots at rank 1: (P(c | x) - β_1)/α_1, within [0, 1]."""
    import lightgbm

    some = np.flatnonzero(log.randomized & (log.position == 1))
    options = {"objective": "binary", "num_leaves": 7, "learning_rate": 0.05, "verbosity": -1, "seed": seed}
    data = lightgbm.Dataset(log.lists.features[log.row[some]], log.click[some])
    booster = lightgbm.train(options | {"num_threads": 1}, data, num_boost_round=100)
    return np.clip((booster.predict(log.lists.features, num_threads=1) - BETA[0]) / ALPHA[0], 0, 1)


def tracked(engine, rows, store):
    """The month of a store, sorted."""
    with writing(store) as opened:
        deliver(engine, opened, rows, None, "all", 0.0, None)
    window = read_window(engine, open_tracking(store), "month").order_by("query_id", "doc_id", "position")
    return batch_of(engine.to_arrow(window))


def estimates(batch, imputations, curves):
    """Every estimator on one window; the pairs as (query, document)."""
    tallies, seen = batch.tallies(), RankSums(10)
    seen.add(tallies)
    theta = seen.theta()
    if curves == "known":
        assumed = TrustCurves(theta, ALPHA, BETA)
    else:
        slots = RandomSlots(10)
        slots.add(batch.tallies("random_"))
        assumed = slots.curves((ALPHA[0], BETA[0]), theta)
    found = {
        "ipw": estimate(tallies, assumed, "ipw").relevance,
        "affine": estimate(tallies, assumed, "affine").relevance,
    }
    query, document = (batch.ids(name).to_numpy() for name in ("query_id", "doc_id"))
    looks = seen.looks(assumed)
    for name, imputed in imputations(query, document).items():
        robust = estimate(tallies, assumed, "doubly_robust", imputed).relevance
        found |= {f"imputation, {name}": imputed, f"DR, {name}": robust}
        for kind, estimator in (("affine", "affine"), ("DR", "doubly_robust")):
            pull = learn_pull(lambda imputed=imputed: [(tallies, imputed)], assumed, looks, estimator)
            found[f"{kind} shrunken, {name}"] = shrunken(
                tallies, assumed, looks, imputed, pull, estimator
            ).relevance
    return found, query, document, tallies.displays


def world(seed, options, folder):
    """The log of a seed on disk, and what judges it."""
    lists = unskew.make_lists(options.queries, documents=(10, 20), seed=seed)
    log = unskew.Traffic(pages=options.pages, days=28, seed=seed, shuffled=options.shuffled).draw(lists)
    log = replace(log, columns=dict(log.columns) | {"examination": log.columns["true_examined"].astype(float)})
    unskew.write_log(log, folder / "log.parquet")
    truth = SCREEN.relevance(type("Shown", (), {"labels": lists.labels})).astype(float)
    noise = options.noise * np.random.default_rng(seed).standard_normal(len(truth))
    guesses = {"noisy truth": np.clip(truth + noise, 0, 1), "trees": trees(log, seed)}

    def imputations(query, document):
        return {name: values[lists.offsets[query] + document] for name, values in guesses.items()}

    frequency = np.bincount(log.query, minlength=len(lists))
    return truth, lists, imputations, frequency


def errors(seed, options):
    """Mean squared error of every estimator, examination, kind of curves and bucket."""
    found = {}
    with tempfile.TemporaryDirectory() as name, connect("duckdb", threads=1) as engine:
        folder = Path(name)
        truth, lists, imputations, frequency = world(seed, options, folder)
        for seen, settings in EXAMINATIONS.items():
            rows = engine.read_parquet(folder / "log.parquet")
            if settings is not None:
                model = learn_examination(engine, rows, settings)
                found["auc", seen, "", ""] = model.facts["auc"]
                rows = add_examination(engine, rows, model)
            batch = tracked(engine, rows, folder / seen.replace(" ", "-"))
            for curves in ("known", "shuffled"):
                try:
                    made, query, document, displays = estimates(batch, imputations, curves)
                except DataError as error:
                    print(f"seed {seed}, {seen}: {error}")
                    continue
                right = truth[lists.offsets[query] + document]
                for estimator, values in made.items():
                    squared = (values - right) ** 2
                    found[estimator, seen, curves, "displays"] = np.average(squared, weights=displays)
                    for bucket, (low, high) in BUCKETS.items():
                        some = (frequency[query] >= low) & (frequency[query] < high)
                        found[estimator, seen, curves, bucket] = squared[some].mean() if some.any() else np.nan
    return found


def print_tables(results):
    """A table for each examination and kind of curves: mean and sd over seeds, in thousandths."""
    columns = ["all", "displays", "head", "mid", "tail"]
    for seen in EXAMINATIONS:
        for curves in ("known", "shuffled"):
            print(
                f"\nexamination: {seen}; curves: {curves}; mean squared error times 1000, mean ± sd over seeds\n"
            )
            print("| estimator | all pairs | by displays | head | mid | tail |\n|---|---:|---:|---:|---:|---:|")
            made = max(results, key=len)
            names = [key[0] for key in made if key[1:] == (seen, curves, "all")]
            for name in names:
                cells = [
                    [1000 * one[key] for one in results if (key := (name, seen, curves, column)) in one]
                    for column in columns
                ]
                said = " | ".join(f"{np.mean(cell):.2f} ± {np.std(cell):.2f}" for cell in cells)
                print(f"| {name} | {said} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--pages", type=int, default=150_000)
    parser.add_argument("--noise", type=float, default=0.15)
    parser.add_argument("--shuffled", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=20)
    options = parser.parse_args()
    results = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        results.append(errors(seed, options))
        print(
            f"seed {seed}: AUC " + ", ".join(f"{k[1]} {v:.3f}" for k, v in results[-1].items() if k[0] == "auc"),
            flush=True,
        )
    print_tables(results)


if __name__ == "__main__":
    main()
