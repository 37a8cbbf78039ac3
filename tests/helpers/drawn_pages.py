"""Logged pages of users whose examination is known, for tests of estimates."""

from __future__ import annotations

import numpy as np

from unskew.measuring import LoggedPages
from unskew.types import Array


def pages_by_rank(
    rng: np.random.Generator, relevance: Array, query: Array, usual: Array, random: Array, cluster: Array
) -> LoggedPages:
    """Pages of users who look at rank k with 1/k: the usual order [P, K], but for pages that are random."""
    pages, ranks = len(query), relevance.shape[1]
    order = np.where(random[:, None], rng.random((pages, ranks)).argsort(axis=1), usual)
    chance = np.take_along_axis(relevance[query], order, 1) / np.arange(1, ranks + 1)
    return LoggedPages(
        offsets=np.arange(pages + 1) * ranks,
        position=np.tile(np.arange(1, ranks + 1), pages),
        click=(rng.random((pages, ranks)) < chance).astype(float).ravel(),
        shuffled=np.repeat(random, ranks),
        query=query,
        document=(query[:, None] * ranks + order).ravel(),
        cluster=cluster,
    )
