"""Clicks beyond the examination hypothesis: does vectorization > affine > dla > naive hold, and where does it not?

python reproductions/experiments/vectorization.py [--seeds 5] [--first-seed 100]
    [--behaviours matrix trust] [--jobs 2]

A generated set of Yahoo's size, clicks by the TianGong-ST matrix and by the trust-bias model. Weights are chosen
on labelled validation lists, as in the paper (`--select clicks`: on held-out clicks). All seeds are measured on
the same test lists, so that seeds and queries can both be taken as drawn at random (`crossed_t_test`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np
import torch
from common import machine, spread

import unskew
from unskew.measuring import crossed_t_test, holm, ndcg_metric, paired_bootstrap, paired_t_test
from unskew.workflows.runs.data import split
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.run import run
from unskew_reproductions import methods as beside
from unskew_reproductions.behaviours import ClickMatrix

BEHAVIOURS = {"matrix": ClickMatrix(), "trust": unskew.behaviours.TrustBias()}
CUTS = (1, 5, 10)
CHOSEN = {
    "matrix": {
        "dla": "dla, weights at most 5",
        "affine": "affine, sigmoid",
        "vectorization": "vectorization, d = 5",
    },
    "trust": {"dla": "dla", "affine": "affine, minmax", "vectorization": "vectorization, d = 2"},
}
"""Which setting of a method stands for it. `dla`, `affine`, and d for the matrix: the better nDCG@10 on validation
lists of seed 1 (3,000 queries); test values of seeds 0 and 1 were seen. d = 2 under trust bias is the paper's."""
ORDERS = (("vectorization", "affine"), ("vectorization", "dla"), ("affine", "dla"), ("dla", "naive"))
"""Pairs that the paper puts in this order; under trust bias the first are equal there."""
MARGIN = 0.01
"""Methods whose nDCG@10 differs by less, with 95 % confidence, are called equal; set before the study was run."""
VALIDATION, TEST = 2_000_000, 5_000_000
"""Seeds of other lists of the same world; validation lists are drawn anew for each seed."""


def arms(steps: int) -> dict:
    """Every arm; the joint schedule keeps o at ones for the published thirtieth of the steps."""
    joint = {"schedule": "joint", "freeze": steps // 30}
    return {
        "naive": unskew.methods.Naive(),
        "labeled": unskew.methods.Labeled(),
        "dla": unskew.methods.DLA(),
        "dla, weights at most 5": unskew.methods.DLA(max_weight=5.0),
        "regression_em": unskew.methods.RegressionEM(),
        "affine, sigmoid": unskew.methods.Affine(relevance="sigmoid"),
        "affine, minmax": unskew.methods.Affine(relevance="minmax"),
        "affine_list": beside.AffineList(),
        "vectorization, d = 2": unskew.methods.Vectorization(dimension=2, **joint),
        "vectorization, d = 5": unskew.methods.Vectorization(dimension=5, **joint),
        "vectorization, d = 5, two stages": unskew.methods.Vectorization(dimension=5),
    }


def per_query(scores, lists, at: int = 10):
    """nDCG of every list, [Q]."""
    return ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=at)


def mean_ndcg(scores, lists) -> float:
    return float(np.nanmean(per_query(scores, lists)))


