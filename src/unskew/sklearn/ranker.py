"""`unskew.sklearn.Ranker`: any method and ranker as a scikit-learn estimator, for grids, folds and pipelines.

A row of X is a result that was shown, y what came of it: clicks, 0 and 1, or weights from 0. Which rows were shown
together is said by arguments of `fit` and `score`, or by columns of X that are named when the estimator is made.
The second way needs no metadata routing: columns go wherever rows go, through every fold.

Legend: n rows, D features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from unskew.errors import UnskewError
from unskew.learning.methods import Learner
from unskew.learning.rankers import Ranker as RankerConfig
from unskew.measuring import measure_ranking
from unskew.options.runs import Beginning
from unskew.tables.features.features import read_features
from unskew.tables.frames import arrow_table, is_frame
from unskew.types import Array, Columns, Lists, Log
from unskew.workflows.runs.learn import learn

FEW_QUERIES = 10
"""Fewer queries are all learned from; otherwise clicks of a tenth of them choose the weights."""


class Ranker(BaseEstimator):  # type: ignore[misc]
    """A ranker learned from clicks.

    >>> X = np.array([[0.1], [0.9], [0.2], [0.8]] * 20)
    >>> clicks, query = np.tile([0, 1, 0, 1], 20), np.repeat(np.arange(40), 2)
    >>> ranker = Ranker("naive", "linear", steps=50).fit(X, clicks, groups=query)
    >>> float(ranker.score(X, clicks, groups=query))
    1.0
    """

    def __init__(
        self,
        method: str | Learner = "dla",
        ranker: str | RankerConfig | None = None,
        *,
        scaling: str | None = None,
        engine: Beginning = "auto",
        steps: int | None = None,
        training: Mapping[str, object] | None = None,
        random_state: int | None = 0,
        query_column: str | None = None,
        position_column: str | None = None,
        page_column: str | None = None,
    ) -> None:
        """Method and ranker by name or as configs; `training` has further fields of `unskew.Training`.

        `engine` says whether scores begin as the order shown, as in `unskew.learn`.
        `query_column`, `position_column` and `page_column` name columns of X that say which rows were shown
        together, and at which rank; they are no features.
        """
        self.method = method
        self.ranker = ranker
        self.scaling = scaling
        self.engine = engine
        self.steps = steps
        self.training = training
        self.random_state = random_state
        self.query_column = query_column
        self.position_column = position_column
        self.page_column = page_column

    def fit(
        self, X: Any, y: Any, groups: Any = None, *, qid: Any = None, position: Any = None, page: Any = None
    ) -> Self:
        """Learn from rows [n, D] and their clicks [n].

        `groups`, or `qid`, is the query of each row. `page` tells the pages of a query apart, where it has
        several; without it a query is one page. `position` is the rank, from 1, the order of rows in their page
        unless given.
        """
        if y is None:
            raise ValueError("Ranker requires y to be passed, but the target y is None")
        X, said = self._taken(X)
        features, y = self._features(X, y, reset=True)
        shown = ShownRows.of(
            len(y),
            query=_one("groups", groups, qid, said.get("query")),
            position=_one("position", position, said.get("position")),
            page=_one("page", page, said.get("page")),
        )
        with _as_value_errors():
            log = shown_log(self._lists(features, shown), y, shown)
            drawn, state = np.random.default_rng().integers(2**31), self.random_state
            options: dict[str, Any] = {**(self.training or {}), "seed": int(drawn if state is None else state)}
            options |= {} if self.steps is None else {"steps": self.steps}
            if len(np.unique(shown.query)) < FEW_QUERIES:
                options.setdefault("validate_on", "nothing")
            how: dict[str, Any] = {"ranker": self.ranker, "scaling": self.scaling, "engine": self.engine}
            run = learn(log, self.method, **how, **options)
        self.model_ = run.model
        self.metrics_ = run.metrics
        self.propensity_ = run.propensity()
        return self

    def predict(self, X: Any) -> Array:
        """Scores [n], higher is better; rows of one list are ranked by them.

        Where X has the column of positions, these are the ranks of today's engine, which scores begin from.
        """
        check_is_fitted(self)
        X, said = self._taken(X)
        features, _ = self._features(X, None, reset=False)
        with _as_value_errors():
            if isinstance(features, pa.Table):
                return self.model_.score(features)
            lists = self._named(features, np.array([0, len(features)]))
            ranks = None if "position" not in said else np.asarray(said["position"], np.float64)
            return self.model_.score(replace(lists, shown=ranks))

    def score(self, X: Any, y: Any, groups: Any = None, *, qid: Any = None) -> float:
        """Mean nDCG@10 over groups, by grades or clicks y [n]; groups in which all of y is 0 are left out.

        Without groups, in arguments or as a column of X, all rows are one list. nan where no group has any.
        """
        query = _one("groups", groups, qid, self._taken(X)[1].get("query"))
        scores, y = self.predict(X), column_or_1d(y)
        check_consistent_length(scores, y)
        shown = ShownRows.of(len(y), query=query)
        found = measure_ranking(scores[shown.order], (np.asarray(y)[shown.order], shown.query_offsets), "ndcg@10")
        return float(found.means["ndcg@10"])

    def _features(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        """X as a matrix, or as a table where columns are not all numbers; and y, checked."""
        checked = {} if y is None else {"y": y, "y_numeric": True, "ensure_min_samples": 2}
        kinds = arrow_table(X).schema.types if is_frame(X) and not isinstance(X, Mapping) else []
        if not all(pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_boolean(k) for k in kinds):
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = arrow_table(X)
            if y is None:
                return table, np.zeros(table.num_rows)
            y = check_array(column_or_1d(y), ensure_2d=False, dtype=np.float64)
            check_consistent_length(table, y)
            return table, y
        found = validate_data(self, X, reset=reset, dtype=np.float32, ensure_all_finite="allow-nan", **checked)
        return (found, np.zeros(len(found))) if y is None else found

    def _named(self, features: Array, offsets: Array) -> Lists:
        """Lists of a matrix, with the names that X had in training."""
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else Columns(tuple(map(str, names)))
        labels, queries = np.zeros(len(features), np.int16), np.arange(len(offsets) - 1)
        return Lists(features, offsets, labels, queries, name="X", columns=columns)

    def _lists(self, features: Any, shown: ShownRows) -> Lists:
        """A list for each query, its documents in the order of `shown`."""
        if isinstance(features, pa.Table):
            ids = {"query_id": shown.query, "doc_id": np.arange(len(shown.query))}
            for name in set(ids) & set(features.column_names):
                raise ValueError(f"X has a column {name}; say what it is with query_column=, or rename it")
            for name, values in ids.items():
                features = features.append_column(name, pa.array(values))
            return replace(read_features(features.take(pa.array(shown.order))), doc_ids=None)
        return self._named(features[shown.order], shown.query_offsets)

    def _taken(self, X: Any) -> tuple[Any, dict[str, Array]]:
        """X without the columns that are no features, and these."""
        named = {"query": self.query_column, "position": self.position_column, "page": self.page_column}
        wanted = {key: name for key, name in named.items() if name is not None}
        if not wanted:
            return X, {}
        if not is_frame(X):
            raise ValueError(f"{min(wanted)}_column= names a column of X, and X has no names: give a data frame")
        present = {key: name for key, name in wanted.items() if name in list(X.columns)}
        found = {key: np.asarray(X[name]) for key, name in present.items()}
        names = list(present.values())
        return (X.drop(columns=names) if hasattr(X, "loc") else X.drop(names)), found

    def __sklearn_tags__(self) -> Any:
        """It needs clicks from 0, and takes missing values and categories."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        tags.input_tags.allow_nan = True
        return tags


