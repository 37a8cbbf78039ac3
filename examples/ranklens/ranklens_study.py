"""The two questions: does debiasing predict or rank held-out clicks better, and is the position curve found?

Each is asked of all training pages, of a fifth of them drawn at random, and of the fifths whose order happens to
follow popularity: a log as a ranker by popularity would have left it, whose true curve is known all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ranklens_curves import (
    HeldOut,
    agreement,
    click_curves,
    draw_visits,
    fall,
    held_out,
    interval,
    popularity_elsewhere,
    rate_ratio,
    visits_of,
    without_model,
)

import unskew
from unskew.learning.methods import MethodConfig
from unskew.types import Array

METHODS: Mapping[str, MethodConfig] = {
    "naive": unskew.methods.Naive(),
    "naive, pointwise": unskew.methods.Naive(loss="sigmoid"),
    "dla": unskew.methods.DLA(),
    "regression_em": unskew.methods.RegressionEM(),
    "additive": unskew.methods.Additive(),
}
"""Without debiasing, by the loss of `dla` and by that of the other two; with it."""
CURVES = ("dla", "regression_em", "additive")
RATE = "click rate by rank"


@dataclass(frozen=True)
class Plan:
    """How much to compute."""

    seeds: int = 5
    steps: int = 300
    draws: int = 1000
    """Draws of visits for intervals that need no training."""
    refits: int = 10
    """Draws of visits on which each method is trained anew, for the intervals of its curve."""
    share: float = 0.2
    """Share of the training pages that a subsample takes."""
    common: int = 50
    """Movies that a genre or tag must have to be a feature."""


@dataclass(frozen=True)
class Data:
    """The log in parts, and what went before."""

    whole: unskew.Log
    train: unskew.Log
    validation: unskew.Log
    test: unskew.Log
    features: Sequence[str]
    about: Mapping[str, Any]


def fit(log: unskew.Log, method: str, plan: Plan, seed: int, validation: unskew.Log | None = None) -> unskew.Model:
    """A small network on the movies' features; weights chosen on `validation`, or the last ones."""
    return unskew.learn(
        log,
        METHODS[method],
        ranker=unskew.rankers.MLP(sizes=(32,)),
        validation=validation,
        validate_on="nothing" if validation is None else "clicks",
        steps=plan.steps,
        batch=256 if validation is not None else 128,
        weight_decay=1e-4,
        seed=seed,
        threads=1,
    ).model


def curve_of(model: unskew.Model, method: str, first: float) -> Array:
    """Click rate by rank relative to rank 1 for one and the same movie, as a method learned it."""
    (curve,) = model.curves()  # odds of a click by `additive`, examination by the others
    learned = np.array(curve.values)
    return rate_ratio(learned, first) if method == "additive" else learned


def compare(models: Mapping[str, Sequence[HeldOut]], test: unskew.Log, draws: int) -> list[dict[str, Any]]:
    """Held-out measures of each method: over seeds, and beside the naive method of the same loss over visits."""
    visit = visits_of(test)
    weights = draw_visits(int(visit.max()) + 1, draws)
    found = {name: [one.means(weights, visit) for one in seeds] for name, seeds in models.items()}
    rows = []
    for name, seeds in found.items():
        base = "naive" if name == "dla" else "naive, pointwise"
        row: dict[str, Any] = {"method": name, "against": base if name in CURVES else None}
        for measure in seeds[0]:
            values = np.array([one[measure] for one in seeds])  # [seeds, 1 + R]
            if np.isnan(values).any():
                continue
            row[measure] = {"mean": float(values[:, 0].mean()), "seeds": values[:, 0].tolist()}
            if name in CURVES:
                less = values.mean(0) - np.mean([one[measure] for one in found[base]], axis=0)
                row[measure] |= {"difference": float(less[0]), "interval": interval(less[1:])}
        rows.append(row)
    return rows