def cell(task: tuple) -> dict:
    """All arms on the clicks of one behaviour and one seed."""
    behaviour, seed, options = task
    torch.set_num_threads(options.threads)
    shape = (options.features, options.documents)
    train = unskew.make_lists(options.queries, *shape, seed=seed)
    validation = unskew.make_lists(options.checked, *shape, seed=VALIDATION + seed)
    test = unskew.make_lists(options.tested, *shape, seed=TEST)
    logger = unskew.behaviours.SvmLogger()
    log = unskew.simulate(train, BEHAVIOURS[behaviour], pages=options.pages, seed=seed, logger=logger)
    found = {"behaviour": behaviour, "seed": seed, "arms": {}}
    found["logging"] = mean_ndcg(logger.fit(train, seed).scores(test), test)
    for name, method in arms(options.steps).items():
        if options.arms and name not in options.arms:
            continue
        result = found["arms"][name] = arm(log, validation, test, method, seed, options)
        print(
            f"{behaviour} seed {seed} {name:34s} nDCG@10 {np.nanmean(result[10]):.4f} {result['seconds']:.0f} s",
            flush=True,
        )
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def arm(log, validation, test, method, seed: int, options) -> dict:
    """Train one method; nDCG of every test list, the validation value that chose its weights, projections."""
    began = time.perf_counter()
    training = {"seed": seed, "steps": options.steps, "validate_every": options.every, "threads": options.threads}
    chosen_by = validation if options.select == "labels" else None
    ranker = unskew.rankers.MLP(sizes=tuple(options.sizes))
    asked = ask(None, method=method, ranker=ranker, options=training, validation=chosen_by, engine="none").settings
    done = run(asked, split(log, chosen_by, asked))
    model, fit = done.model, done.fit
    scores = model.score(test)
    result = {cut: per_query(scores, test, cut) for cut in CUTS}
    result |= {"best": fit.best, "step": fit.best_step, "seconds": time.perf_counter() - began}
    result["validation"] = mean_ndcg(model.score(validation), validation)
    if isinstance(method, unskew.methods.Vectorization):
        result["projections"] = projections(model, validation, test)
    return result


def projections(model, validation, test) -> dict[str, float]:
    """nDCG@10 when r is projected on the base vector, on each o_p, on their mean, and on the direction that fits
    the gains of validation lists best: how much a better base vector could give."""
    d, o = model.method.outputs, model.method.observation.tables["position"].detach().cpu().numpy()
    r, known = embeddings(model, test)[:, :d], embeddings(model, validation)[:, :d]
    gains = centred(2.0 ** validation.labels[:, None], validation)
    best = np.linalg.lstsq(centred(known, validation), gains, rcond=None)[0].squeeze(-1)
    directions = {f"o_{rank}": row for rank, row in enumerate(o, start=1)} | {"mean o": o.mean(0), "fitted": best}
    shown = {"b": mean_ndcg(model.score(test), test)}
    return shown | {name: mean_ndcg(r @ direction, test) for name, direction in directions.items()}


def embeddings(model, lists):
    """Outputs of the ranker for every document, [N, O]."""
    scaled = torch.from_numpy(np.asarray(model.scaler.apply(lists).features, np.float32))
    with torch.no_grad():
        return model.ranker.eval()(scaled).numpy()


def centred(values, lists):
    """Values [N, O] less their mean in each list: a constant added to a list changes no order."""
    means = np.add.reduceat(values, lists.offsets[:-1]) / lists.sizes[:, None]
    return values - np.repeat(means, lists.sizes, axis=0)


def report(behaviour: str, cells: list[dict]) -> dict:
    """Tables of one behaviour."""
    names = list(cells[0]["arms"])
    print(f"\n## {behaviour}\n\nlogging ranker, nDCG@10: {spread([found['logging'] for found in cells])}\n")
    print("| arm | " + " | ".join(f"nDCG@{cut}" for cut in CUTS) + " | on validation lists | chosen step |")
    print("|---" * (len(CUTS) + 3) + "|")
    for name in names:
        runs = [found["arms"][name] for found in cells]
        columns = [spread([np.nanmean(run[cut]) for run in runs]) for cut in CUTS]
        columns.append(f"{np.mean([run['validation'] for run in runs]):.4f}")
        print(f"| {name} | " + " | ".join(columns) + f" | {[run['step'] for run in runs]} |")
    tested = compare(behaviour, cells)
    show_projections(cells, [name for name in names if name.startswith("vectorization")])
    return tested