def _one(name: str, *given: Any) -> Array | None:
    """The one value that was given; None where there is none, an error where there are several."""
    said = [each for each in given if each is not None]
    if len(said) > 1:
        raise ValueError(f"{name} is said twice: by an argument, and by another or a column of X")
    return np.asarray(said[0]) if said else None


@contextmanager
def _as_value_errors() -> Iterator[None]:
    """Raise our errors as ValueError, which scikit-learn expects."""
    try:
        yield
    except UnskewError as error:
        raise ValueError(str(error)) from error


# ---- how rows were shown ----


@dataclass(frozen=True)
class ShownRows:
    """How rows [n] were shown; sorted by query, page and rank they are in `order`."""

    query: Array
    """[n] from 0."""
    page: Array
    """[n] from 0, ascending with the query."""
    position: Array
    """[n] from 1."""
    order: Array
    """[n] rows by query, page and position."""

    @classmethod
    def of(
        cls, rows: int, *, query: Array | None = None, position: Array | None = None, page: Array | None = None
    ) -> ShownRows:
        """From what was said of so many rows; without a query all are one list."""
        for name, column in (("groups", query), ("position", position), ("page", page)):
            if column is not None and (column.ndim != 1 or len(column) != rows):
                raise ValueError(f"{name} must have one entry for each of {rows} rows, not shape {column.shape}")
        codes = np.zeros(rows, np.int64) if query is None else _codes(query)
        pages = codes if page is None else _codes(page)
        pages = _codes(codes * (int(pages.max(initial=0)) + 1) + pages)
        if position is None:  # the place of each row among those of its page, from 1
            turn, sizes = np.argsort(pages, kind="stable"), np.bincount(pages)
            rank = np.empty(rows, np.int64)
            rank[turn] = np.arange(rows) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
        else:
            rank, most = np.asarray(position, np.float64), np.iinfo(np.int16).max
            if not ((rank >= 1) & (rank <= most) & (rank % 1 == 0)).all():
                raise ValueError(f"position has values that are no ranks: whole numbers from 1 to {most}")
            rank = rank.astype(np.int64)
        order = np.lexsort((rank, pages))
        twice = np.flatnonzero((np.diff(pages[order]) == 0) & (np.diff(rank[order]) == 0))
        if len(twice):
            where = order[twice[0]]
            raise ValueError(
                f"position {rank[where]} is taken twice on a page, first in row {where}; tell pages apart, page="
            )
        return cls(codes, pages, rank, order)

    @property
    def query_offsets(self) -> Array:
        """[Q + 1] where queries begin, in `order`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.query))]).astype(np.int64)


def shown_log(lists: Lists, click: Array, shown: ShownRows) -> Log:
    """The log of rows whose documents are those of the lists, in the order of `shown`."""
    page = shown.page[shown.order]
    starts = np.flatnonzero(np.concatenate([[True], page[1:] != page[:-1]]))
    feedback = np.asarray(click, np.float64)[shown.order]
    if (feedback < 0).any():
        raise ValueError("y has values below 0; clicks are 0 or 1, weights are from 0")
    whole = np.isin(feedback, (0, 1)).all()
    return Log(
        lists,
        query=shown.query[shown.order][starts],
        offsets=np.append(starts, len(page)).astype(np.int64),
        row=np.arange(len(page)),
        position=shown.position[shown.order].astype(np.int16),
        click=feedback.astype(np.uint8 if whole else np.float32),
        feedback="click" if whole else "y",
    )


def _codes(values: Array) -> Array:
    codes: Array = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes
