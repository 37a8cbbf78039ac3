"""What the experiments share: the world, one trained arm, and tables with spread."""

from __future__ import annotations

import platform
import time

import numpy as np
import torch

import unskew
from unskew.measuring import gap_closed, mean_over_seeds, ndcg_metric
from unskew.workflows.runs.data import split
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.run import run

THETA = np.asarray(unskew.behaviours.PositionBias().curve) / unskew.behaviours.PositionBias().curve[0]


def world(seed: int, queries: int, pages: int, randomized: float = 0.05):
    """A confounded log and test lists of the same world."""
    train, test = unskew.make_lists(queries, seed=seed), unskew.make_lists(1000, seed=seed + 1_000_000)
    log = unskew.simulate(
        train, unskew.behaviours.PositionBias(), pages=pages, seed=seed, randomized=randomized, truth=True
    )
    return log, test


def arm(log, test, method, *, ranker=None, seed=0, scaling="standard", validation=None, **training):
    """Train one method; nDCG@10 on the test lists, learned examination, the training curve, seconds."""
    began = time.perf_counter()
    asked = ask(
        None,
        method=method,
        ranker=ranker or unskew.rankers.MLP(sizes=(64, 32)),
        scaling=scaling,
        options=training | {"seed": seed},
        validation=validation,
        engine="none",
    ).settings
    done = run(asked, split(log, validation, asked))
    model, fit = done.model, done.fit
    scores = model.score(test)
    ndcg = float(np.nanmean(ndcg_metric(scores, test.labels, offsets=test.offsets)))
    return {
        "ndcg": ndcg,
        "examination": model.propensity(),
        "curve": fit.curve,
        "step": fit.best_step,
        "seconds": time.perf_counter() - began,
    }


def error(examination) -> float:
    """Largest relative error of the examination ratios over all ranks."""
    return float(np.abs(np.asarray(examination) / THETA[: len(examination)] - 1).max())


def spread(values) -> str:
    """Mean and standard deviation over seeds."""
    found = mean_over_seeds(values)
    return f"{found.mean:.4f} ± {found.sd:.4f}"


def closed(results, name, seeds) -> str:
    """Share of the gap between naive and labeled that a method closes: of the means, and in the worst seed."""
    mean = {arm: np.mean([results[arm, seed]["ndcg"] for seed in seeds]) for arm in (name, "naive", "labeled")}
    each = [gap_closed(*(results[arm, seed]["ndcg"] for arm in (name, "naive", "labeled"))) for seed in seeds]
    worst = "a seed has no gap" if np.isnan(each).any() else f"worst seed {min(each):.0%}"
    return f"{gap_closed(mean[name], mean['naive'], mean['labeled']):.0%} ({worst})"


def print_table(results, methods, seeds) -> None:
    """nDCG@10, gap closed and error of the ratios of every method, as Markdown."""
    print("| method | nDCG@10 | gap closed | largest error of a ratio, mean (worst seed) |\n|---|---|---|---|")
    for name in methods:
        runs = [results[name, seed] for seed in seeds]
        gap = "" if name in ("naive", "labeled") else closed(results, name, seeds)
        errors = [error(run["examination"]) for run in runs if run["examination"] is not None]
        worst = f"{np.mean(errors):.3f} ({max(errors):.3f})" if errors else ""
        print(f"| {name} | {spread([run['ndcg'] for run in runs])} | {gap} | {worst} |")


def machine() -> str:
    """Where the numbers come from."""
    return f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