def compare(behaviour: str, cells: list[dict]) -> dict:
    """The orders of the paper, tested over queries (means over seeds), and over seeds and queries, by Holm."""
    stands, rows = CHOSEN[behaviour], []
    for first, second in ORDERS:
        for cut in CUTS:
            values = [
                np.stack([found["arms"][stands.get(name, name)][cut] for found in cells])
                for name in (first, second)
            ]
            wins = int((np.nanmean(values[0], axis=1) > np.nanmean(values[1], axis=1)).sum())
            over_queries = paired_t_test(*(side.mean(0) for side in values))
            rows.append((f"{first} > {second}", cut, over_queries, crossed_t_test(*values), wins))
    by_query, by_both = holm([row[2].p for row in rows]), holm([row[3].p for row in rows])
    print("\n| order | metric | difference | p over queries | p over seeds and queries | seeds won | |")
    print("|---" * 7 + "|")
    tested = {}
    for (what, cut, test, _, wins), p, q in zip(rows, by_query, by_both, strict=True):
        verdict = "no difference shown" if q >= 0.05 else "holds" if test.difference > 0 else "the other way round"
        tested[f"{what} @{cut}"] = {"difference": test.difference, "p": p, "p_crossed": q, "wins": wins}
        print(
            f"| {what} | nDCG@{cut} | {test.difference:+.4f} | {p:.2g} | {q:.2g} | {wins} of {len(cells)} "
            f"| {verdict} |"
        )
    ends = [np.stack([found["arms"][stands[name]][10] for found in cells]).mean(0) for name in ORDERS[0]]
    gap = paired_bootstrap(*ends)
    equal = "equal" if gap.low > -MARGIN and gap.high < MARGIN else "not shown to be equal"
    print(f"\nvectorization less affine, nDCG@10: {gap}: {equal} within {MARGIN}")
    return tested


def show_projections(cells: list[dict], names: list[str]) -> None:
    """Which direction to project on, mean over seeds."""
    kinds = list(cells[0]["arms"][names[0]]["projections"])
    print("\n| nDCG@10 of r projected on | " + " | ".join(kinds) + " |\n" + "|---" * (len(kinds) + 1) + "|")
    for name in names:
        found = [cell["arms"][name]["projections"] for cell in cells]
        print(
            f"| {name} | " + " | ".join(f"{np.mean([each[kind] for each in found]):.3f}" for kind in kinds) + " |"
        )


def plain(cells: list[dict]) -> list[dict]:
    """The cells as JSON takes them: means instead of one value per query."""
    kept = ("best", "step", "seconds", "validation", "projections")
    return [
        found
        | {
            "arms": {
                name: {f"ndcg@{cut}": float(np.nanmean(run[cut])) for cut in CUTS}
                | {key: run[key] for key in kept if key in run}
                for name, run in found["arms"].items()
            }
        }
        for found in cells
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--behaviours", nargs="+", choices=BEHAVIOURS, default=list(BEHAVIOURS))
    parser.add_argument("--arms", nargs="+", choices=arms(1), help="all that the orders name are needed")
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--checked", type=int, default=1000, help="labelled validation queries")
    parser.add_argument("--tested", type=int, default=2000, help="test queries of each seed")
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 64])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=50, help="steps between validations")
    parser.add_argument("--select", choices=("labels", "clicks"), default="labels")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began, seeds = time.perf_counter(), range(options.first_seed, options.first_seed + options.seeds)
    tasks = [(behaviour, seed, options) for behaviour in options.behaviours for seed in seeds]
    if options.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
            cells = pool.map(cell, tasks, chunksize=1)
    else:
        cells = [cell(task) for task in tasks]
    most = max(found["megabytes"] for found in cells)
    print(f"\n{machine()}; {time.perf_counter() - began:,.0f} s, at most {most:,.0f} MB in a process")
    tested = {
        name: report(name, [found for found in cells if found["behaviour"] == name]) for name in options.behaviours
    }
    if options.json is not None:
        content = {"options": vars(options) | {"json": None}, "cells": plain(cells), "tests": tested}
        options.json.write_text(json.dumps(content, indent=2, default=float) + "\n")


if __name__ == "__main__":
    main()
