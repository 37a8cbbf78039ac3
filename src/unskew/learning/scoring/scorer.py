"""What is saved, loaded, served and exported: documents in, scores out; no training code, and no torch here.

A model folder holds `model.json` (what it is), `weights.safetensors` (numbers: scaling, ranker, method) and, where
there are trees, their files; where it reads, `text/` (the encoder's config and its tokenizer). A network lies
there as `model.onnx` too, for serving (`onnx_graph.py`), or model.json says why not (`no_onnx`).
`load_scorer` opens it with as little as it can: trees whose score is linear in their outputs need no torch.

Legend: Q queries, N documents, n of them in a block, D features, O relevance outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from unskew.errors import ConfigError, DataError, RunError
from unskew.files import (
    Ours,
    complete_file,
    complete_folder,
    read_json,
    read_manifest,
    restore,
    tensors_at,
    write_manifest,
)
from unskew.learning.boosters import Forest, Package
from unskew.learning.curves import Curve
from unskew.learning.scoring.combination import Combination
from unskew.learning.scoring.raw_trees import RawTrees, raw_trees
from unskew.tables.features.encoding import Encoding
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists, ListTexts

FORMAT = 2
MODEL = Ours("model.json", ("weights.safetensors", "model.onnx", "trees_*.txt", "trees_*.json", "text/*"))
"""What lies in a model folder."""
MOST = {"features": 10_000_000, "positions": 1_000_000}
"""Sizes that are believed of a model."""
_CHUNK = 65_536  # documents scored at once
LINEAR = "score.weights"
"""Name of w, where the score is relevance . w."""


@dataclass(frozen=True)
class Card:
    """Everything about a model but its numbers, as model.json has it."""

    method: dict[str, Any]
    ranker: dict[str, Any] | None
    """None where the method is a package, whose trees are its own."""
    scaling: str
    features: int
    """How many the ranker takes, encoded."""
    positions: int
    presentation: Mapping[str, Any] = field(default_factory=dict)
    """How columns that are bias factors are encoded."""
    trees: Package | None = None
    """Whose trees score, where trees alone do."""
    encoding: Encoding | None = None
    """What features as they are become; None while training, when they are encoded already."""
    engine: dict[str, Any] | None = None
    """How a score begins as the engine; None where it does not."""

    @classmethod
    def read(cls, folder: Path) -> Card:
        """The card of a model that was saved."""
        if not (restore(folder) / "model.json").exists():
            from unskew.tables.reading.recognition import not_a_run

            raise not_a_run(folder)
        with readable(folder):
            content = read_json(folder / "model.json")
            if content["format"] != FORMAT:
                written = content["format"]
                raise RunError(f"written in format {written}, this version reads {FORMAT}", path=folder)
            told = {name: content[name] for name in cls.__dataclass_fields__ if name != "engine"}
            told["engine"] = content.get("engine")  # younger than the format
            encoding = None if told["encoding"] is None else Encoding.from_dict(told["encoding"])
            card = cls(**told | {"encoding": encoding})
            made = card.features if encoding is None or not encoding.fields else len(encoding.columns.names)
            if made != card.features:
                raise DataError(f"model.json: the encoding gives {made} features, not {card.features}")
            for name, most in MOST.items():
                if type(size := getattr(card, name)) is not int or not 0 <= size <= most:
                    raise DataError(f"model.json: {name} must be a whole number to {most:,}, not {str(size)[:40]}")
            return card

    def to_dict(self) -> dict[str, Any]:
        """For model.json."""
        return vars(self) | {"encoding": None if self.encoding is None else self.encoding.to_dict()}


class Scorer(ABC):
    """Prepares documents as in training and scores them, higher is better."""

    card: Card
    scaler: Scaler
    combination: Combination | None = None
    """What puts the engine's order, the model and clicks together; None where the model scores alone."""

    @property
    def features(self) -> int:
        """Number of features of a document, as they are."""
        return self.card.features if self.names is None else len(self.names)

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the features are called; None where training had no names."""
        return None if self.card.encoding is None else self.card.encoding.names

    @property
    def taken(self) -> dict[str, bool] | None:
        """The features that it takes, and whether each is a category; None where training had no names."""
        return None if self.card.encoding is None else self.card.encoding.taken

    def encoded(self, lists: Lists) -> Lists:
        """The lists with finite features, as in training: by name, or by place where they have no names."""
        encoding = self.card.encoding
        if encoding is not None and encoding.fields:
            return encoding.apply(lists)
        if lists.dim != self.features:
            raise DataError(f"the model was trained on {self.features} features, these documents have {lists.dim}")
        return lists if encoding is None else encoding.apply(lists)

    @abstractmethod
    def score_prepared(self, documents: Array, sizes: Array) -> Array:
        """Scores [n] of whole lists, one after another, whose documents were `prepared` already."""

    def prepared(self, lists: Lists) -> Array:
        """Documents as the ranker takes them: encoded and scaled [n, D], and tokens after where it reads."""
        features: Array = np.require(self.scaler.apply(self.encoded(lists)).features, np.float32, ["C", "W"])
        return features

    @property
    def reads(self) -> bool:
        """Whether it reads what queries and documents say."""
        return False

    def propensity(self) -> Array | None:
        """Examination relative to rank 1, as the method learned it; None where it has no such thing."""
        return None

    def curves(self) -> tuple[Curve, ...]:
        """All that the method learned of bias, each under its name."""
        return ()

    def forest(self) -> Forest | None:
        """The trees of the ranker, where it has any."""
        return None

    def feature_weights(self) -> Array | None:
        """The weight of each encoded feature in the score; None where it is not linear in them."""
        return None

    def lightgbm_forest(self) -> Forest:
        """The trees of LightGBM whose sum is the score."""
        forest = self.forest()
        if forest is None or self.card.trees != "lightgbm":
            whose = (
                "its trees are XGBoost's" if self.card.trees == "xgboost" else "its score is not a sum of trees"
            )
            raise ConfigError(f"{whose}; learn with ranker trees or method lightgbm for a LightGBM model")
        return forest

    def raw_trees(self) -> RawTrees:
        """The trees as a LightGBM model that takes features as they are: see `learning/scoring/raw_trees.py`."""
        return raw_trees(self.lightgbm_forest(), self.card.encoding, self.scaler)

    @abstractmethod
    def numbers(self) -> dict[str, Array]:
        """The arrays to be saved, besides those of the scaling."""

    def write_onnx(self, folder: Path) -> str | None:
        """Write the network as model.onnx, where there is one; else why there is no such file."""
        return "trees are served by their own package"

    @abstractmethod
    def write_files(self, folder: Path) -> None:
        """Write what is not numbers: trees, or a tokenizer, where there is one."""

    def score(self, documents: object) -> Array:
        """Scores, higher is better: of every document of Lists [N], of one list [n, D], or of lists [B, K, D].

        A table (a data frame, an Arrow table or a dict of columns) has a score for each row: its columns go by
        name, in any order, and others are passed over. It is one list, unless it has a column query_id. Missing
        values are prepared as in training, or refused where the rule says so.
        """
        lists, rows, shape = self._listed(documents)
        scores = np.zeros(len(rows), np.float32)
        scores[rows] = self._score(lists)
        return scores.reshape(shape)

    def score_texts(self, query: str, documents: Sequence[str], features: Array | None = None) -> Array:
        """Scores of documents by what they say, "title abstract" each, and by features [n, D] if there are any."""
        features = np.zeros((len(documents), 0)) if features is None else np.asarray(features)
        texts = ListTexts(np.array([query], object), np.array([*documents, ""], object)[:-1])
        return self._score(replace(_lists(features, np.array([0, len(documents)])), texts=texts))

    def rank(self, documents: object) -> Array:
        """The order to show one list [n, D] in: indices of its documents, best first; ties keep their order.

        Of lists [B, K, D] that of each. Of a table with query_id: rows query after query, those of a query best
        first.
        """
        lists, rows, shape = self._listed(documents)
        found: Array = rows[np.lexsort((-self._score(lists), np.repeat(np.arange(len(lists)), lists.sizes)))]
        return found if len(shape) == 1 else found.reshape(shape) % shape[1]

    def _listed(self, documents: object) -> tuple[Lists, Array, tuple[int, ...]]:
        """Documents of any form as lists, the row that each had, and the shape that their scores have."""
        if not isinstance(documents, Lists):
            from unskew.tables.features.features import table_lists
            from unskew.tables.frames import is_frame  # with all that reads tables, which serving does without

            if is_frame(documents):
                lists, rows = table_lists(documents, self.card.encoding or Encoding())
                return lists, rows, rows.shape
            given = np.asarray(documents, dtype=np.float32)
            if given.ndim not in (2, 3):
                raise DataError(f"features must have shape [n, D] or [B, K, D], not {given.shape}")
            *outer, size, dim = given.shape
            count = math.prod(outer)
            lists = _lists(given.reshape(count * size, dim), np.arange(count + 1) * size)
            return lists, np.arange(count * size), (*outer, size)
        rows = np.arange(len(documents.features))
        return documents, rows, rows.shape

    def save(self, folder: Path | str, *, force: bool = False) -> None:
        """Write a model folder; it appears whole or not at all, and with force the old one stays until then."""
        with complete_folder(Path(folder), force=force, ours=MODEL) as working:
            self.write(working)

    def write(self, folder: Path) -> None:
        """Write model.json and weights.safetensors into a folder, and what is no number beside them."""
        scaling = {f"scaler.{name}": array for name, array in self.scaler.arrays().items()}
        pairs = {} if self.combination is None else self.combination.numbers()
        with complete_file(folder / "weights.safetensors") as ready:
            save_file(self.numbers() | scaling | pairs, ready)
        self.write_files(folder)
        why_not = self.write_onnx(folder)
        about = {"format": FORMAT, "no_onnx": why_not}
        told = {} if self.combination is None else {"engine": self.combination.to_dict()}
        write_manifest(folder / MODEL.marker, about | self.card.to_dict() | told, MODEL.files(folder))

    def _score(self, lists: Lists) -> Array:
        """What documents are ranked by, [N]."""
        sides = self.sides(lists)
        return np.asarray(sides[:, 0]) if self.combination is None else self.combination.scores(sides, lists)

    def correction(self, lists: Lists) -> Array:
        """What the model says by itself, without the engine's order and without clicks of pairs, [N]."""
        return np.asarray(self.sides(lists)[:, 0])

    def sides(self, lists: Lists) -> Array:
        """What the model says by itself, and what features add along straight lines, [N, 2]."""
        parts = [slice(first, last) for first, last in list_chunks(lists.offsets)]
        some = [lists] if len(parts) == 1 else [lists.take(part) for part in parts]
        scores = [self.sides_of(self.prepared(each), each.sizes) for each in some]
        return np.concatenate([np.zeros((0, 2), np.float32), *scores])

    def sides_of(self, documents: Array, sizes: Array) -> Array:
        """The same of prepared documents."""
        own, engine = self.score_prepared(documents, sizes), self.combination
        return np.stack([own, np.zeros_like(own) if engine is None else engine.along(documents)], 1)


