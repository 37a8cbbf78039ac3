"""What a run learns from and is chosen by, behind one interface: a log in memory here, shards in `shards`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar, cast

import numpy as np
import torch

from unskew.errors import ConfigError, DataError, Option, Words, warn
from unskew.learning.fitting.distributed import Part, own_parts
from unskew.learning.fitting.loop import Draws
from unskew.learning.fitting.training import Training
from unskew.learning.methods import LEARNERS
from unskew.learning.methods.contract import Context, Learner, LearnFrom, MethodConfig
from unskew.learning.methods.propensities import MEASURES
from unskew.learning.scoring.model import Model
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import Facts, reduce_log
from unskew.logs.presentation import fit_presentation
from unskew.tables.features.encoding import Encoding, EncodingRules, fit_encoding
from unskew.tables.lists.inputs import Tokens, Vectors
from unskew.tables.lists.scaling import Scaler, fit_scaler
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.folder import fingerprint
from unskew.workflows.runs.settings import Settings

if TYPE_CHECKING:
    from unskew.workflows.runs.shards import ShardData

MOST_HELD, ENOUGH = 0.25, 500
"""The largest share of the queries that is held out, where that is needed for so many clicks."""
CHECKED = 4096
"""Rows of a batch of held-out clicks."""
ELSE = (Option("learn_from", "everything"), " takes all impressions")


TrainingData: TypeAlias = "LogData | ShardData"
"""What a run learns from and is chosen by; both have the same methods."""


@dataclass(frozen=True)
class LogData:
    """A log in memory."""

    train: Log
    held_out: Log | None = None
    """Pages of other queries, to choose weights by the likelihood of their clicks."""
    validation: Lists | None = None
    """Labelled lists, to choose weights by nDCG@10."""
    _prepared: dict[tuple[int, int], Vectors | Tokens] = field(default_factory=dict, repr=False, compare=False)
    _facts: list[Facts] = field(default_factory=list, repr=False, compare=False)

    @property
    def documents(self) -> Lists:
        """The lists of the training pages."""
        return self.train.lists

    def facts(self) -> Facts:
        """The training pages in numbers; counted once."""
        if not self._facts:
            self._facts.append(Facts.of(self.train))
        return self._facts[0]

    def fit_encoding(self, rules: EncodingRules) -> Encoding:
        """What the features of the training lists become."""
        return fit_encoding(self.train.lists, rules)

    def encoded(self, encoding: Encoding) -> Self:
        """The same with encoded features; lists that the pages share are encoded once."""
        train, held = encoded(self.train, encoding), self.held_out
        if held is not None and held.lists is self.train.lists:
            held = replace(held, lists=train.lists)
        validation = encoded(self.validation, encoding)
        return replace(self, train=train, held_out=encoded(held, encoding), validation=validation)

    def fit_scaler(self, kind: str, *others: Lists) -> Scaler:
        """A scaling fitted on the training lists."""
        return fit_scaler(kind, self.train.lists, *others)

    def context(self, method: MethodConfig) -> Context:
        """Ranks, numbers, factors and propensities of the training pages."""
        how = method.measured
        filled, sizes = self.train.offsets[:-1][self.train.sizes > 0], self.train.sizes[self.train.sizes > 0]
        for name in set(method.compared) & set(self.train.columns):
            column = self.train.columns[name]
            check_compared(method, name, differs=bool((column != np.repeat(column[filled], sizes)).any()))
        return Context(
            positions=int(self.train.position.max()),
            facts=self.facts(),
            presentation=fit_presentation(self.train.columns, method.serp, bins=method.bins),
            propensities=None if how is None else MEASURES[how](self.train),
        )

    def batches(self, model: Model, training: Training, device: torch.device, workers: int) -> Draws | list[Part]:
        """Batches of the reduced log."""
        whole = self.table(model, training, device)
        if workers == 1:
            return whole
        return own_parts([1 / workers] * workers, lambda worker: whole.every(workers, worker))

    def table(self, model: Model, training: Training, device: torch.device) -> Batches:
        """The reduced log on a device."""
        documents = self._input(self.train.lists, model, device)
        counts = model.method_config.table(self.train, model.presentation)
        return Batches(counts, documents, size=training.batch, seed=training.seed, device=device)

    def held_out_batches(self, model: Model, device: torch.device) -> Batches | None:
        """The held-out pages, reduced; their lists are mostly those of the training pages, and scaled once."""
        if self.held_out is None or not self.held_out.click.any():
            return None
        documents = self._input(self.held_out.lists, model, device)
        counts = reduce_log(self.held_out, presentation=model.presentation)
        return Batches(counts, documents, size=CHECKED, device=device)

    def held_out_pages(self) -> Log | None:
        """The held-out pages as they are."""
        return self.held_out

    def fingerprint(self, *, labels: bool) -> str:
        """A hash of clicks and features, and of the log's grades where they are read."""
        return fingerprint(self.train, self.held_out, self.validation, labels=labels)

    def _input(self, lists: Lists, model: Model, device: torch.device) -> Vectors | Tokens:
        key = id(lists), id(model)
        if key not in self._prepared or self._prepared[key].features.device != device:
            self._prepared[key] = model.input(lists, device)
        return self._prepared[key]


