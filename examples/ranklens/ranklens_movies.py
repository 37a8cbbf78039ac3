"""Movies as feature vectors: the table item_fields/ of the log, one row per movie that was shown.

    popularity, vote_cnt, budget    log(1 + x): TMDB's popularity, number of votes, dollars
    vote_avg, runtime               as they are: mean vote, minutes
    year                            of the release, from its Unix time
    has_budget, is_known            1 where the budget is not 0; 1 where there is an item event at all
    genre_*, tag_*                  1 where the movie has this genre or tag; those of at least `common` movies

A missing number takes the median of the others. Titles, descriptions and names of people are left out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Fields = Mapping[str, Sequence[Any]]
LOGARITHMIC = ("popularity", "vote_cnt", "budget")
PLAIN = ("vote_avg", "runtime")
WORDS = {"genres": "genre", "tags": "tag"}
YEAR = 365.2425 * 86400


def read_movies(items: Path) -> dict[str, Fields]:
    """Every field of every movie, by doc_id: {"vote_avg": [6.5], "genres": ["comedy", "drama"], ...}."""
    movies: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in pq.read_table(items).to_pylist():
        movies[row["doc_id"]][row["name"]].append(row["text"] if row["number"] is None else row["number"])
    return {doc: dict(fields) for doc, fields in movies.items()}


def write_features(movies: Mapping[str, Fields], impressions: Path, out: Path, *, common: int = 50) -> list[str]:
    """Write query_id, doc_id and features of all that was shown, for `unskew.read_features`; their names."""
    keys = ["query_id", "doc_id"]
    shown = pq.read_table(impressions, columns=keys).group_by(keys).aggregate([])
    shown = shown.sort_by([(key, "ascending") for key in keys])
    columns = features([movies.get(str(doc), {}) for doc in shown["doc_id"].to_pylist()], common)
    table = pa.table({name: shown[name] for name in keys} | columns)
    pq.write_table(table, out)
    return list(columns)


def features(movies: Sequence[Fields], common: int = 50) -> dict[str, Any]:
    """Columns of features, one entry per movie.

    >>> made = features([{"vote_avg": [6.0], "genres": ["drama"]}, {}], common=1)
    >>> made["vote_avg"].tolist(), made["is_known"].tolist(), made["genre_drama"].tolist()
    ([6.0, 6.0], [1.0, 0.0], [1.0, 0.0])
    """
    columns = {name: np.log1p(np.maximum(_numbers(movies, name), 0)) for name in LOGARITHMIC}
    columns |= {name: _numbers(movies, name) for name in PLAIN}
    columns["year"] = 1970 + _numbers(movies, "release_date") / YEAR
    columns["has_budget"] = (columns["budget"] > 0).astype(float)
    columns["is_known"] = np.array([float(bool(movie)) for movie in movies])
    for field, prefix in WORDS.items():
        count = Counter(str(word) for movie in movies for word in set(movie.get(field, ())))
        for word in sorted(word for word, times in count.items() if times >= common):
            name = f"{prefix}_{re.sub(r'[^a-z0-9]+', '_', word.lower())}"
            has = np.array([float(word in movie.get(field, ())) for movie in movies])
            columns[name] = np.maximum(columns.get(name, 0.0), has)  # "sci-fi" and "sci fi" are one
    return columns


def _numbers(movies: Sequence[Fields], name: str) -> Any:
    """A field as numbers [n], the median in the place of missing ones; 0 where all are missing."""
    values = np.array([float(movie[name][0]) if movie.get(name) else np.nan for movie in movies])
    known = values[np.isfinite(values)]
    return np.where(np.isfinite(values), values, np.median(known) if len(known) else 0.0)
