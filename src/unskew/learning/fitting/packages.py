"""LambdaMART of LightGBM and XGBoost, grown on clicks; `methods/packages.py` says which there are.

Every page is a group of its own, with its clicks as labels 0 and 1: LambdaMART wants grades, and click rates of
repeated pages are none.
Pages in which all or none of the results were clicked have no pairs and are left out; of the others at most
`pages` are drawn. Rows of a group are sorted by the rank shown, where XGBoost takes a result's rank from.

Legend: N impressions or documents, S pages, D features.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.clicks.lists.scaling import Scaler
from unskew.errors import DataError
from unskew.learning.boosters import Package, package
from unskew.learning.fitting.loop import Fit, Progress, Report, Training
from unskew.learning.methods.packages import PackageConfig
from unskew.learning.scorer import Card, TreeScorer
from unskew.types import Array, Lists, Log


@dataclass(frozen=True)
class Groups:
    """Groups of documents with labels, as LambdaMART takes them: rows of a group follow one another."""

    features: Array
    """[N, D] float32."""
    labels: Array
    """[N] clicks or grades."""
    sizes: Array
    """Rows of each group."""
    position: Array | None = None
    """[N] rank shown, from 1; ascending within a group."""


class Packaged:
    """Lets a package grow its trees; its steps are the trees in use, and there are no checkpoints."""

    def __init__(
        self, asked: PackageConfig, scaler: Scaler, log: Log, chosen_by: Lists | Log | None, training: Training
    ) -> None:
        """`chosen_by` chooses the number of trees."""
        self.asked, self.scaler, self.log, self.chosen_by, self.training = asked, scaler, log, chosen_by, training
        package(asked.package)  # or an error that says how to get it
        self.fit = Fit()

    def resume(self, folder: Path | None) -> bool:
        """There is nothing to go on from."""
        return False

    def run(
        self, validate: Callable[[TreeScorer], float] | None = None, report: Report | None = None
    ) -> TreeScorer:
        """Grow the trees; those of the best round remain. `validate` says how good they are."""
        began, asked, fit = time.perf_counter(), self.asked, self.fit
        threads, seed = asked.threads or self.training.threads or 0, self.training.seed
        train = groups(self.log, self.scaler, asked.pages, seed)
        held = None if self.chosen_by is None else groups(self.chosen_by, self.scaler, asked.pages, seed)
        booster, rounds = FITTERS[asked.package](train, held, asked, seed, threads)
        scorer = self.scorer(booster, rounds)
        fit.step, fit.best_step, fit.status = rounds, rounds, "finished"
        fit.best = None if validate is None else validate(scorer)
        seconds = time.perf_counter() - began
        fit.curve.append({"step": rounds, "metric": fit.best, "seconds": seconds})
        if report is not None:
            rate = asked.rounds * len(self.log.row) / seconds
            report(Progress(asked.rounds, float("nan"), fit.best, fit.best, seconds, rate))
        return scorer

    def scorer(self, booster: Any, rounds: int) -> TreeScorer:
        """The first trees of a booster, ready to score; the training data are let go."""
        card = Card(
            method=self.asked.model_dump(mode="json"),
            ranker=None,
            scaling=self.scaler.kind,
            features=self.scaler.width,
            positions=int(self.log.position.max(initial=0)),
            trees=self.asked.package,
        )
        one = np.ones(1, np.float32)
        made = TreeScorer(card, self.scaler, [booster], [rounds], 0 * one, one, self.training.threads or 0)
        return made.compact()


def groups(part: Lists | Log, scaler: Scaler, pages: int, seed: int) -> Groups:
    """Labelled lists or pages of a log as groups, with scaled features."""
    if isinstance(part, Lists):
        return list_groups(scaler.apply(part))
    return page_groups(part, scaler.apply(part.lists).features, pages=pages, seed=seed)


def page_groups(log: Log, features: Array, *, pages: int, seed: int) -> Groups:
    """Pages with both clicked and unclicked results, at most so many, sorted by the rank shown."""
    filled = log.sizes > 0  # reduceat does not know empty pages
    clicks = np.zeros(len(log), np.int64)
    clicks[filled] = np.add.reduceat(log.click.astype(np.int64), log.offsets[:-1][filled])
    useful = np.flatnonzero((clicks > 0) & (clicks < log.sizes))
    if not len(useful):
        raise DataError("no page has both a clicked and an unclicked result", path=log.lists.name)
    if len(useful) > pages:
        useful = np.sort(np.random.default_rng([seed, 11]).choice(useful, size=pages, replace=False))
    log = log.take(useful)
    page = np.repeat(np.arange(len(log)), log.sizes)
    order = np.lexsort((log.position, page))
    return Groups(
        features=np.asarray(features[log.row[order]], np.float32),
        labels=log.click[order].astype(np.int32),
        sizes=log.sizes,
        position=log.position[order].astype(np.int64),
    )


def list_groups(lists: Lists) -> Groups:
    """Labelled lists as groups; those without a document are left out."""
    return Groups(
        np.asarray(lists.features, np.float32), lists.labels.astype(np.int32), lists.sizes[lists.sizes > 0]
    )


def fit_lightgbm(
    train: Groups, validation: Groups | None, asked: PackageConfig, seed: int, threads: int
) -> tuple[Any, int]:
    """LightGBM's lambdarank, with or without its bias factor per rank."""
    library = package("lightgbm")
    settings = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "num_leaves": asked.leaves,
        "learning_rate": asked.learning_rate,
        "min_data_in_leaf": asked.min_data_in_leaf,
        "feature_fraction": asked.feature_fraction,
        "lambda_l2": asked.l2,
        "seed": seed % 2**31,
        "num_threads": threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    ranks = train.position if asked.corrects else None
    data = library.Dataset(train.features, train.labels, group=train.sizes, position=ranks, params=settings)
    valid, callbacks = [], []
    if validation is not None:
        valid = [library.Dataset(validation.features, validation.labels, group=validation.sizes, reference=data)]
        callbacks = [library.early_stopping(asked.patience or asked.rounds, verbose=False)]
    booster = library.train(settings, data, asked.rounds, valid_sets=valid, callbacks=callbacks)
    return booster, booster.best_iteration if validation is not None else booster.current_iteration()


def fit_xgboost(
    train: Groups, validation: Groups | None, asked: PackageConfig, seed: int, threads: int
) -> tuple[Any, int]:
    """XGBoost's rank:ndcg, plain or with ratios for clicked and unclicked ranks."""
    library = package("xgboost")
    longest = int(train.sizes.max())
    settings = {
        "objective": "rank:ndcg",
        "eval_metric": "ndcg@10",
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_leaves": asked.leaves,
        "max_depth": 0,
        "eta": asked.learning_rate,
        "colsample_bytree": asked.feature_fraction,
        "reg_lambda": asked.l2,
        "seed": seed % 2**31,
        "nthread": threads,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": longest,  # every pair of a page; ratios are kept for as many ranks
        "lambdarank_unbiased": asked.corrects,
        "verbosity": 0,
    }
    data = _matrix(library, train)
    watched = [] if validation is None else [(_matrix(library, validation), "validation")]
    patience = None if validation is None else asked.patience or asked.rounds
    booster = library.train(
        settings, data, asked.rounds, evals=watched, early_stopping_rounds=patience, verbose_eval=False
    )
    return booster, booster.best_iteration + 1 if validation is not None else asked.rounds


def _matrix(library: Any, groups: Groups) -> Any:
    return library.DMatrix(
        groups.features, groups.labels, qid=np.repeat(np.arange(len(groups.sizes)), groups.sizes)
    )


Fitter = Callable[[Groups, Groups | None, PackageConfig, int, int], tuple[Any, int]]
FITTERS: dict[Package, Fitter] = {"lightgbm": fit_lightgbm, "xgboost": fit_xgboost}
"""How each package is asked to grow: from groups to its booster, and the number of trees to keep."""