def own_lists(log: Log) -> Log:
    """The log with the lists of its own queries alone, where those of all would not fit into memory."""
    queries, place = np.unique(log.query, return_inverse=True)
    lists, page = log.lists.take(queries), np.repeat(np.arange(len(log)), log.sizes)
    row = log.row - log.lists.offsets[log.query[page]] + lists.offsets[place[page]]
    return replace(log, lists=lists, query=place, row=row)


Held = TypeVar("Held", bound=Lists | Log | None)


def encoded(part: Held, encoding: Encoding) -> Held:
    """Lists, or the lists of a log, with encoded features."""
    if isinstance(part, Log):
        lists = encoding.apply(part.lists)
        return part if lists is part.lists else replace(part, lists=lists)
    return cast(Held, encoding.apply(part)) if isinstance(part, Lists) else part


def check_compared(method: Learner, name: str, *, differs: bool) -> None:
    """Refuse a factor that the method cannot see."""
    if not differs:
        raise DataError(
            f"{name} is the same for all results of a page, and {method.name} compares only these",
            hint='set bias = "tower", which lets it change what ranks do, or take a method such as "pal"',
        )


def split(log: Log, validation: Lists | Log | None, asked: Settings) -> LogData:
    """Training pages, and what the weights are chosen by: given, or a tenth of the log's queries."""
    log = selected(log, asked.training.learn_from)
    if isinstance(validation, Log):
        validation = selected(validation, asked.training.learn_from)
    if asked.engine != "none":
        log = log.with_ranks()
        validation = validation.with_ranks() if isinstance(validation, Log) else validation
    if asked.training.validate_on == "nothing":
        return LogData(log)
    if isinstance(validation, Lists):
        return LogData(log, validation=validation)
    if validation is not None:
        return LogData(log, validation)
    if len(log) > 1 and (log.query == log.query[0]).all() and asked.method.target == "clicks":
        warn(
            "the log has one query, so pages of it are held out in the place of queries; how the ranker "
            "does on other queries cannot be known"
        )
        apart = held_pages(log, asked.training.seed)
        return LogData(log.take(~apart), log.take(apart))
    held = held_queries(log, asked.training.seed, enough=asked.engine != "none")
    apart = np.isin(log.query, held)
    if asked.method.target == "labels":  # it may read labels, and clicks would choose the wrong weights
        return LogData(log.take(~apart), validation=log.lists.take(held))
    return LogData(log.take(~apart), log.take(apart))


def selected(log: Log, what: LearnFrom) -> Log:
    """The impressions of a log that are learned from."""
    if what == "everything":
        return log
    if what == "randomized":
        if log.randomized is None:
            raise DataError("there is no column `randomized`", path=log.lists.name, hint=ELSE)
        mask = log.randomized.astype(bool) & (log.position == 1)
    else:
        if "display_time" not in log.columns:
            raise DataError("there is no column `display_time`", path=log.lists.name, hint=ELSE)
        mask = log.columns["display_time"] > 0  # where it is missing, nobody knows
    if not mask.any():
        raise DataError(f"no impression is {what}", path=log.lists.name, hint=ELSE)
    return log.keep(mask)


