"""LambdaMART of LightGBM and XGBoost, grown on clicks; `methods/packages.py` says which there are.

Every page is a group of its own, with its clicks as labels 0 and 1: LambdaMART wants grades, and click rates of
repeated pages are none.
Pages in which all or none of the results were clicked have no pairs and are left out; of the others at most
`pages` are drawn. Rows of a group are sorted by the rank shown, where XGBoost takes a result's rank from.

Legend: N impressions or documents, S pages, D features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import DataError
from unskew.learning.boosters import Forest, Package, package
from unskew.learning.fitting.training import Training
from unskew.learning.methods.packages import PackageConfig
from unskew.learning.scoring.scorer import Card, TreeScorer
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists, Log


@dataclass(frozen=True)
class Groups:
    """Groups of documents with labels, as LambdaMART takes them: rows of a group follow one another."""

    features: Array  # [N, D] float32
    labels: Array  # [N] clicks or grades
    sizes: Array
    """Rows of each group."""
    position: Array | None = None
    """[N] rank shown, from 1; ascending within a group."""


def grow(
    asked: PackageConfig, scaler: Scaler, log: Log, chosen_by: Lists | Log | None, training: Training
) -> TreeScorer:
    """The package's trees, grown on the pages of a log; as many remain as `chosen_by` likes best."""
    threads, seed = asked.threads or training.threads or 0, training.seed
    train = groups(log, scaler, asked.pages, seed)
    held = None if chosen_by is None else groups(chosen_by, scaler, asked.pages, seed)
    booster, rounds = FITTERS[asked.package](train, held, asked, seed, threads)
    card = Card(
        method=asked.model_dump(mode="json"),
        ranker=None,
        scaling=scaler.kind,
        features=scaler.width,
        positions=int(log.position.max(initial=0)),
        trees=asked.package,
    )
    one = np.ones(1, np.float32)
    forest = Forest(asked.package, [booster], [rounds], 0 * one, one, training.threads or 0)
    return TreeScorer(card, scaler, forest.compact())


def groups(part: Lists | Log, scaler: Scaler, pages: int, seed: int) -> Groups:
    """Labelled lists or pages of a log as groups, with scaled features."""
    if isinstance(part, Lists):
        lists = scaler.apply(part)
        sizes = lists.sizes[lists.sizes > 0]  # lists without a document are left out
        return Groups(np.asarray(lists.features, np.float32), lists.labels.astype(np.int32), sizes)
    return page_groups(part, scaler.apply(part.lists).features, pages=pages, seed=seed)


def page_groups(log: Log, features: Array, *, pages: int, seed: int) -> Groups:
    """Pages with both clicked and unclicked results, at most so many, sorted by the rank shown."""
    clicks = np.bincount(np.repeat(np.arange(len(log)), log.sizes), log.click, minlength=len(log))
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


def fit_lightgbm(
    train: Groups, validation: Groups | None, asked: PackageConfig, seed: int, threads: int
) -> tuple[Any, int]:
    """LightGBM's lambdarank, with or without its bias factor per rank."""
    library = package("lightgbm")
    goal = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "seed": seed % 2**31}
    settings = asked.lightgbm(threads) | goal
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
