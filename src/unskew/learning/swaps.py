"""Examination from documents that a log shows at several ranks, where nothing was shuffled on purpose.

Reference: Agarwal, Zaitsev, Wang, Li, Najork, Joachims, "Estimating Position Bias without Intrusive
Interventions", WSDM 2019: rankings change over time, and one document of a query at two ranks is an experiment.

    c_dk ~ n_dk theta_k r_d        clicks of document d at rank k, of n_dk displays
    given C_d = sum_k c_dk:        c_dk ~ Multinomial(C_d, n_dk theta_k / sum_j n_dj theta_j)
    theta_k <- sum_d c_dk / sum_d (C_d n_dk / sum_j n_dj theta_j)                        until it stays

Relevance r_d has gone from the likelihood, so no model of it is needed. It must be the same at all ranks: where a
document rose because people began to want it, examination comes out too steep.

Differences from the paper: it compares click rates of every two ranks with weights for who was shown where, and
this is the likelihood of all ranks at once. Ranks count only as far as swaps tie them to rank 1.

Legend: N impressions, P ranks, U documents of queries.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from unskew.errors import DataError
from unskew.types import Array

LEAST = 10
"""Clicks at a rank, among documents that were shown at others too, below which it tells too little."""
ROUNDS = 2000


def swap_propensity(document: Array, position: Array, click: Array) -> Array:
    """Examination relative to rank 1, [P], from the document of a query [N], its rank and whether it was clicked.

    >>> document, position = np.array([0] * 200 + [1] * 80), np.array([1, 2] * 140)
    >>> click = np.tile([1, 1, 1, 0], 70)                        # every first one, and every other second one
    >>> swap_propensity(document, position, click).tolist()
    [1.0, 0.5]
    """
    shown, clicks = _by_document(document, position, click)
    ranks = _tied(shown, clicks)
    shown, clicks = shown[:, :ranks].tocsr(), clicks[:, :ranks].tocsr()
    clicked = np.asarray(clicks.sum(axis=1)) > 0  # others were clicked at ranks beyond, and tell nothing
    shown, clicks = shown[clicked], clicks[clicked]
    total, at_rank = np.asarray(clicks.sum(axis=1)), np.asarray(clicks.sum(axis=0))
    theta = np.ones(ranks)
    for _ in range(ROUNDS):
        new = at_rank / (shown.T @ (total / (shown @ theta)))
        new /= new[0]
        if np.abs(new / theta - 1).max() < 1e-9:
            break
        theta = new
    return theta


def _by_document(document: Array, position: Array, click: Array) -> tuple[coo_array, coo_array]:
    """Displays and clicks [U, P] of the documents that were shown at several ranks and clicked."""
    _, code = np.unique(document, return_inverse=True)
    rank = position.astype(np.int64) - 1
    cell, index = np.unique(code * (rank.max() + 1) + rank, return_inverse=True)
    row, column = np.divmod(cell, rank.max() + 1)
    n, c = np.bincount(index), np.bincount(index, weights=click > 0)
    useful = (np.bincount(row) > 1) & (np.bincount(row, weights=c) > 0)
    keep = useful[row]
    if not keep.any():
        raise _too_little()
    _, row = np.unique(row[keep], return_inverse=True)
    place = row, column[keep]
    return coo_array((n[keep].astype(float), place)).tocsc(), coo_array((c[keep], place)).tocsc()


def _tied(shown: coo_array, clicks: coo_array) -> int:
    """How many ranks from the first on have enough clicks and are tied to it by documents."""
    enough = np.asarray(clicks.sum(axis=0)) >= LEAST
    ranks = len(enough) if enough.all() else int(np.argmin(enough))
    while ranks > 1:
        part = shown[:, :ranks]
        several = np.asarray((part > 0).sum(axis=1)) > 1
        together = (part[several].T @ part[several]).toarray() > 0
        _, group = connected_components(together)
        if (group == group[0]).all():
            return ranks
        ranks = int(np.argmin(group == group[0]))
    raise _too_little()


def _too_little() -> DataError:
    return DataError(
        "too few documents were shown at several ranks to tell examination from relevance",
        hint="shuffle some pages and mark them in a column `randomized`, or learn a run, such as with method dla, "
        "and ask for its propensity",
    )