@dataclass
class TreeScorer(Scorer):
    """Trees whose score is linear in their outputs; LightGBM's or XGBoost's, and nothing of torch."""

    card: Card
    scaler: Scaler
    trees: Forest

    def score_prepared(self, documents: Array, sizes: Array) -> Array:
        """Scores [n]; which list a document is in plays no part."""
        scores: Array = self.trees.run(documents) @ self.trees.weights
        return scores

    def forest(self) -> Forest:
        """The trees whose sum is the score."""
        return self.trees

    def numbers(self) -> dict[str, Array]:
        """Where the outputs start, the trees in use, and w."""
        trees = self.trees
        assert trees.weights is not None
        return {"ranker.start": trees.start, "ranker.kept": np.asarray(trees.kept), LINEAR: trees.weights}

    def write_files(self, folder: Path) -> None:
        """Write the trees in use."""
        self.trees.write(folder)


def load_scorer(folder: Path | str) -> Scorer:
    """Open a model folder to score with: without torch where trees alone score."""
    folder = Path(folder)
    card = Card.read(folder)
    if card.trees is None:
        from unskew.learning.scoring.model import load_model

        return load_model(folder, card)
    with readable(folder):
        known, numbers = unchanged(folder), read_numbers(folder)
        own, weights = below(numbers, "ranker."), numbers[LINEAR]
        trees = Forest.read(folder, card.trees, own, features=card.features, known=known, weights=weights)
        scorer = TreeScorer(card, Scaler.from_arrays(card.scaling, below(numbers, "scaler.")), trees)
        scorer.combination = Combination.read(card.engine, numbers)
        return scorer


