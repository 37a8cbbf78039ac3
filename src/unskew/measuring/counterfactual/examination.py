"""Examination by rank from the pages themselves, with what chance may have made of it.

The sums of `diagnosis.evidence`, taken from pages in memory: shuffled slots where they tell it, else documents at
several ranks. The curve, and whether there is enough for one, are those of every diagnosis; draws hold the chance.

Legend: N impressions, U documents of queries, P ranks, B buckets.
"""

import numpy as np

from unskew.diagnosis.evidence.evidence import fit
from unskew.diagnosis.evidence.sums import DocumentCells, SwapSums
from unskew.examination import Examination
from unskew.measuring.counterfactual.contract import RANKS, dense
from unskew.measuring.counterfactual.pages import LoggedPages
from unskew.measuring.counterfactual.sums import bucket_of
from unskew.types import Array

DRAWS = 200
BUCKETS = 64


def examination_of(pages: LoggedPages, seed: int = 0) -> Examination | None:
    """From shuffled pages, else from documents shown at several ranks, else None."""
    return from_shuffled(pages, seed) or from_swaps(pages, seed)


def from_shuffled(pages: LoggedPages, seed: int = 0) -> Examination | None:
    """From shuffled slots of pages whose first slot was shuffled; None where these tell too little."""
    top = np.zeros(len(pages.offsets) - 1)
    first = pages.shuffled & (pages.position == 1)
    top[pages.page[first]] = 1 + pages.click[first]  # 0: no shuffled first slot
    used = pages.shuffled & (top[pages.page] > 0) & (pages.position > 1)
    rank, bucket = np.minimum(pages.position[used], RANKS) - 1, _buckets(pages)[used]
    ranks = int(rank.max(initial=0)) + 1
    up = np.zeros((BUCKETS, ranks, ranks))
    first_rank = np.zeros_like(rank)
    np.add.at(up, (bucket, rank, first_rank), pages.click[used])
    np.add.at(up, (bucket, first_rank, rank), top[pages.page[used]] - 1)
    clicks = up[:, :, 0].sum(axis=0)
    clicks[0] = up[:, 0].sum(axis=0).max(initial=0)
    return _told(SwapSums(up, clicks), "shuffled", seed)


def from_swaps(pages: LoggedPages, seed: int = 0) -> Examination | None:
    """From documents that the log shows at several ranks; None where these tell too little."""
    return _told(swap_counts(pages), "swaps", seed)


def _told(sums: SwapSums, source: str, seed: int) -> Examination | None:
    """The curve of all ranks that hang together, with draws of it, where it tells more than rank 1."""
    found = fit(sums, source)
    if found.curve.known < 2:
        return None
    best, rng = found.hanging, np.random.default_rng(seed)
    covariance = found.covariance[: len(best), : len(best)]
    drawn = rng.multivariate_normal(np.log(best), covariance, DRAWS, method="eigh")
    return Examination.of(best, source, draws=np.exp(drawn))


def _buckets(pages: LoggedPages) -> Array:
    """The bucket of every impression's query: one for each, or by a hash where there are more queries."""
    by_page: Array = np.unique(pages.query, return_inverse=True)[1]  # however queries are numbered
    if by_page.max(initial=0) >= BUCKETS:
        by_page = (bucket_of(pages.query.astype(np.uint64)) % np.uint64(BUCKETS)).astype(np.int64)
    return by_page[pages.page]


def swap_counts(pages: LoggedPages) -> SwapSums:
    """Clicks at a rank, by how much another tells of the same documents, by bucket of queries."""
    document, rank = dense(pages.document), np.minimum(pages.position, RANKS) - 1
    width = int(rank.max(initial=0)) + 1
    cell, first, at = np.unique(document * width + rank, return_index=True, return_inverse=True)
    shown, clicks = (np.bincount(at, each) for each in (None, pages.click))
    cells = DocumentCells(cell // width, cell % width, _buckets(pages)[first], shown, clicks)
    return cells.swaps(width, BUCKETS)
