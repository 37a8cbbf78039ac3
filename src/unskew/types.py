"""The data structures that every stage shares: labelled lists, a click log, a training batch and what it shows.

Legend: Q queries, N documents or impressions, S pages, B rows of a batch, K results of a page, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class ListTexts:
    """What queries and documents say."""

    query: Array
    """[Q] str objects."""
    document: Array
    """[N] str objects: title and abstract."""


@dataclass(frozen=True)
class Columns:
    """What the features of documents are called, and which of them are categories.

    >>> Columns(("price", "brand"), {"brand": ("acme", "bolt")}).numbers
    ('price',)
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of each category; a document has the index of one of them, or NaN."""
    flags: tuple[str, ...] = ()
    """Columns of 0 and 1 that an encoding made; scaling leaves them as they are."""

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"two features are called {twice}", hint="give each a name of its own")
        if lost := sorted({*self.categories, *self.flags} - {*self.names}):
            raise DataError(f"no feature is called {lost[0]}")

    @property
    def numbers(self) -> tuple[str, ...]:
        """The features that are numbers."""
        return tuple(name for name in self.names if name not in self.categories)

    def plus(self, *names: str) -> Columns:
        """With further numbers after them."""
        return replace(self, names=(*self.names, *names))


@dataclass(frozen=True)
class Lists:
    """Queries, each with a list of documents: feature vectors, grades and ids, laid out one list after another."""

    features: Array
    """[N, D] float32; absent entries are 0. May be memory-mapped. Where `columns` names them, a missing number is
    NaN, and a category the index of its value, NaN where missing."""
    offsets: Array
    """[Q + 1] int64; documents of query q are rows offsets[q] to offsets[q + 1]."""
    labels: Array
    """[N] int16 grades, for evaluation and for the method `labeled` only."""
    query_ids: Array
    """[Q] int64 or str."""
    doc_ids: Array | None = None
    """[N] str, or None: then a document's id is its index in its list."""
    present: Array | None = None
    """[N, ceil(D / 8)] uint8, np.packbits of "the file names this entry"; None where every entry is present."""
    texts: ListTexts | None = None
    """What queries and documents say, for rankers that read."""
    confounder: int | None = None
    """Index of a feature that the logging ranker likes and relevance does not, where one was planted."""
    name: str = "lists"
    columns: Columns | None = None
    """What the features are called; None where they have no names, as in LETOR files."""
    shown: Array | None = None
    """[N] rank that the engine gave each document, NaN where it gave none; None where nobody knows."""

    def __post_init__(self) -> None:
        documents = len(self.features)
        if self.features.ndim != 2:
            raise DataError(f"features must be a matrix [documents, features], not of shape {self.features.shape}")
        if self.columns is not None and len(self.columns.names) != self.dim:
            raise DataError(f"{self.dim} features have {len(self.columns.names)} names", path=self.name)
        if len(self.offsets) != len(self.query_ids) + 1 or self.offsets[0] != 0 or self.offsets[-1] != documents:
            raise DataError(
                f"offsets must run from 0 to {documents} documents in {len(self.query_ids)} + 1 steps",
                path=self.name,
            )
        if len(self.labels) != documents or (self.doc_ids is not None and len(self.doc_ids) != documents):
            raise DataError(
                f"labels and doc_ids must have one entry for each of {documents} documents", path=self.name
            )
        texts = self.texts
        if texts is not None and (len(texts.query), len(texts.document)) != (len(self.query_ids), documents):
            raise DataError("texts must have one entry for each query and document", path=self.name)

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def sizes(self) -> Array:
        """Documents per query, [Q]."""
        sizes: Array = np.diff(self.offsets)
        return sizes

    @property
    def dim(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    def document_ids(self) -> Array:
        """The id of every document, [N]: as read, or the index in its list."""
        if self.doc_ids is not None:
            return self.doc_ids
        ids: Array = np.arange(len(self.features)) - np.repeat(self.offsets[:-1], self.sizes)
        return ids

    def ranked(self, rows: Array, mean: Array, deepest: Array) -> Lists:
        """With the mean rank of documents that were shown, these rows at these mean and deepest ranks, [M] each.

        Those that never were come below all others of their query; queries of which nothing was shown have none.
        """
        times = np.bincount(rows, minlength=len(self.features))
        total = np.bincount(rows, mean, minlength=len(self.features))
        query, last = np.repeat(np.arange(len(self)), self.sizes), np.zeros(len(self))
        np.maximum.at(last, query[rows], deepest)
        below = np.where(last > 0, last + 1, np.nan)[query]
        return replace(self, shown=np.where(times > 0, total / np.maximum(times, 1), below))

    def take(self, queries: Array | slice) -> Lists:
        """The given queries (indices or a boolean mask), in that order; a slice gives views."""
        if isinstance(queries, slice):
            start, stop, _ = queries.indices(len(self))
            offsets = self.offsets[start : stop + 1] - self.offsets[start]
            rows: Array | slice = slice(int(self.offsets[start]), int(self.offsets[stop]))
        else:
            queries = np.flatnonzero(queries) if queries.dtype == bool else queries
            sizes = self.sizes[queries]
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            rows = np.repeat(self.offsets[queries] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return replace(
            self,
            features=self.features[rows],
            offsets=offsets,
            labels=self.labels[rows],
            query_ids=self.query_ids[queries],
            doc_ids=None if self.doc_ids is None else self.doc_ids[rows],
            present=None if self.present is None else self.present[rows],
            shown=None if self.shown is None else self.shown[rows],
            texts=None if self.texts is None else ListTexts(self.texts.query[queries], self.texts.document[rows]),
        )


@dataclass(frozen=True)
class Log:
    """Pages of shown results, page after page; every impression points at a row of `lists`."""

    lists: Lists
    query: Array
    """[S] int64, the page's query as an index into `lists`."""
    offsets: Array
    """[S + 1] int64, where each page's impressions begin and end."""
    row: Array
    """[N] int64, the document shown, as a row of `lists.features`."""
    position: Array
    """[N] int16, the rank it was shown at, from 1; ascending within a page."""
    click: Array
    """[N] uint8, 0 or 1; or float32 from 0 where feedback is weighted: purchases, seconds, a price."""
    randomized: Array | None = None
    """[N] bool, true where the slot was filled at random."""
    columns: Mapping[str, Array] = field(default_factory=dict)
    """[N] each: further columns of the impressions table (serp_*, propensity, true_examination, ...)."""
    feedback: str = "click"
    """The column of the impressions table that `click` came from."""
    summary: Any = None
    """The `IngestedLog` of the table that it was made of; None where it comes from elsewhere."""

    def __len__(self) -> int:
        return len(self.query)

    @property
    def sizes(self) -> Array:
        """Results per page, [S]."""
        sizes: Array = np.diff(self.offsets)
        return sizes

    @property
    def weighted(self) -> bool:
        """Whether feedback is a weight and not a click."""
        return self.click.dtype.kind == "f"

    def take(self, pages: Array) -> Log:
        """The given pages (indices or a boolean mask), in that order."""
        pages = np.flatnonzero(pages) if pages.dtype == bool else pages
        sizes = self.sizes[pages]
        starts = np.cumsum(sizes) - sizes
        rows = np.repeat(self.offsets[pages] - starts, sizes) + np.arange(sizes.sum())
        return self._cut(pages, sizes, rows)

    def with_ranks(self) -> Log:
        """The same with the mean rank of each document in its lists; slots filled at random say nothing of it."""
        usual = slice(None) if self.randomized is None else ~self.randomized.astype(bool)
        position = self.position[usual]
        return replace(self, lists=self.lists.ranked(self.row[usual], position, position))

    def keep(self, impressions: Array) -> Log:
        """The impressions where a mask [N] holds; pages that have none left are left out."""
        pages = np.repeat(np.arange(len(self)), self.sizes)[impressions]
        sizes = np.bincount(pages, minlength=len(self))
        return self._cut(sizes > 0, sizes[sizes > 0], impressions)

    def _cut(self, pages: Array, sizes: Array, rows: Array) -> Log:
        """These pages, of these sizes, with these impressions, indices or masks."""
        return replace(
            self,
            query=self.query[pages],
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            row=self.row[rows],
            position=self.position[rows],
            click=self.click[rows],
            randomized=None if self.randomized is None else self.randomized[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
        )


class Input(Protocol):
    """Prepared documents, by row: vectors, tokens, or whatever else a ranker computes on."""

    def gather(self, rows: Tensor) -> Tensor:
        """What the ranker takes for the documents at these rows [n], one entry for each."""


@dataclass(frozen=True)
class ClickBatch:
    """Rows of (ranking, clicks) padded to K results; a row is one page, or all pages with that ranking.

    Documents are kept packed, without padding, so that a ranker computes on real ones only.
    """

    input: Input
    """Where documents are gathered from."""
    rows: Tensor
    """[n] int64 rows of the input, for the n results there are, row after row."""
    packed: Tensor
    """[n] int64, where each of them stands in the flattened [B, K]."""
    position: Tensor
    """[B, K] int64 rank shown, from 1; 0 where padded."""
    clicks: Tensor
    """[B, K] float32 number of clicks; grades for the method that learns from labels."""
    impressions: Tensor
    """[B, K] float32 number of times shown; 0 where padded. Where a row is a query, its pages."""
    where: Tensor
    """[B, K] bool, true where there is a result."""
    pairs: Tensor | None = None
    """[B, K, K] float32 pages with a click on i and none on j, for methods that reduce to pairs."""
    serp: Mapping[str, Tensor] = field(default_factory=dict)
    """[B, K] each, presentation features of the page."""
    shown_at: Tensor | None = None
    """[B, S, P] float32 pages that showed each of the first S documents at each rank, where a row is a query."""
    stands_for: Tensor | None = None
    """[B, K] float32 documents that each stands for, where a row is a query; None: for itself."""

    def pad(self, values: Tensor) -> Tensor:
        """Lay packed values [n, ...] out as [B, K, ...], 0 where padded; differentiable."""
        rows, width = self.where.shape
        if len(values) != rows * width:
            values = values.new_zeros(rows * width, *values.shape[1:]).index_copy(0, self.packed, values)
        return values.view(rows, width, *values.shape[1:])

    @cached_property
    def documents(self) -> Tensor:
        """What the ranker takes for each of the n results; gathered once, so a loss may differentiate by it."""
        return self.input.gather(self.rows)