def held_pages(log: Log, seed: int) -> Array:
    """A tenth of the pages, drawn by the seed, as flags [S]."""
    held = np.zeros(len(log), bool)
    held[np.random.default_rng([seed, 7]).choice(len(log), size=max(1, len(log) // 10), replace=False)] = True
    return held


def held_queries(log: Log, seed: int, *, enough: bool = False) -> Array:
    """A tenth of the queries shown, drawn by the seed, ascending; till they have clicks `enough`, if asked for."""
    shown, place = np.unique(log.query, return_inverse=True)
    if len(shown) < 2:
        count = "one query" if len(shown) else "no pages"
        raise DataError(
            f"the log has {count}, so none can be held out",
            hint=("give ", Option("validation"), ", or ", Option("validate_on", "nothing")),
        )
    rng, tenth = np.random.default_rng([seed, 7]), max(1, len(shown) // 10)
    held = rng.choice(len(shown), size=tenth, replace=False)
    if not enough:
        return np.sort(shown[held])
    order = np.concatenate([held, rng.permutation(np.setdiff1d(np.arange(len(shown)), held))])
    pages = np.bincount(np.repeat(np.arange(len(log)), log.sizes), log.click > 0, minlength=len(log))
    clicks = np.cumsum(np.bincount(place, pages)[order])
    needed = int(np.searchsorted(clicks, min(ENOUGH, MOST_HELD * clicks[-1]))) + 1
    return np.sort(shown[order[: max(tenth, min(needed, int(MOST_HELD * len(shown))))]])


# ---- whether a log can be learned from at all, and what it cannot tell


def check_worth(method: Learner, facts: Facts, *, drawn: bool = False) -> None:
    """Refuse a log that the method can learn nothing from, and warn of what the log cannot tell.

    `drawn` says that the results learned from were put first at random, which leaves one rank and no bias of it.
    """
    if method.target == "labels":
        return
    what = f"{facts.impressions:,} impressions"
    if not facts.clicks and facts.weighted is None:
        named = Option("columns", {"click": "THEIRS"})
        hint: Words = ("name the column of clicks, ", named, ", or take pages with clicks")
        raise DataError(f"nothing is clicked in {what}, so nothing says what is wanted", hint=hint)
    if facts.weighted is None and facts.clicks >= facts.impressions:
        hint = "log what was shown and not clicked too"
        raise DataError(f"every one of {what} is clicked, so nothing says what is not wanted", hint=hint)
    if facts.pages == facts.impressions and compares(method):
        raise DataError(
            f"every page has one result, and {method.name} as it is set compares the results of a page",
            hint="give results that were shown together one page_id, or take a method of single clicks: "
            + _able(lambda each: not compares(each)),
        )
    if facts.weighted is not None and not method.takes_weights:
        raise ConfigError(
            f"{method.name} as it is set counts clicks, and {facts.weighted} has weights: name a column of 0 and "
            "1, or a method with a list softmax loss, such as "
            + _able(lambda each: each.takes_weights and each.target == "clicks")
        )
    shown = np.flatnonzero(facts.by_rank[0]) + 1
    if len(shown) == 1 and not drawn:
        warn(
            f"everything was shown at rank {shown[0]}, so position bias cannot be known: {method.name} "
            "learns what is clicked there, and its examination says nothing"
        )
    if method.needs_clickless and facts.pages >= 100 and not facts.clickless:
        warn(
            f"every page of this log has a click; {method.name} needs those without one too, or it takes the "
            "filter for examination"
        )


def _able(can: Callable[[Learner], bool]) -> str:
    return ", ".join(name for name in LEARNERS if can(LEARNERS[name].model_validate({"name": name})))


def compares(method: Learner) -> bool:
    """Whether a method learns only from results that were shown together."""
    beside = isinstance(method, MethodConfig) and method.unseen is not None
    return not method.needs_clickless and not beside
