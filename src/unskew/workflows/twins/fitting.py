"""How a twin is fitted: which click model, examination as the log tells it, relevance drawn from its posterior.

Legend: N documents of the lists, of which P were shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unskew.diagnosis.click_models import FittedClickModel, fit_and_compare
from unskew.diagnosis.click_models.fitted import find_model, fit_model
from unskew.diagnosis.click_models.pages import ClickPages, added
from unskew.errors import ConfigError
from unskew.examination import Examination
from unskew.tables.features.encoding import fit_encoding
from unskew.types import Array, Lists, Log

MODELS = ("pbm", "ubm", "dbn", "dcm", "pbm+pbm", "pbm+pbm+pbm")
"""Click models that a twin may have."""
SIMPLEST = "pbm"
GRADES = 4
"""The highest grade that relevance is cut into."""
ROUNDS = 6
"""Times that attraction and examination are fitted to each other."""
CALIBRATIONS = 8
LEAST_IDLE = 0.005
"""Share of idle pages below which there are none."""
FEW = 10.0
"""Clicks, or looks, that the log's mean counts for beside those of one rank."""


def chosen_model(pages: ClickPages, models: Sequence[str], seed: int) -> tuple[FittedClickModel, list[str]]:
    """The click model, fitted to all pages: the simplest, unless another is clearly better on held-out ones.

    Where one query alone was asked nothing says what is clear, and the best is taken.
    """
    if len(models) == 1:
        name, notes = models[0], list[str]()
    else:
        found = fit_and_compare(pages, models, held_out=0.25, seed=seed)
        rows = {row.name: row for row in found.models}
        sure = SIMPLEST in rows and rows[SIMPLEST].standard_error is not None
        name = SIMPLEST if sure and SIMPLEST in found.level else found.best
        how = "no worse than any other" if name == SIMPLEST else "best"
        notes = [f"The click model {name} explains held-out pages {how}."]
    return fit_model(*find_model(name), pages), notes


def examined(
    model: FittedClickModel, told: Examination | None, pages: ClickPages, typical: Array
) -> tuple[FittedClickModel, str, bool]:
    """The model with examination as the log tells it, where the model has one by rank; what it comes from.

    Several kinds of people, each position-based, share the curve and differ in how often they look at all.
    """
    if set(model.name.split("+")) != {SIMPLEST}:
        return model, f"the click model {model.name}", told is not None
    if told is None:
        return model, f"the curve is that of the click model {model.name}, which rests on its priors", False
    counts = model.model.counter(pages)(pages.weight)
    parameters = dict(model.parameters)
    bounds = {}
    for name in _of_kind(parameters, "examination"):
        parameters[name], bounds[name] = _as_told(told, np.array(parameters[name]))
    for _ in range(ROUNDS):
        for _ in range(15):  # attraction given examination
            expected = model.model.expect(counts, parameters).counts
            for name in _of_kind(parameters, "attractiveness"):
                won, tried = expected[name]
                strength, level = model.assumed[name].strength, won.sum() / max(float(tried.sum()), 1e-9)
                mean = np.append(rank_means(won[:-1], tried[:-1], typical), level)
                attraction = np.clip((mean * strength + won) / (strength + tried), 1e-5, 1 - 1e-5)
                parameters[name] = np.asarray(attraction)
        short = _short_by(model, parameters, pages)
        for name, (low, high) in bounds.items():
            parameters[name] = np.clip(parameters[name] * short, low, high)
    return replace(model, parameters=parameters), told.found_by, True


def _of_kind(parameters: Mapping[str, Array], kind: str) -> list[str]:
    return [name for name in parameters if name.split(" ")[-1] == kind]


def _as_told(curve: Examination, theta: Array) -> tuple[Array, tuple[Array, Array]]:
    """Examination as the log tells it, on the scale of a model's, and between what it may lie."""
    low, high = np.full(len(theta), 1e-4), np.full(len(theta), 1 - 1e-4)
    top = theta[0]
    for rank, (value, ends) in enumerate(zip(curve.theta, curve.interval, strict=True)):
        if rank < len(theta) and value is not None and ends is not None:
            theta[rank] = value * top
            low[rank], high[rank] = np.clip(np.array(ends) * top, 1e-4, 1 - 1e-4)
    return np.clip(theta, low, high), (low, high)


