"""Click models fitted to one log and compared on pages that none of them has seen.

The best is the one with the highest log-likelihood of held-out pages. Pages of one query are alike, so
differences to it have standard errors over queries (a ratio estimator: differences summed by query over pages by
query).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from unskew.diagnosis.click_models.contract import ClickModel
from unskew.diagnosis.click_models.fitted import CLICK_MODELS, FittedClickModel, find_model, fit_model, perplexity
from unskew.diagnosis.click_models.pages import AnyLog, ClickPages, read_pages
from unskew.diagnosis.evidence.likelihood import ratio_and_error
from unskew.errors import ConfigError, Option
from unskew.options.base import LogReading
from unskew.results import Result
from unskew.types import Array

CLEAR = 2.0
"""Standard errors by which a model must be behind to be called worse."""


@dataclass(frozen=True)
class ComparedModel:
    """How well one click model predicts held-out clicks: a line of the table."""

    name: str
    log_likelihood: float
    """Mean over held-out pages."""
    behind: float
    """How far it is below the best."""
    standard_error: float | None
    """Of that, over queries; None where there are not two, and for the best."""
    perplexity: float
    """Of each click by itself."""
    conditional_perplexity: float
    """Of each click given those above it."""
    perplexity_by_rank: Mapping[int, float | None]
    conditional_perplexity_by_rank: Mapping[int, float | None]
    parameters: int
    rounds: int
    converged: bool
    seconds: float
    """Seconds of processor time that fitting took."""


@dataclass(frozen=True)
class ClickModelComparison(Result):
    """Click models of one log, best first."""

    models: list[ComparedModel]
    pages: int
    """Pages that the models were fitted on."""
    held_out: int
    """Pages that were judged by."""
    impressions: int
    """Results on the held-out pages."""
    unseen: int
    """Held-out results whose pair was never shown in training: they count as results beyond the last rank."""
    notes: list[str]
    """What to know before believing the table."""
    fitted: dict[str, Any] = field(default_factory=dict)
    """Each `FittedClickModel` by its name; not in JSON."""
    told = ("best", "level")
    untold = ("fitted",)

    @property
    def best(self) -> str:
        """The model with the highest held-out log-likelihood."""
        return self.models[0].name

    @property
    def level(self) -> list[str]:
        """Models that are not clearly worse than the best, which is among them."""
        unsure = (
            row for row in self.models if row.standard_error is None or row.behind <= CLEAR * row.standard_error
        )
        return [row.name for row in unsure]

    @property
    def judge(self) -> str | None:
        """The model to judge documents by: the best that tells them apart, of those level with it one that tells
        ranks apart too, and `dctr` only where it is alone: where nothing moved they explain clicks alike.
        """
        apart = [row.name for row in self.models if self.fitted[row.name].tells_documents_apart]
        by_rank = [name for name in apart if name in self.level and ("pbm" in name or "ubm" in name)]
        others = [name for name in apart if not name.startswith("dctr")]
        return next(iter([*by_rank, *others, *apart]), None)


def fit_and_compare(
    log: AnyLog,
    models: Sequence[ClickModel | str] = tuple(CLICK_MODELS),
    *,
    held_out: AnyLog | float = 0.2,
    seed: int = 0,
    **reading: Unpack[LogReading],
) -> ClickModelComparison:
    """Fit click models to a log and compare them on held-out pages, best first.

    `held_out` is another log, best of a later time, or the share of pages to keep back, drawn by `seed`. `models`
    are names, names joined by + for mixtures, or models with settings. `reading` is as for `read_pages`.
    """
    chosen = _named(models)
    pages = read_pages(log, **reading)
    if isinstance(held_out, float | int):
        pages, held = pages.halves(float(held_out), seed)
    else:
        held = read_pages(held_out, **reading)
    known = held.known_to(pages.pairs)
    fitted = {name: fit_model(name, model, pages) for name, model in chosen.items()}
    likelihood = {name: model.page_log_likelihood(known) for name, model in fitted.items()}
    order = sorted(fitted, key=lambda name: -float(likelihood[name] @ held.weight))
    rows = [compared(fitted[name], known, likelihood[name], likelihood[order[0]]) for name in order]
    weight = np.where(held.where, held.weight[:, None], 0.0)
    seen = np.bincount(pages.pair[pages.where], minlength=pages.bound + 1) > 0  # then a stranger, and padding
    unseen = float((weight * ~seen[known.pair]).sum())
    return ClickModelComparison(
        models=rows,
        fitted=fitted,
        pages=round(pages.total),
        held_out=round(held.total),
        impressions=round(float(weight.sum())),
        unseen=round(unseen),
        notes=notes_on(pages, held, unseen / float(weight.sum())),
    )


def _named(models: Sequence[ClickModel | str]) -> dict[str, ClickModel]:
    """Models by name; a second one of a name gets a number."""
    if isinstance(models, str) or not models:
        raise ConfigError((Option("models"), " takes a list of click models or their names"))
    found: dict[str, ClickModel] = {}
    for each in models:
        name, model = find_model(each)
        again = sum(other.split(" ")[0] == name for other in found)
        found[f"{name} {again + 1}" if again else name] = model
    return found


def compared(model: FittedClickModel, held: ClickPages, likelihood: Array, best: Array) -> ComparedModel:
    """The line of a model, beside the best one's log-likelihood of each page."""
    mean, error = paired(best - likelihood, held.weight, held.query)
    own, given = (perplexity(model.chances(held, given_clicks=given), held) for given in (False, True))
    return ComparedModel(
        name=model.name,
        log_likelihood=float(likelihood @ held.weight / held.total),
        behind=mean,
        standard_error=None if likelihood is best else error,
        perplexity=own.overall,
        conditional_perplexity=given.overall,
        perplexity_by_rank=own.by_rank,
        conditional_perplexity_by_rank=given.by_rank,
        parameters=model.parameter_count,
        rounds=len(model.trace),
        converged=model.converged,
        seconds=round(model.seconds, 3),
    )


def paired(difference: Array, weight: Array, query: Array) -> tuple[float, float | None]:
    """Mean over pages, and its standard error over queries; None where there are not two queries."""
    _, number = np.unique(query, return_inverse=True)
    total, pages = (np.bincount(number, each) for each in (difference * weight, weight))
    mean, error = ratio_and_error(total, pages)
    return mean, None if len(pages) < 2 else error


def notes_on(pages: ClickPages, held: ClickPages, unseen: float) -> list[str]:
    """What keeps a log from telling models apart."""
    notes = []
    if pages.reason is not None:
        notes.append(
            f"What the order shown says of documents cannot be known: {pages.reason}. Most of what clicks fall by "
            "rank is taken for examination."
        )
    if len(np.unique(held.query)) < 2:
        notes.append("There is one query: differences have no standard error, so no model is called better.")
    if unseen > 0.1:
        notes.append(f"{unseen:.0%} of held-out impressions are of documents that training never showed.")
    return notes