def curve_rows(
    log: unskew.Log, truth: Array, models: Mapping[str, Sequence[unskew.Model]], plan: Plan
) -> list[dict[str, Any]]:
    """Curves of one log: its click rate by rank, and what each method learned; with intervals over visits."""
    rates = click_curves(log, plan.draws)
    rows = [_curve_row(RATE, [rates[0] / rates[0, 0]], truth) | {"interval": interval(fall(rates[1:]))}]
    for name in CURVES:
        row = _curve_row(name, [curve_of(model, name, rates[0, 0]) for model in models[name]], truth)
        again = [resampled(log, draw) for draw in range(plan.refits)]
        falls = [
            fall(curve_of(fit(one, name, plan, 1000 + draw), name, click_curves(one, 0)[0, 0]))
            for draw, one in enumerate(again)
        ]
        reach = 1.96 * float(np.std(falls, ddof=1)) if len(falls) > 1 else None  # too few for quantiles
        rows.append(row | {"interval": None if reach is None else (row["fall"] - reach, row["fall"] + reach)})
    return rows


def _curve_row(name: str, curves: Sequence[Array], truth: Array) -> dict[str, Any]:
    mean = np.mean(curves, axis=0)
    return {
        "curve": name,
        "values": mean.tolist(),
        "fall": float(fall(mean)),
        "seeds": [float(fall(curve)) for curve in curves],
        "error": float(np.abs(mean - truth / truth[0])[1:].mean()),
    }


def resampled(log: unskew.Log, seed: int) -> unskew.Log:
    """As many visits, drawn with replacement."""
    visit = visits_of(log)
    times = draw_visits(int(visit.max()) + 1, 1, seed)[1][visit].astype(int)
    return log.take(np.repeat(np.arange(len(log)), times))


def subsamples(train: unskew.Log, votes: Array, share: float) -> dict[str, tuple[unskew.Log, float]]:
    """All pages; a share of them drawn, and those whose order agrees most with popularity; with mean agreement."""
    orders: dict[str, Callable[[], Array]] = {
        "drawn at random": lambda: np.random.default_rng(0).random(len(train)),
        "ordered by votes": lambda: agreement(train, votes[train.row]),
        "ordered by click rate": lambda: agreement(train, popularity_elsewhere(train)),
    }
    made = {"all training pages": (train, 0.0)}
    for name, order in orders.items():
        score = order()
        taken = score >= np.quantile(score, 1 - share)
        made[name] = (train.take(taken), 0.0 if name == "drawn at random" else float(score[taken].mean()))
    return made


def study(data: Data, plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything that the report shows."""
    votes, rate = data.whole.lists.features[:, data.features.index("vote_cnt")], float(data.train.click.mean())
    any_order = np.random.default_rng(0).random(len(votes))
    unlearned = {
        "any order": [without_model(any_order, data.test, rate)],
        "by votes": [without_model(votes, data.test, rate)],
    }
    truths = click_curves(data.whole, plan.draws)
    studies = []
    for title, (log, correlation) in subsamples(data.train, votes, plan.share).items():
        everything = len(log) == len(data.train)
        validation = data.validation if everything else None
        models = {name: [fit(log, name, plan, seed, validation) for seed in range(plan.seeds)] for name in METHODS}
        say(f"{title}: {len(log):,} pages, {plan.seeds} seeds of {len(METHODS)} methods")
        measured = {name: [held_out(model, data.test) for model in seeds] for name, seeds in models.items()}
        # learning again from all pages takes long, and there the click rate itself is the curve
        refitting = replace(plan, refits=0) if everything else plan
        studies.append(
            {
                "title": title,
                "pages": len(log),
                "agreement": correlation,
                "held out": compare(unlearned | measured, data.test, plan.draws),
                "curves": curve_rows(log, truths[0], models, refitting),
            }
        )
        say(f"{title}: {refitting.refits} refits of {len(CURVES)} methods")
    truth = {
        "rates": truths[0].tolist(),
        "bands": [interval(column) for column in (truths[1:] / truths[1:, :1]).T],
        "fall": float(fall(truths[0])),
        "interval": interval(fall(truths[1:])),
    }
    return {"truth": truth, "studies": studies}
