"""A world of serving in which every right answer is known: models, generations of a store, and their scores.

`main` takes two features of items and three tracked ones of clicks, `plain` those of items. Each is one of a few
models with drawn weights; a store holds one of a few tables of items and one of a few windows of clicks. What is
right is computed by torch from the tables and from what tracking says of a pair, not by what serves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

import unskew
from unskew.files import digest_of
from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import MLP, Linear
from unskew.learning.scoring.model import build
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.lists.scaling import fit_scaler
from unskew.tracking.features import FEATURES, feature_vector
from unskew.tracking.windows import Lookup
from unskew.types import Columns, Lists

TRACKED = (FEATURES[0], FEATURES[2], FEATURES[-1])
BRANDS = ("acme", "bolt", "crux")


@dataclass(frozen=True)
class World:
    """All that is known before it begins."""

    folder: Path
    kinds: int
    """Models of each name, tables of items, and windows of clicks."""
    queries: dict[str, list[str]]
    """Documents of each query."""
    items: list[dict[str, list]]
    """Tables by number; the last one is that of requests."""
    versions: dict[str, dict[str, int]]
    """Of models, by name: which one has a version."""
    scores: dict[str, np.ndarray]
    """By name: model, table, window, pair."""
    pairs: dict[tuple[str, str], int]

    def model(self, name: str, number: int) -> Path:
        """A saved model."""
        return self.folder / f"{name}-{number}"

    def tracked(self, number: int) -> Path:
        """A tracking store."""
        return self.folder / f"tracked-{number}"

    def right(self, name: str, version: str, items: int, clicks: int, query: str, doc: str) -> float:
        """The score of a document."""
        return float(self.scores[name][self.versions[name][version], items, clicks, self.pairs[query, doc]])


def make_world(folder: Path, seed: int, kinds: int = 4) -> World:
    """Draw one, and write its models and tracking stores."""
    rng = np.random.default_rng(seed)
    lists = unskew.make_lists(queries=3, features=4, documents=(10, 12), seed=seed)
    queries: dict[str, list[str]] = {}
    for number in range(kinds):
        log = folder / f"log-{number}.parquet"
        unskew.write_log(unskew.Traffic(pages=120, days=9, seed=seed + number).draw(lists), log)
        unskew.track(log, folder / f"tracked-{number}", refresh="all")
        table = pq.read_table(log, columns=["query_id", "doc_id"]).to_pylist()
        for query, doc in sorted({(str(row["query_id"]), str(row["doc_id"])) for row in table}):
            known = queries.setdefault(query, [])
            known += [] if doc in known else [doc]
    docs = sorted({doc for each in queries.values() for doc in each})
    items = [
        {
            "doc_id": docs,
            "price": rng.normal(size=len(docs)).round(3).tolist(),
            "brand": [BRANDS[at] for at in rng.integers(0, len(BRANDS), len(docs))],
        }
        for _ in range(kinds + 1)
    ]
    pairs = {
        (query, doc): at for at, (query, doc) in enumerate((q, d) for q, each in queries.items() for d in each)
    }
    clicks = [_clicks(folder / f"tracked-{number}", pairs) for number in range(kinds)]
    world = World(folder, kinds, queries, items, {}, {}, pairs)
    for name, names in (("main", ("price", "brand", *TRACKED)), ("plain", ("price", "brand"))):
        models = [_model(world.model(name, at), names, rng, at) for at in range(kinds)]
        world.versions[name] = {digest_of(world.model(name, at) / "model.json"): at for at in range(kinds)}
        world.scores[name] = np.array(
            [[[_scores(one, table, each, pairs) for each in clicks] for table in items] for one in models]
        )
    return world


def _clicks(tracked: Path, pairs: dict[tuple[str, str], int]) -> np.ndarray:
    """What tracking says of each pair."""
    lookup, found = Lookup(tracked), []
    for query, doc in pairs:
        ids = [int(each) if each.lstrip("-").isdigit() else each for each in (query, doc)]
        found.append(feature_vector(lookup(*ids)))
    return np.array(found)


def _model(folder: Path, names: tuple[str, ...], rng: np.random.Generator, at: int):
    """A model with drawn weights."""
    values = rng.normal(size=(12, len(names))).astype(np.float32)
    values[:, 1] = rng.integers(0, len(BRANDS), 12)
    values[:3, 1] = range(3)
    columns = Columns(names, {"brand": BRANDS})
    raw = Lists(values, np.array([0, 12]), np.zeros(12, np.int16), np.array([1]), columns=columns)
    encoding = fit_encoding(raw)
    lists = encoding.apply(raw)
    ranker = Linear() if at % 2 else MLP(sizes=(8, 4))
    model = build(METHODS["naive"](), ranker, fit_scaler("standard", lists), lists.dim, Context(positions=5))
    drawn = torch.Generator().manual_seed(int(rng.integers(1 << 30)))
    for weights in model.ranker.parameters():
        weights.data = torch.randn(weights.shape, generator=drawn)
    model.card = replace(model.card, encoding=encoding)
    model.save(folder)
    return model


def _scores(model, table: dict[str, list], clicks: np.ndarray, pairs: dict[tuple[str, str], int]) -> np.ndarray:
    """Of every pair."""
    place = {doc: at for at, doc in enumerate(table["doc_id"])}
    rows = [place[doc] for _, doc in pairs]
    given = {name: [table[name][at] for at in rows] for name in ("price", "brand")}
    given |= {name: clicks[:, FEATURES.index(name)].tolist() for name in TRACKED}
    return model.score(given)
