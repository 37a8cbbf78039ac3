"""`unskew importance`: what a run looks at, by the names of its features.

| column        | of               | what it says of a feature                                             |
|---------------|------------------|-----------------------------------------------------------------------|
| `gain`        | trees            | share of all that splits gained in training                           |
| `weight`      | a linear ranker  | how much it moves the score: weight times spread, in units of scores  |
| `permutation` | any, given a log | what a click counts less once the feature is shuffled within a page   |

A click counts 1 / log2(1 + k) at its rank k in the learned order: on shuffled pages where the log has any. On
others clicks favour what was shown high, and with it the features that the old ranker liked. The standard error is
over queries. Columns that an encoding made of one feature count together.

Legend: D features as they are, E encoded ones, Q queries, n results of all pages.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import ConfigError, Option
from unskew.learning.scoring.scorer import Scorer, load_scorer
from unskew.logs.reader import AnyLog, opened
from unskew.measuring import LoggedPages, places
from unskew.measuring.experiments.effects import Sums
from unskew.names import Names
from unskew.options.runs import ImportanceArguments
from unskew.results import Result, plain
from unskew.tables.features.encoding import Encoding, NumberField
from unskew.types import Array, Lists, ListTexts, Log
from unskew.workflows.inputs.rankings import documents
from unskew.workflows.runs.run import Run

MOST_PAGES = 20_000
"""Pages that are asked, drawn at random of more."""
LINEAR_SCALINGS = ("none", "standard", "minmax")
"""Those that multiply each feature by one number."""


@dataclass(frozen=True)
class Importances(Result):
    """What a run looks at; [D] each, None where it does not apply."""

    names: tuple[str, ...]
    gain: Array | None = None
    weight: Array | None = None
    permutation: Array | None = None
    error: Array | None = None
    """Standard error of the permutation."""
    measured: str = ""
    """What the permutation was measured on, in words."""

    @property
    def columns(self) -> dict[str, Array]:
        """The measures of importance that this kind of model has, by name."""
        found = {name: getattr(self, name) for name in ("permutation", "error", "gain", "weight")}
        return {name: values for name, values in found.items() if values is not None}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each feature, the most important first."""
        order = np.argsort(-next(iter(self.columns.values())), kind="stable")
        told = {name: [plain(float(each)) for each in values] for name, values in self.columns.items()}
        return [{"feature": self.names[at]} | {name: told[name][at] for name in told} for at in order]

    def to_dict(self) -> dict[str, Any]:
        """Features and what each says, as JSON has it."""
        return {"measured": self.measured or None, "features": self.rows()}

    def csv_text(self) -> str:
        """The table as the text of a CSV file."""
        text = io.StringIO()
        writer = csv.DictWriter(text, ["feature", *self.columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return text.getvalue()


@ImportanceArguments.checks
def importance(
    run: Run | Scorer | Path | str,
    *,
    log: AnyLog | None = None,
    features: Path | str | Sequence[Path | str] | None = None,
    columns: Mapping[str, str] | None = None,
    tracked: Path | str | None = None,
    doc_ids: bool = False,
    repeats: int = 5,
    pages: int = MOST_PAGES,
    seed: int = 0,
) -> Importances:
    """What a run looks at: by its trees or weights, and by the clicks of a log that it did not learn from.

    The log is one in memory, or a path with the files of `features` beside it; `columns` says theirs for ours,
    those of the run unless given. Each feature is shuffled within the pages `repeats` times, on at most so many
    `pages`.
    """
    scorer = run.model if isinstance(run, Run) else run if isinstance(run, Scorer) else load_scorer(run)
    names = scorer.names or tuple(f"feature {at + 1}" for at in range(scorer.features))
    forest, encoding, gains = scorer.forest(), scorer.card.encoding, None
    if forest is not None:
        gains = forest.gains(scorer.card.features)
        if encoding is not None and encoding.fields:
            gains = np.bincount(encoding.origins, gains, minlength=len(encoding.fields))
        gains = gains / max(float(gains.sum()), 1e-300)
    found = Importances(names, gain=gains, weight=linear_weights(scorer))
    if log is None:
        if features is not None:
            raise ConfigError((Option("features"), " are those of a log: give ", Option("log"), " too"))
        if not found.columns:
            what = "it has neither trees nor one weight for each feature"
            raise ConfigError(
                (f"{what}: give ", Option("log"), " and ", Option("features"), ", whose clicks tell what matters")
            )
        return found
    if not isinstance(log, Log):
        if features is None:
            raise ConfigError(("the log names documents: give their ", Option("features"), " too"))
        told = Names.of(columns, run)
        shown = opened(log, told, shared=True)
        how: dict[str, Any] = {"doc_ids": doc_ids, "tracked": tracked}
        log = shown.log(documents(scorer, features, told, candidates=shown.candidates, **how))
    return _permuted(found, scorer, log, repeats, pages, seed)


def linear_weights(scorer: Scorer) -> Array | None:
    """How much each feature moves the score of a linear ranker, [D]: the spread of what it adds in training.

    None where the ranker is not linear, or where the scaling is not or the spread is not known.
    """
    weights, encoding = scorer.feature_weights(), scorer.card.encoding
    if weights is None or scorer.scaler.kind not in LINEAR_SCALINGS:
        return None
    if encoding is None or not encoding.fields:
        return np.abs(weights) if scorer.scaler.kind == "standard" else None  # a spread of 1 each
    per_unit = weights / scorer.scaler.statistics.get("scale", np.ones(len(weights)))
    return np.array([_moved(encoding, at, per_unit) for at in range(len(encoding.fields))])


def _moved(encoding: Encoding, at: int, weights: Array) -> float:
    field, own = encoding.fields[at], weights[encoding.origins == at]
    if isinstance(field, NumberField):  # filled with the mean, it has no covariance with being missing
        flag = own[1] if len(own) > 1 else 0.0
        return float(np.hypot(own[0] * field.spread, flag * np.sqrt(field.missing * (1 - field.missing))))
    shares = np.array(field.shares)
    return float(np.sqrt(max((shares * own**2).sum() - (shares * own).sum() ** 2, 0.0)))


# ---- shuffling ----


def _permuted(found: Importances, scorer: Scorer, log: Log, repeats: int, pages: int, seed: int) -> Importances:
    rng = np.random.default_rng([seed, 13])
    asked, fair = _useful(log, pages, rng)
    if not len(asked):
        raise ConfigError("no page of the log has a click and two results, so its clicks cannot tell")
    lists, shown = _page_lists(asked), replace(LoggedPages.from_log(asked, cluster="page"), query=asked.query)
    whole = _by_query(scorer, lists, shown)
    clicks = np.bincount(shown.query, shown.per_page(shown.click))
    some = clicks > 0
    there = found.names if lists.columns is None else lists.columns.names
    drops, errors = np.zeros(len(found.names)), np.zeros(len(found.names))
    for at, name in enumerate(found.names):
        column = at if lists.columns is None else there.index(name)
        lost = np.zeros(len(clicks))
        for _ in range(repeats):
            shuffled = _shuffled(lists, column, shown.page, rng)
            lost += 0 if shuffled is None else (whole - _by_query(scorer, shuffled, shown)) / repeats
        drops[at] = lost.sum() / clicks.sum()
        errors[at] = Sums(lost, clicks, clicks).error if some.sum() > 1 else np.inf
    kind = "shuffled pages" if fair else "pages, whose clicks favour the order shown"
    base = whole.sum() / clicks.sum()
    measured = f"{int(clicks.sum()):,} clicks of {int(some.sum()):,} queries on {kind}; a click counts {base:.4f}"
    return replace(found, permutation=drops, error=errors, measured=measured)


def _useful(log: Log, most: int, rng: np.random.Generator) -> tuple[Log, bool]:
    """The pages with a click and two results, at most so many; shuffled ones alone where there are any, or not."""
    page = np.repeat(np.arange(len(log)), log.sizes)
    clicked = np.bincount(page, log.click, minlength=len(log)) > 0
    random = 0 if log.randomized is None else np.bincount(page, log.randomized, minlength=len(log))
    shuffled = (random == log.sizes) & (log.sizes > 0)
    useful = np.flatnonzero(clicked & (log.sizes > 1) & (shuffled if shuffled.any() else True))
    if len(useful) > most:
        useful = np.sort(rng.choice(useful, most, replace=False))
    return log.take(useful), bool(shuffled.any())


def _page_lists(log: Log) -> Lists:
    lists, texts = log.lists, log.lists.texts
    return Lists(
        features=np.array(lists.features[log.row]),
        offsets=log.offsets,
        labels=np.zeros(len(log.row), np.int16),
        query_ids=np.arange(len(log)),
        texts=None if texts is None else ListTexts(texts.query[log.query], texts.document[log.row]),
        name=lists.name,
        columns=lists.columns,
    )


def _by_query(scorer: Scorer, lists: Lists, shown: LoggedPages) -> Array:
    place = places(scorer.score(lists), shown)
    return np.bincount(shown.query, shown.per_page(shown.click / np.log2(1.0 + place)))


def _shuffled(lists: Lists, column: int, page: Array, rng: np.random.Generator) -> Lists | None:
    before = lists.features[:, column]
    after = before[np.lexsort((rng.random(len(page)), page))]
    if np.array_equal(before, after, equal_nan=True):
        return None
    features = lists.features.copy()
    features[:, column] = after
    return replace(lists, features=features)