def read_numbers(folder: Path) -> dict[str, Array]:
    """The arrays of a model, copied: a map of a file that is cut meanwhile would end the process."""
    return load(tensors_at(folder / "weights.safetensors").read_bytes())


T = TypeVar("T")


def below(numbers: Mapping[str, T], prefix: str) -> dict[str, T]:
    """The arrays whose name starts with the prefix, without it.

    >>> below({"now.a": 1, "best.a": 2}, "now.")
    {'a': 1}
    """
    return {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}


def unchanged(folder: Path) -> bool:
    """Whether the files of a model are those that were written; False where model.json does not say.

    A file that is not as it was written is an error, since scores of damaged weights are only wrong.
    """
    written = read_json(folder / MODEL.marker).get("files")
    if not isinstance(written, dict):
        return False
    for name in written:
        if not any(fnmatchcase(name, own) for own in MODEL.names) or ".." in name:
            raise DataError(f"model.json names the file {name!r}, which models do not have")
    read_manifest(folder / MODEL.marker)
    return True


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Whatever is wrong with a model folder becomes one error that names it."""
    try:
        yield
    except (ValueError, KeyError, TypeError, OSError, SafetensorError, DataError, ConfigError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise RunError(f"the model cannot be read: {what}", path=folder) from error
    except RuntimeError as error:  # weights of other names or shapes than model.json says
        raise RunError(f"the weights do not fit model.json: {error}", path=folder) from error


def _lists(features: Array, offsets: Array) -> Lists:
    """Feature vectors as lists, without names or grades."""
    return Lists(features, offsets, np.zeros(len(features), np.int16), np.arange(len(offsets) - 1))


def list_chunks(offsets: Array) -> Iterator[tuple[int, int]]:
    """Ranges of whole lists with about _CHUNK documents each."""
    first, queries = 0, len(offsets) - 1
    while first < queries:
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK, side="right")) - 1
        last = min(max(last, first + 1), queries)
        yield first, last
        first = last
