"""LambdaMART of LightGBM and XGBoost, grown on clicks; `methods/packages.py` says which there are.

Every page is a group of its own, with its clicks as labels 0 and 1: LambdaMART wants grades, and click rates of
repeated pages are none.
Pages in which all or none of the results were clicked have no pairs and are left out; of the others at most
`pages` are drawn. Rows of a group are sorted by the rank shown, where XGBoost takes a result's rank from.

Legend: N impressions or documents, S pages, D features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from unskew.errors import ConfigError, DataError, MissingExtra, did_you_mean
from unskew.learning.rankers.trees import Growing, TreeRanker, lightgbm
from unskew.types import Array, Lists, Log


class BaselineOptions(Growing):
    """How the baselines are grown; the same for all of them."""

    pages: int = Field(100_000, ge=1)
    """Most pages to learn from."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many rounds without a better validation; none grows every tree and keeps the best round."""
    threads: int | None = Field(None, ge=1)
    """Processor threads; none leaves it to the package."""


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


@dataclass(frozen=True)
class Baseline:
    """A trained baseline."""

    name: str
    rounds: int
    """Trees in use."""
    booster: Any
    """The package's own model."""
    predict: Callable[[Array], Array]
    """Scores [N] of features [N, D]."""

    def score(self, lists: Lists) -> Array:
        """Scores of every document, higher is better, [N]."""
        return np.asarray(self.predict(np.asarray(lists.features, np.float32)))


def fit_baseline(
    name: str, log: Log, validation: Lists | Log | None = None, seed: int = 0, **options: Any
) -> Baseline:
    """Train one of BASELINES on clicks; `options` are fields of `BaselineOptions`.

    The number of trees is the best by nDCG@10 on `validation`: labelled lists, or the clicks of a log; without it
    all rounds are kept.
    """
    if name not in BASELINES:
        raise ConfigError(f"unknown baseline {name!r}. {did_you_mean(name, BASELINES)}")
    unknown = sorted(set(options) - set(BaselineOptions.model_fields))
    if unknown:
        raise ConfigError(
            f"unknown option {unknown[0]!r}. {did_you_mean(unknown[0], BaselineOptions.model_fields)}"
        )
    asked = BaselineOptions.model_validate(options)
    train = page_groups(log, pages=asked.pages, seed=seed)
    chosen_by = (
        list_groups(validation)
        if isinstance(validation, Lists)
        else None
        if validation is None
        else page_groups(validation, pages=asked.pages, seed=seed)
    )
    return BASELINES[name](train, chosen_by, asked, seed)


def page_groups(log: Log, *, pages: int, seed: int) -> Groups:
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
        features=np.asarray(log.lists.features[log.row[order]], np.float32),
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
    train: Groups, validation: Groups | None, asked: BaselineOptions, seed: int, *, position: bool = False
) -> Baseline:
    """LightGBM's lambdarank, with or without its bias factor per rank."""
    library = lightgbm()
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
        "num_threads": asked.threads or 0,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    ranks = train.position if position else None
    data = library.Dataset(train.features, train.labels, group=train.sizes, position=ranks, params=settings)
    valid, callbacks = [], []
    if validation is not None:
        valid = [library.Dataset(validation.features, validation.labels, group=validation.sizes, reference=data)]
        callbacks = [library.early_stopping(asked.patience or asked.rounds, verbose=False)]
    booster = library.train(settings, data, asked.rounds, valid_sets=valid, callbacks=callbacks)
    rounds = booster.best_iteration if validation is not None else booster.current_iteration()
    threads = asked.threads or 0
    return Baseline(
        "lightgbm_position" if position else "lightgbm",
        rounds,
        booster,
        lambda rows: booster.predict(rows, num_iteration=rounds, num_threads=threads),
    )


def fit_xgboost(
    train: Groups, validation: Groups | None, asked: BaselineOptions, seed: int, *, unbiased: bool = False
) -> Baseline:
    """XGBoost's rank:ndcg, plain or with ratios for clicked and unclicked ranks."""
    library = xgboost()
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
        "nthread": asked.threads or 0,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": longest,  # every pair of a page; ratios are kept for as many ranks
        "lambdarank_unbiased": unbiased,
        "verbosity": 0,
    }
    data = _matrix(library, train)
    watched = [] if validation is None else [(_matrix(library, validation), "validation")]
    patience = None if validation is None else asked.patience or asked.rounds
    booster = library.train(
        settings, data, asked.rounds, evals=watched, early_stopping_rounds=patience, verbose_eval=False
    )
    rounds = booster.best_iteration + 1 if validation is not None else asked.rounds
    return Baseline(
        "xgboost_unbiased" if unbiased else "xgboost",
        rounds,
        booster,
        lambda rows: booster.predict(library.DMatrix(rows), iteration_range=(0, rounds)),
    )


def _matrix(library: Any, groups: Groups) -> Any:
    return library.DMatrix(
        groups.features, groups.labels, qid=np.repeat(np.arange(len(groups.sizes)), groups.sizes)
    )


class XGBoostRanker(TreeRanker):
    """XGBoost's trees behind the interface of a network, [n, D] -> [n, 1]; kept on disk as XGBoost's JSON."""

    ending = "json"

    def grown(self, booster: Any, rows: Array, first: int, count: int) -> Tensor:
        """The sum of `count` trees from number `first` on, [n]."""
        data = xgboost().DMatrix(rows, nthread=self.threads or -1)
        return torch.from_numpy(booster.predict(data, iteration_range=(first, first + count)))

    def text(self, booster: Any, count: int) -> str:
        """XGBoost's own JSON of the first trees."""
        raw: bytearray = booster[:count].save_raw("json")
        return raw.decode()

    def opened(self, text: str, path: Path | None = None) -> Any:
        """The booster of an XGBoost model."""
        library = xgboost()
        booster = library.Booster()
        try:
            booster.load_model(bytearray(text, "utf-8"))
        except library.core.XGBoostError as error:
            raise DataError(f"not an XGBoost model: {str(error).splitlines()[0]}", path=path) from error
        return booster

    def size(self, booster: Any) -> tuple[int, int]:
        """Trees and features of a booster."""
        return booster.num_boosted_rounds(), booster.num_features()


def xgboost() -> Any:
    """The package, or an error that says how to get it."""
    try:
        return import_module("xgboost")
    except ImportError as error:
        raise MissingExtra("trees", "xgboost") from error


Fitter = Callable[[Groups, Groups | None, BaselineOptions, int], Baseline]
BASELINES: dict[str, Fitter] = {
    "lightgbm": fit_lightgbm,
    "lightgbm_position": lambda *given: fit_lightgbm(*given, position=True),
    "xgboost": fit_xgboost,
    "xgboost_unbiased": lambda *given: fit_xgboost(*given, unbiased=True),
}
"""Baselines by name."""
