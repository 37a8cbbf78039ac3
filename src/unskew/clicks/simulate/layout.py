"""Pages: the top of every list in the order of the logging ranker, laid out once as a table.

Legend: Q queries, S pages, K results of a page.
"""

from __future__ import annotations

import numpy as np

from unskew.clicks.simulate.behaviour import Shown
from unskew.errors import ConfigError
from unskew.types import Array, Lists


def shuffle(pages: Shown, shuffled: Array, rng: np.random.Generator) -> None:
    """Bring the results of pages [S] into a uniformly random order, in place."""
    some = np.flatnonzero(shuffled)
    if len(some):
        keys = rng.random((len(some), pages.where.shape[1]))
        order = np.argsort(np.where(pages.where[some], keys, 2.0), axis=1)  # padding stays at the end
        for table in (pages.rows, pages.labels):
            table[some] = np.take_along_axis(table[some], order, axis=1)


def lay_out(lists: Lists, scores: Array, cutoff: int | None) -> Shown:
    """A page for each query: its list by descending score, ties in the order of the file, cut off.

    >>> import numpy as np
    >>> lists = Lists(np.zeros((3, 1)), np.array([0, 2, 3]), np.array([0, 4, 1]), np.array([7, 8]))
    >>> lay_out(lists, np.array([0.1, 0.9, 0.5]), 10).rows.tolist()
    [[1, 0], [2, -1]]
    """
    sizes = lists.sizes
    longest = int(sizes.max(initial=0))
    width = longest if cutoff is None else min(cutoff, longest)
    if width > np.iinfo(np.int16).max:
        raise ConfigError(
            f"a page of {width} results is longer than a log can hold; give a cutoff of at most 32767"
        )
    query = np.repeat(np.arange(len(lists)), sizes)
    order = np.lexsort((-scores, query))
    rank = np.arange(len(order)) - np.repeat(lists.offsets[:-1], sizes)
    kept = rank < width
    kind = np.int32 if len(order) < 2**31 else np.int64
    rows = np.full((len(lists), width), -1, kind)
    labels = np.zeros((len(lists), width), np.asarray(lists.labels).dtype)
    rows[query[kept], rank[kept]] = order[kept]
    labels[query[kept], rank[kept]] = lists.labels[order[kept]]
    return Shown(lists, rows, labels, rows >= 0)
