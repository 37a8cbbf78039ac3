"""A model that an engine cannot run, taught to trees that it can: the trees learn its scores.

The trees (LightGBM, squared error) learn the scores of all documents given, a distinct one once, weighted by how
often it is there. How faithful they are is told by five others, each taught without a fifth of the lists and tried
on those; where lists share documents, without a fifth of the distinct documents, since a document that was learned
says nothing of new ones. By list and on average:

- Kendall's tau-b of both orders;
- nDCG@10 of the trees' order, where the gain of a document is the model's own score, from 0 for the lowest of its
  list to 1 for the highest; 1 is the order of the model, and a tie counts as the mean of its orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import kendalltau
from sklearn.metrics import ndcg_score

from unskew.errors import DataError
from unskew.learning.boosters import Forest, package
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.export.exported import Fidelity
from unskew.serving.export.plain import Node, features_of, lightgbm_trees
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists

LEAST = 10
"""Lists needed."""
FOLDS, TOP = 5, 10
SETTINGS = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 63,
    "min_data_in_leaf": 5,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
    "verbosity": -1,
}


def distill(scorer: Scorer, lists: Lists, *, rounds: int = 200, threads: int = 1) -> tuple[list[Node], Fidelity]:
    """Teach the scores of a model to trees on unscaled columns; and how faithful such trees are."""
    if len(lists) < LEAST:
        raise DataError(f"{len(lists)} lists to distill from, at least {LEAST} are needed", path=lists.name)
    features, same = np.unique(np.asarray(scorer.encoded(lists).features, np.float32), axis=0, return_inverse=True)
    same = same.reshape(-1)
    scores = np.asarray(scorer.score(lists), np.float64)
    count = np.bincount(same)
    mean = np.bincount(same, scores) / count
    guess, part = np.zeros(len(features)), parts_of(same, lists)
    for each in range(FOLDS):
        others, own = part != each, part == each
        taught = _taught(features[others], mean[others], count[others], rounds, threads)
        guess[own] = taught.predict(features[own], num_threads=threads)
    told = guess[same]
    places = [slice(*lists.offsets[at : at + 2]) for at in range(len(lists))]
    tried = [each for each in places if each.stop - each.start > 1 and np.ptp(scores[each]) > 0]
    if not tried:
        raise DataError("the model gives all documents of a list the same score", path=lists.name)
    tau = np.mean([np.nan_to_num(kendalltau(told[each], scores[each]).statistic) for each in tried])
    ndcg = np.mean([ndcg_score([scores[each] - scores[each].min()], [told[each]], k=TOP) for each in tried])
    booster = _taught(features, mean, count, rounds, threads)
    forest = Forest("lightgbm", [booster], [booster.current_iteration()], np.zeros(1), np.ones(1))
    trees = list(lightgbm_trees(forest, Scaler("none", features.shape[1]), features_of(scorer)))
    return trees, Fidelity(len(tried), round(float(tau), 4), round(float(ndcg), 4))


def parts_of(same: Array, lists: Lists) -> Array:
    """Which fifth each distinct document is in, [U]: with its list, or drawn alone where lists share documents.

    `same` [N] says which distinct document each one is.
    """
    groups = np.arange(int(same.max()) + 1)
    if len(groups) == len(same):
        groups[same] = np.repeat(np.arange(len(lists)), lists.sizes)
    drawn = np.random.default_rng(0).permutation(int(groups.max()) + 1)
    part: Array = drawn[groups] % FOLDS
    return part


def _taught(features: Array, scores: Array, count: Array, rounds: int, threads: int) -> Any:
    library = package("lightgbm")
    data = library.Dataset(features, scores, weight=count, params={"verbosity": -1})
    return library.train(SETTINGS | {"num_threads": threads}, data, rounds)