def typical_ranks(log: Log) -> Array:
    """Where each document shown usually stood, [P] from 0; shuffled slots do not count, unless all are."""
    mixed = log.randomized is not None and bool(log.randomized.all())
    order = shown_order(log)[np.unique(log.row)]
    return np.zeros(len(order), np.int64) if mixed else np.rint(np.nan_to_num(-order, nan=1.0)).astype(np.int64)


def rank_means(won: Array, tried: Array, typical: Array) -> Array:
    """Mean rate of documents that usually stood at the same rank, [P]: good rankers put better ones on top."""
    level = won.sum() / max(float(tried.sum()), 1e-9)
    own = [np.bincount(typical, each) for each in (won, tried)]
    means = (own[0] + FEW * level) / (own[1] + FEW)
    return np.asarray(np.clip(means[typical], 1e-4, 1 - 1e-4))


def calibrated(model: FittedClickModel, pages: ClickPages, typical: Array) -> tuple[FittedClickModel, float]:
    """The model with attraction scaled so that documents usually at one rank are clicked as in the log.

    And the share of pages at which nobody looks: as many pages have no click beyond those that the model expects.
    """
    parameters, idle = dict(model.parameters), 0.0
    names = _of_kind(parameters, "attractiveness")
    group = np.append(typical, 0)[pages.pair][pages.where]
    clicks = np.bincount(group, (pages.click * pages.weight[:, None])[pages.where])
    empty = float(pages.weight @ ~pages.click.any(1)) / pages.total
    silent = replace(pages, click=np.zeros_like(pages.click))
    for _ in range(CALIBRATIONS):
        chance = (model.model.marginal(parameters, pages) * pages.weight[:, None])[pages.where]
        factor = (clicks / (1 - idle) + FEW) / (np.bincount(group, chance) + FEW)
        for name in names:
            scaled = np.clip(parameters[name][:-1] * factor[typical], 1e-5, 1 - 1e-5)
            parameters[name] = np.append(scaled, parameters[name][-1])
        chances = model.model.conditional(parameters, silent)
        usual = float(pages.weight @ np.where(pages.where, 1 - chances, 1.0).prod(1)) / pages.total
        idle = float(np.clip((empty - usual) / max(1 - usual, 1e-9), 0, 0.95))
    return replace(model, parameters=parameters), idle if idle >= LEAST_IDLE else 0.0


def _short_by(model: FittedClickModel, parameters: Mapping[str, Array], pages: ClickPages) -> Array:
    """Clicks at each rank over those that the model expects, relative to rank 1; 1 where there are too few."""
    size = len(parameters[_of_kind(parameters, "examination")[0]])
    at = np.clip(pages.rank, 1, size) - 1
    chance = model.model.marginal(dict(parameters), pages) * pages.weight[:, None]
    expected = np.bincount(at[pages.where], chance[pages.where], minlength=size)
    clicks = added(at, pages.click, pages.weight, size)
    ratio = np.where(clicks >= 30, clicks / np.maximum(expected, 1e-9), 1.0)
    return np.asarray(ratio / ratio[0])


def drawn_relevance(
    model: FittedClickModel, pages: ClickPages, log: Log, typical: Array, seed: int
) -> tuple[FittedClickModel, Array, Array, float]:
    """The model with parameters of pairs drawn from their posterior; relevance [N] of documents; idle pages."""
    rng = np.random.default_rng(seed)
    rows = np.unique(log.row)
    pair_of_row = np.full(len(log.lists.labels), len(rows))
    pair_of_row[rows] = np.arange(len(rows))
    counts = model.model.counter(pages)(pages.weight)
    expected = model.model.expect(counts, model.parameters).counts
    parameters = dict(model.parameters)
    unseen = {}
    for name, (won, tried) in expected.items():
        if len(won) != len(rows) + 1:  # of ranks, or of kinds of people
            continue
        mean, strength = _prior(won[:-1], tried[:-1], log.lists, rows, typical, model.assumed[name])
        own = _beta(mean[rows] * strength + won[:-1], (1 - mean[rows]) * strength + (tried - won)[:-1], rng)
        parameters[name] = np.append(own, mean.mean())
        unseen[name] = _beta(mean * strength, (1 - mean) * strength, rng)
    made, idle = calibrated(replace(model, parameters=parameters), pages, typical)
    found, strange = (made.model.relevance(made.parameters | each) for each in ({}, unseen))
    if found is None or strange is None:
        raise ConfigError(f"{model.name} tells no documents apart; take pbm, ubm or dbn", argument="models")
    shown = pair_of_row < len(found) - 1
    relevance = np.where(shown, found[pair_of_row], strange)  # of those never shown as drawn
    return made, relevance, pair_of_row, idle


