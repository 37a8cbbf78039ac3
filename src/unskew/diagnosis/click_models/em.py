"""Expectation maximisation for parameters that are probabilities, with Beta priors, faster than its plain form.

Every parameter here is the chance of a hidden or seen event, so a model says only how often it expects the event
to have had a chance (trials n) and to have happened (successes x). The rest is one formula:

    p = (x + κμ) / (n + κ)

It maximises Σ x log p + (n - x) log(1 - p) under a prior of κ pseudo-trials with mean μ, so each round raises
the penalised likelihood

    log P(clicks) + Σ_p κμ log p + κ(1 - μ) log(1 - p).

Where μ or κ of a kind of parameter is not given, it is found in the first rounds and then held: by moments (a
Beta-binomial distribution), κ by scores where successes are mostly hidden. Between rounds steps are extrapolated
in log-odds (Varadhan and Roland, "Simple and globally convergent methods for accelerating the convergence of any
EM algorithm", Scand. J. Stat. 2008, their S3), and taken only where they raise the penalised likelihood too, so it
never falls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from unskew.engine_prior import worth
from unskew.settings import Config
from unskew.types import Array

Parameters = dict[str, Array]
"""Probabilities by kind, each an array."""
SMALLEST = 1e-9
"""No parameter comes closer to 0 or 1."""
OPENING, LOOK = 12, 6
"""Rounds in which priors are found; after how many of them that of hidden parameters is looked for."""
FEW = 10
"""Parameters below which their spread is not estimated."""
USUAL_STRENGTH = 2.0
BY_RANK = "attractiveness"
"""The kind of parameter that the order shown tells of."""
SHARE = "share"
"""The kind of parameter whose values add up to 1."""


class Prior(Config):
    """What is assumed of a kind of parameter before anything was seen."""

    mean: Annotated[float, Field(gt=0, lt=1)] | None = None
    """What it is without evidence; none: found in the log."""
    strength: Annotated[float, Field(ge=0)] | None = None
    """Trials that the prior counts as; none: found in the log, from how much the parameters differ."""


class Assumed(NamedTuple):
    """A prior with its numbers."""

    mean: float | Array
    strength: float


class Shape(NamedTuple):
    """What is expected of pairs, [P + 1], up to a factor; the trials that it is worth, or none to find that."""

    mean: Array
    strength: float | None


class Expected(NamedTuple):
    """What a model expects to have happened, given the clicks and its parameters."""

    log_likelihood: float
    """Of the clicks, at the parameters."""
    counts: dict[str, tuple[Array, Array]]
    """Successes and trials of each kind of parameter."""


Expect = Callable[[Parameters], Expected]
Unseen = Callable[[Parameters], Mapping[str, Array]]
"""Information that is missing of parameters, by kind."""


def climb(
    expect: Expect,
    start: Parameters,
    priors: Mapping[str, Prior],
    *,
    rounds: int,
    tolerance: float,
    hidden: Sequence[str] = (),
    missing: Unseen,
    shape: Shape,
    held: Parameters,
) -> tuple[Parameters, dict[str, Assumed], list[float], bool]:
    """Parameters, their priors, the penalised log-likelihood of each round, and whether the rounds came to an end.

    They do when three of them gain less than `tolerance` of the penalised log-likelihood. Successes of `hidden`
    kinds of parameters mostly are; `missing` says how much information that takes. What is attractive is believed
    to be so as `shape` has it, up to its level, where its prior leaves the mean open. `held` stay as they are.
    """
    here, assumed = opened(expect, start | held, priors, hidden, missing, shape, held)
    trace: list[float] = []
    while len(trace) < rounds:
        points, began = [here], len(trace)
        for _ in range(2):
            value, after = one_round(expect, points[-1], assumed)
            trace.append(value)
            points.append(after | held)
        leap = extrapolated(*points) | held
        value, after = one_round(expect, leap, assumed)
        taken = value >= trace[-1]
        here = after | held if taken else points[-1]
        trace += [value] if taken else []
        if began and trace[-1] - trace[began - 1] <= tolerance * abs(trace[-1]):
            return here, assumed, trace, True
    return here, assumed, trace, False


def one_round(expect: Expect, here: Parameters, assumed: Mapping[str, Assumed]) -> tuple[float, Parameters]:
    """The penalised log-likelihood here, and the parameters after a round."""
    expected = expect(here)
    return expected.log_likelihood + penalty(here, assumed), updated(expected, assumed)


def opened(
    expect: Expect,
    start: Parameters,
    priors: Mapping[str, Prior],
    hidden: Sequence[str],
    missing: Unseen,
    shape: Shape,
    held: Parameters,
) -> tuple[Parameters, dict[str, Assumed]]:
    """Parameters after the first rounds, and the priors that were found in them."""
    here = start
    assumed = {name: assume(prior, np.zeros(0), np.zeros(0)) for name, prior in priors.items()}
    if all(prior.mean is not None and prior.strength is not None for prior in priors.values()):
        return here, assumed
    spread: dict[str, float] = {}
    for done in range(OPENING):
        expected = expect(here)
        if done % LOOK == LOOK - 1:
            spread = {name: hidden_strength(expect, here, name, missing) for name in hidden}
            assumed = {
                name: assume(prior, *expected.counts[name], shape if name.endswith(BY_RANK) else None)
                for name, prior in priors.items()
            }
        for name in hidden:
            if priors[name].strength is None:
                assumed[name] = Assumed(assumed[name].mean, spread.get(name, USUAL_STRENGTH))
        here = updated(expected, assumed) | held
    return here, assumed


def hidden_strength(expect: Expect, here: Parameters, name: str, missing: Unseen) -> float:
    """Strength of the prior of parameters whose successes are mostly hidden, by their scores.

    With all of them at one mean μ, a score U = x/μ - (n - x)/(1 - μ) has mean 0 and variance J + J²τ², where J is
    the observed information and τ² the variance of the parameters; so τ² = Σ(U² - J) / ΣJ², κ = μ(1 - μ)/τ² - 1.
    """
    mean = float(here[name].mean())
    for _ in range(3):
        level = here | {name: np.full_like(here[name], np.clip(mean, 1e-6, 1 - 1e-6))}
        x, n = expect(level).counts[name]
        mean = float(x.sum() / max(n.sum(), SMALLEST))
    mean = float(level[name][0])
    score = x / mean - (n - x) / (1 - mean)
    information = x / mean**2 + (n - x) / (1 - mean) ** 2 - missing(level)[name]
    seen = n > 0
    total = float((information[seen] ** 2).sum())
    if seen.sum() < FEW or total <= 0:
        return USUAL_STRENGTH
    variance = float((score[seen] ** 2 - information[seen]).sum()) / total
    return float(1 / np.clip(variance / (mean * (1 - mean)), 0.01, 0.6) - 1)


def assume(prior: Prior, successes: Array, trials: Array, shape: Shape | None = None) -> Assumed:
    """The prior, with what it leaves open taken from what is expected to have happened, and its shape as given.

    >>> told = assume(Prior(), np.repeat([20.0, 80.0], 10), np.full(20, 100.0))
    >>> round(told.mean, 2), round(told.strength, 1)
    (0.5, 2.7)
    """
    total, strength = float(trials.sum()), prior.strength
    mean: float | Array = 0.5 if prior.mean is None else prior.mean
    if prior.mean is None and total > 0:
        mean = float(np.clip(successes.sum() / total, 1e-6, 1 - 1e-6))
        if shape is not None:
            strength = shape.strength if strength is None else strength
            mean = np.clip(shape.mean * (successes.sum() / (trials @ shape.mean)), SMALLEST, 1 - SMALLEST)
    if strength is not None:
        return Assumed(mean, strength)
    few = (trials > 0).sum() < FEW
    return Assumed(mean, USUAL_STRENGTH if few else worth(successes, trials, np.broadcast_to(mean, trials.shape)))


def updated(expected: Expected, assumed: Mapping[str, Assumed]) -> Parameters:
    """(x + κμ) / (n + κ) of every parameter; the mean where there is neither a trial nor a prior."""
    made = {}
    for name, (x, n) in expected.counts.items():
        mean, strength = assumed[name]
        total = n + strength
        value = np.where(total > 0, (x + strength * mean) / np.where(total > 0, total, 1.0), mean)
        made[name] = np.clip(value, SMALLEST, 1 - SMALLEST)
    return made


def penalty(parameters: Parameters, assumed: Mapping[str, Assumed]) -> float:
    """Σ κμ log p + κ(1 - μ) log(1 - p); of shares, which add up to 1, Σ κμ log p."""
    total = 0.0
    for name, values in parameters.items():
        mean, strength = assumed[name]
        total += strength * float((mean * np.log(values)).sum())
        if not name.endswith(SHARE):
            total += strength * float(((1 - mean) * np.log1p(-values)).sum())
    return total


def extrapolated(first: Parameters, second: Parameters, third: Parameters) -> Parameters:
    """Where two rounds point to, in log-odds: θ0 - 2αr + α²v with r = θ1 - θ0, v = θ2 - θ1 - r, α = -|r|/|v|."""
    odds = [{name: np.log(p) - np.log1p(-p) for name, p in each.items()} for each in (first, second, third)]
    r = {name: odds[1][name] - odds[0][name] for name in first}
    v = {name: odds[2][name] - odds[1][name] - r[name] for name in first}
    length, bend = (np.sqrt(sum(float((part**2).sum()) for part in way.values())) for way in (r, v))
    alpha = -max(1.0, length / bend) if bend > 0 else -1.0
    made = {}
    for name, at in odds[0].items():
        leap = np.clip(at - 2 * alpha * r[name] + alpha**2 * v[name], -20.0, 20.0)
        value = 1 / (1 + np.exp(-leap))
        made[name] = value / value.sum() if name.endswith(SHARE) else value
    return made
