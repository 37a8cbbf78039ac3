"""The logging ranker: what ordered the lists while the clicks were collected.

Every ranker is a frozen configuration with `scores(lists, seed)`, [N] float64; lists are sorted by descending
score and ties keep the order of the file.

    svm      pairwise linear SVM trained on 1 % of the labelled queries, as in the literature
             (T. Joachims, "Optimizing search engines using clickthrough data", KDD 2002)
    random   a random order
    oracle   the grades themselves
    scores   given scores
    feature  one feature, for example BM25
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PlainValidator

from unskew.errors import DataError, Option
from unskew.settings import Config, named
from unskew.tables.features.encoding import fit_encoding
from unskew.types import Array, Lists

CELLS = 2**24
"""Feature values scored at a time, so that memory-mapped features are never copied as a whole."""


class Logger(Config, ABC):
    """A ranker that orders the lists; a frozen configuration."""

    @abstractmethod
    def scores(self, lists: Lists, seed: int = 0) -> Array:
        """A score for every document, [N] float64."""


@dataclass(frozen=True)
class LinearRanker:
    """A trained linear ranker: score = w·(x - mean)/scale, the favourite feature included."""

    mean: Array  # [D] float64
    scale: Array  # [D] float64, never 0
    weights: Array  # [D] float64

    def scores(self, lists: Lists) -> Array:
        """Scores of these or of other lists, [N] float64: one ranker can log training and validation lists."""
        slope, step = self.weights / self.scale, max(1, CELLS // lists.dim)
        parts = [
            lists.features[start : start + step] @ slope - self.mean @ slope
            for start in range(0, len(lists.features), step)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)


class SvmLogger(Logger):
    """A linear ranker trained on pairs of different grade in a small share of the queries."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.01
    """Share of the queries whose grades it may see, at least one query."""
    pairs: Annotated[int, Field(ge=1)] = 20_000
    """Most pairs to train on; more are subsampled."""
    c: Annotated[float, Field(gt=0.0)] = 0.01
    """Cost of a violated pair, against 1 for half the squared norm of the weights."""
    favourite: float = 1.5
    """Where the lists have a planted confounder, this times that feature is added to the score, both in standard
    deviations: the ranker has a wrong favourite, which a learner must not take over. 0 turns it off."""

    def scores(self, lists: Lists, seed: int = 0) -> Array:
        """Train on the lists and score them; categories and gaps of named features as numbers."""
        lists = lists if lists.columns is None else fit_encoding(lists).apply(lists)
        return self.fit(lists, seed).scores(lists)

    def fit(self, lists: Lists, seed: int = 0) -> LinearRanker:
        """Train on a seeded share of the queries."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import LinearSVC

        rng = np.random.default_rng(seed)
        sample = sample_queries(lists, self.share, rng)
        mean, spread = (measure(sample.features, axis=0, dtype=float) for measure in (np.mean, np.std))
        scale = np.where(spread > 1e-12, spread, 1.0)
        better, worse = sample_pairs(sample, self.pairs, rng)
        sign = np.where(np.arange(len(better)) % 2, 1, -1)  # both classes, in equal parts
        difference = (sample.features[better] - sample.features[worse]) / scale
        model = LinearSVC(loss="hinge", C=self.c, fit_intercept=False, random_state=seed, max_iter=200)
        if len(better) == 1:  # one pair: two copies, one turned round
            difference, sign = np.repeat(difference, 2, axis=0), np.array([1, -1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # near the optimum is good enough for a logger
            model.fit(difference * sign[:, None], sign)
        ranker = LinearRanker(mean, scale, model.coef_[0])
        if lists.confounder is None or self.favourite == 0:
            return ranker
        column = np.asarray(lists.features[:, lists.confounder], float)
        weights = ranker.weights / (ranker.scores(lists).std() or 1.0)
        weights[lists.confounder] += self.favourite * scale[lists.confounder] / (column.std() or 1.0)
        return LinearRanker(mean, scale, weights)


class RandomLogger(Logger):
    """A random order, the same in every page."""

    def scores(self, lists: Lists, seed: int = 0) -> Array:
        """Uniform random scores."""
        return np.random.default_rng(seed).random(len(lists.features))


class OracleLogger(Logger):
    """The best order there is."""

    def scores(self, lists: Lists, seed: int = 0) -> Array:
        """The labels of the documents."""
        return np.asarray(lists.labels, float)


class ScoresLogger(Logger):
    """Scores from elsewhere: a ranker in production, or one trained on other lists."""

    values: Annotated[Any, PlainValidator(lambda given: np.asarray(given, float))]
    """[N] scores, one for each document."""

    def scores(self, lists: Lists, seed: int = 0) -> Array:
        """The given scores."""
        values: Array = self.values
        if values.shape != (len(lists.features),):
            raise DataError(
                f"scores have the shape {values.shape}, there are {len(lists.features)} documents",
                path=lists.name,
                hint="give one score for each document",
            )
        return values


class FeatureLogger(Logger):
    """One feature as the ranking."""

    column: Annotated[int, Field(ge=0)]
    """Index of the feature, from 0."""
    descending: bool = True
    """Whether large values come first."""

    def scores(self, lists: Lists, seed: int = 0) -> Array:
        """The values of the feature."""
        if self.column >= lists.dim:
            raise DataError(f"there is no feature {self.column} among {lists.dim}", path=lists.name)
        values = np.asarray(lists.features[:, self.column], float)
        return values if self.descending else -values


LOGGERS: dict[str, type[Logger]] = {
    "svm": SvmLogger,
    "random": RandomLogger,
    "oracle": OracleLogger,
    "scores": ScoresLogger,
    "feature": FeatureLogger,
}
"""Logging rankers by the name that a run file or the command line uses."""


def logging_scores(lists: Lists, logger: Logger | str = "svm", seed: int = 0) -> Array:
    """The scores that order the lists, [N] float64; measure them to know how good the logging ranker was."""
    scores = find_logger(logger).scores(lists, seed)
    if not np.isfinite(scores).all():
        bad = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise DataError(
            f"the logging ranker scores document {bad} with {scores[bad]}",
            path=lists.name,
            hint="remove missing and infinite values from the features or the scores",
        )
    return scores


def find_logger(logger: Logger | str) -> Logger:
    """The configuration of this name, with its defaults."""
    return logger if isinstance(logger, Logger) else named("logger", logger, LOGGERS)


def sample_queries(lists: Lists, share: float, rng: np.random.Generator) -> Lists:
    """A share of the queries, at least one, drawn among those with two different grades."""
    filled = np.flatnonzero(lists.sizes)
    starts = lists.offsets[filled]
    varied = np.zeros(0, int)
    if len(filled):
        varied = filled[np.maximum.reduceat(lists.labels, starts) > np.minimum.reduceat(lists.labels, starts)]
    if not len(varied):
        raise DataError(
            "no query has two documents of different grades, so no ranker can be trained",
            path=lists.name,
            hint=("use another logging ranker, for example ", Option("logger", "random")),
        )
    count = min(max(1, int(share * len(lists))), len(varied))
    return lists.take(rng.choice(varied, count, replace=False))


def sample_pairs(lists: Lists, most: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of the better and of the worse document of pairs within a query, at most `most` pairs."""
    better, worse = [], []
    for start, end in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        grades = lists.labels[start:end]
        above, below = np.nonzero(grades[:, None] > grades[None, :])
        better.append(above + start)
        worse.append(below + start)
    winners, losers = np.concatenate(better), np.concatenate(worse)
    keep = rng.permutation(len(winners))[:most]
    return winners[keep], losers[keep]