def _prior(
    won: Array, tried: Array, lists: Lists, rows: Array, typical: Array, assumed: Any
) -> tuple[Array, float]:
    """Mean [N] of each document's prior, and its strength.

    The mean is that of documents that usually stood at the same rank (of the lowest for those never shown), or a
    linear function of that and of features. The strength is that by which rates differ from these means as much as
    they do, beyond chance.
    """
    own = rank_means(won, tried, typical)
    mean = np.full(len(lists.labels), own[typical == typical.max()].mean())
    mean[rows] = own
    rate = np.divide(won, tried, out=own.copy(), where=tried > 0)
    if lists.dim:
        weight = tried / (tried + assumed.strength)
        mean = np.clip(_ridge(lists, rows, mean, rate, weight), own.min() / 4, min(0.99, 4 * own.max()))
    chance = mean[rows] * (1 - mean[rows])
    some = tried > 1
    if not some.any():
        return mean, float(assumed.strength)
    beyond = float((tried * ((rate - mean[rows]) ** 2 - chance / np.maximum(tried, 1)))[some].sum())
    share = beyond / float((tried * chance * (1 - 1 / np.maximum(tried, 1)))[some].sum())
    return mean, float(1 / np.clip(share, 1e-3, 0.9) - 1)


def _ridge(lists: Lists, rows: Array, base: Array, rate: Array, weight: Array) -> Array:
    """Rates of documents as a linear function of a first guess [N] and their features, for all of them, [N]."""
    numbers = lists if lists.columns is None else fit_encoding(lists).apply(lists)
    x = np.column_stack([base, np.nan_to_num(np.asarray(numbers.features, np.float64))])
    x = (x - x[rows].mean(0)) / np.maximum(x[rows].std(0), 1e-9)
    x = np.clip(x, -5, 5)
    level = float((weight * rate).sum() / max(weight.sum(), 1e-9))
    own = x[rows]
    left = (own * weight[:, None]).T @ own + 0.01 * weight.sum() * np.eye(x.shape[1])
    slope = np.linalg.solve(left, (own * weight[:, None]).T @ (rate - level))
    return np.asarray(level + x @ slope)


def _beta(a: Array, b: Array, rng: np.random.Generator) -> Array:
    return np.clip(rng.beta(np.maximum(a, 1e-3), np.maximum(b, 1e-3)), 1e-5, 1 - 1e-5)


def grades(relevance: Array) -> Array:
    """Grades 0 to 4, [N] int16: log2(1 + 15 r) of relevance between its lowest and highest values.

    >>> grades(np.array([0.0, 0.02, 0.08, 0.2, 0.4])).tolist()
    [0, 1, 2, 3, 4]
    """
    low, top = np.quantile(relevance, (0.05, 0.98)) if len(relevance) else (0.0, 1.0)
    scaled = np.log2(1 + (2**GRADES - 1) * np.clip((relevance - low) / max(top - low, 1e-9), 0, 1))
    return np.asarray(np.clip(np.rint(scaled), 0, GRADES), np.int16)


def shown_order(log: Log) -> Array:
    """How high the logging ranking put each document of the lists, [N]: minus its mean rank, NaN if never shown.

    Shuffled slots do not count, unless there are no others.
    """
    there = np.ones(len(log.row), bool) if log.randomized is None else ~log.randomized.astype(bool)
    there = there if there.any() else np.ones(len(log.row), bool)
    documents = len(log.lists.labels)
    times = np.bincount(log.row[there], minlength=documents)
    total = np.bincount(log.row[there], log.position[there], minlength=documents)
    return np.where(times > 0, -total / np.maximum(times, 1), np.nan)
