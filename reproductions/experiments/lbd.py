"""Does LBD beat methods that give every document of a rank the same observation, more so as bias grows individual?

python reproductions/experiments/lbd.py [--etas 0.1,0.2,0.3,0.4,0.5,0.6] [--arms dla,unlimited,lbd]
    [--seeds 5] [--first-seed 0]

`unlimited_free` and `lbd_free` have a log o of either sign and, in LBD, drawn observations, as the published code;
`lbd_released` has its penalty (a sum over documents) too, with lambda and t of the appendix at eta 0.1.
Features are spread evenly over [-1, 1]; as made (--uneven) eta couples a third as much. Every arm is trained with
each setting of its grid to the last step; lambda and t are then chosen per eta and method, by the mean over seeds
of nDCG@10 on labelled validation lists, and once more of the likelihood of held-out clicks; never on test lists.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context

import numpy as np
import torch
from common import machine, spread

import unskew
from unskew.measuring import holm, ndcg_metric, paired_t_test
from unskew.workflows.runs.data import LogData
from unskew.workflows.runs.fitters import click_choice
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.run import run
from unskew_reproductions import methods as beside
from unskew_reproductions.behaviours import IndividualBias

FORM = {"observation": "free", "dropping": "drawn"}
RELEASED = FORM | {"penalty": "published", "strength": 100.0, "drop": 0.1}  # the code, and the appendix at eta 0.1
AGAINST = ("dla", "unlimited")


def arms(options):
    """Every method asked for with its grid: name -> setting -> config."""
    strengths, drops = options.strengths, options.drops
    every = {
        "naive": {"": unskew.methods.Naive()},
        "labeled": {"": unskew.methods.Labeled(documents="all")},
        "dla": {"": unskew.methods.DLA()},
        "unlimited": {"": beside.Unlimited()},
        "unlimited_free": {"": beside.Unlimited(**FORM)},
        "lbd_free": {"lambda 0.1, t 0.1": beside.LBDReleased(strength=0.1, drop=0.1, **FORM)},
        "lbd_released": {"": beside.LBDReleased(**RELEASED)},
        "lbd_ber": {f"t {t}": beside.LBDBer(drop=t) for t in drops},
        "lbd_lips": {f"lambda {s}": beside.LBDLips(strength=s) for s in strengths},
        "lbd": {
            f"lambda {s}, t {t}": unskew.methods.LBD(strength=s, drop=t) for s, t in product(strengths, drops)
        },
    }
    return {name: grid for name, grid in every.items() if not options.arms or name in options.arms}


def even(fitted, lists):
    """Lists whose features are their share of smaller values among the fitted ones, from -1 to 1."""
    columns = []
    for known, values in zip(np.sort(fitted.features, axis=0).T, lists.features.T, strict=True):
        below, upto = (np.searchsorted(known, values, side) for side in ("left", "right"))
        columns.append((below + upto) / len(known) - 1)
    return replace(lists, features=np.stack(columns, axis=1).astype(np.float32))


def world(seed, eta, options):
    """Training and held-out pages, validation and test lists, spread of the exponents."""
    made = {
        part: unskew.make_lists(count, options.features, seed=seed + 1_000_000 * number)
        for number, (part, count) in enumerate(
            (("train", options.queries), ("test", options.test_queries), ("validation", options.queries // 4))
        )
    }
    lists = {part: even(made["train"], found) if options.even else found for part, found in made.items()}
    behaviour = IndividualBias(severity=eta)
    log = unskew.simulate(lists["train"], behaviour, pages=options.pages, seed=seed)
    apart = np.isin(log.query, np.random.default_rng([seed, 7]).permutation(options.queries)[::10])
    power = behaviour.document_terms(lists["train"])
    return LogData(log.take(~apart), log.take(apart)), lists, float(power.std())


def ndcg(model, lists):
    """nDCG@10 of every query."""
    return ndcg_metric(model.score(lists), lists.labels, offsets=lists.offsets, at=10)


def cell(seed, eta, options):
    """Every arm with every setting in one world: validation values and nDCG@10 per test query."""
    torch.set_num_threads(options.threads)
    data, lists, power = world(seed, eta, options)
    ranker, found = unskew.rankers.MLP(sizes=tuple(map(int, options.sizes.split(",")))), {}
    for name, grid in arms(options).items():
        for setting, method in grid.items():
            training = {"steps": options.steps, "seed": seed, "validate_on": "nothing"}
            asked = ask(None, method=method, ranker=ranker, options=training, engine="none").settings
            model = run(asked, LogData(data.train)).model
            found[name, setting] = {
                "labels": float(np.nanmean(ndcg(model, lists["validation"]))),
                "clicks": click_choice(model, data, torch.device("cpu"))(),
                "test": ndcg(model, lists["test"]),
            }
    return found, power


def run_cells(worlds, options):
    """Every world in turn, in processes where there are to be several."""
    if options.jobs == 1:
        yield from (cell(seed, eta, options) for seed, eta in worlds)
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(cell, seed, eta, options) for seed, eta in worlds]
        yield from (future.result() for future in waiting)


def choose(cells, eta, seeds, name, grid, by):
    """The setting with the best mean over seeds."""
    return max(grid, key=lambda setting: np.mean([cells[eta, seed][name, setting][by] for seed in seeds]))


def tables(cells, etas, seeds, methods, by):
    """Print nDCG@10 by eta with the settings chosen, the tests against others, and the slopes; return them all."""
    picked = {(eta, name): choose(cells, eta, seeds, name, methods[name], by) for eta in etas for name in methods}
    test = {key: [cells[key[0], seed][key[1], picked[key]]["test"] for seed in seeds] for key in picked}
    mean = {key: [float(np.nanmean(run)) for run in runs] for key, runs in test.items()}
    print(f"\nlambda and t chosen on {by}\n\n| method | " + " | ".join(f"eta {eta}" for eta in etas) + " |")
    print("|---" * (len(etas) + 1) + "|")
    for name in methods:
        print(f"| {name} | " + " | ".join(spread(mean[eta, name]) for eta in etas) + " |")
    for name in (name for name, grid in methods.items() if len(grid) > 1):
        print(f"| chosen for {name} | " + " | ".join(picked[eta, name] for eta in etas) + " |")

    pairs = [(eta, other) for other in AGAINST for eta in etas]
    tests = [paired_t_test(mean[e, "lbd"], mean[e, o]) for e, o in pairs]
    adjusted = holm([found.p for found in tests])
    print("\n| lbd against | eta | difference over seeds | p, Holm |\n|---|---|---|---|")
    for (eta, other), found, p in zip(pairs, tests, adjusted, strict=True):
        print(f"| {other} | {eta} | {found.difference:+.4f} (t = {found.t:.2f}) | {p:.3g} |")

    print()
    slopes = {}
    for other in AGAINST if len(etas) > 1 else ():
        gaps = np.subtract([mean[eta, "lbd"] for eta in etas], [mean[eta, other] for eta in etas])  # [etas, seeds]
        slopes[other] = np.polyfit(etas, gaps, 1)[0].tolist()
        found = paired_t_test(slopes[other], np.zeros(len(seeds)))
        says = "no sure change" if not found.p < 0.05 else "it grows" if found.difference > 0 else "it shrinks"
        print(
            f"gap of lbd to {other}, slope on eta: {spread(slopes[other])}, t = {found.t:.2f}, p = {found.p:.3g}, "
            f"{len(seeds)} seeds: {says}"
        )
    return {
        "ndcg": {f"{eta} {name}": values for (eta, name), values in mean.items()},
        "chosen": {f"{eta} {name}": setting for (eta, name), setting in picked.items()},
        "tests": [
            vars(found) | {"eta": eta, "against": other, "holm": float(p)}
            for (eta, other), found, p in zip(pairs, tests, adjusted, strict=True)
        ],
        "slopes": slopes,
    }


def numbers(text):
    """Numbers between commas."""
    return tuple(float(part) for part in text.split(","))


def arguments():
    """What was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--etas", type=numbers, default=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
    parser.add_argument("--strengths", type=numbers, default=(0.003, 0.03, 3.0))
    parser.add_argument("--drops", type=numbers, default=(0.003, 0.03))
    parser.add_argument("--arms", type=lambda text: tuple(text.split(",")), help="these methods alone")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--test-queries", type=int, default=1000)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--sizes", default="64,32")
    parser.add_argument("--pages", type=int, default=250_000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--uneven", dest="even", action="store_false", help="features as they are made")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cells, powers = {}, {}
    worlds = [(seed, eta) for seed in seeds for eta in options.etas]
    for (seed, eta), (found, power) in zip(worlds, run_cells(worlds, options), strict=True):
        cells[eta, seed], powers[eta, seed] = found, power
        print(f"seed {seed} eta {eta} done, sd of the exponent {power:.3f}", flush=True)
    print(f"\n{machine()}")
    methods = {name: list(grid) for name, grid in arms(options).items()}
    chosen = {by: tables(cells, options.etas, seeds, methods, by) for by in ("labels", "clicks")}
    if options.json:
        every = {
            f"{eta} {seed} {name} {setting}".strip(): values | {"test": float(np.nanmean(values["test"]))}
            for (eta, seed), found in cells.items()
            for (name, setting), values in found.items()
        }
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "chosen": chosen, "runs": every}, file, indent=1)


if __name__ == "__main__":
    main()
