"""A run folder opened to be served: documents in, scores and reasons out; torch is never imported.

    trees            LightGBM's or XGBoost's own predictor
    networks         model.onnx through onnxruntime; beside trees, what stands beside them
    texts            text/encoder.onnx through onnxruntime, and model.onnx on the vectors that it gives

Then the score of the method (`method_scores.py`). What cannot be scored without torch says so when it is opened. A
folder is data: it is tried on a document before it is believed, and whatever is wrong with it is a `RunError`.

Legend: n documents of lists one after another, D features, E encoded ones, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unskew.errors import ConfigError, DataError, RunError
from unskew.files import digest_of, read_json
from unskew.learning.boosters import TREE_FORMATS, Forest
from unskew.learning.scoring.onnx_file import GRAPH, available
from unskew.learning.scoring.scorer import MODEL, Card, Scorer, below, read_numbers, readable, unchanged
from unskew.serving.scoring.method_scores import Outputs, method_score, scorer_of
from unskew.serving.scoring.networks import NetworkGraph
from unskew.serving.scoring.reader import TextReader
from unskew.serving.scoring.reasons import reasons_of
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists

NETWORKS = ("linear", "mlp", "doubly_robust_mlp")
READERS = ("cross_encoder", "vanilla_mix", "doubly_robust_mix")
"""Rankers, by what runs them; others are trees."""


@dataclass
class ServedScorer(Scorer):
    """A ranker that was saved, and the score of its method."""

    card: Card
    scaler: Scaler
    arrays: dict[str, Array]
    """What the method learned, and the scaling."""
    trees: Forest | None = None
    network: NetworkGraph | None = None
    """Its outputs come after those of trees."""
    texts: TextReader | None = None
    """What reads, where it reads; then prepared documents are features with its vectors after them."""

    @classmethod
    def read(cls, folder: Path, card: Card, threads: int) -> ServedScorer:
        """The ranker in a folder."""
        known, numbers = unchanged(folder), read_numbers(folder)
        arrays = {name: each for name, each in numbers.items() if not name.startswith("ranker.")}
        scaler = Scaler.from_arrays(card.scaling, below(numbers, "scaler."))
        found, ranker = cls(card, scaler, arrays), card.ranker or {}
        scorer_of(card.method, arrays)
        kept = next((name for name in numbers if name.startswith("ranker.") and name.endswith(".kept")), None)
        package = card.trees or "lightgbm"
        if package not in TREE_FORMATS:
            raise DataError(f"model.json: trees of {package!r} are not known")
        if kept is not None:
            own, width = below(numbers, kept.removesuffix("kept")), card.features
            found.trees = Forest.read(folder, package, own, features=width, known=known, threads=threads)
        elif ranker.get("name") in READERS:
            found.texts = TextReader.read(folder, ranker, threads)
        elif ranker.get("name") not in NETWORKS:
            raise ConfigError(f"a ranker {str(ranker.get('name'))[:40]} is no network of numbers")
        if found.trees is None or kept != "ranker.kept":  # then networks stand beside the trees
            found.network = _network(folder, threads)
        found.tried()
        return found

    @property
    def engine(self) -> str:
        """What scores: lightgbm, xgboost, onnxruntime, or lightgbm and onnxruntime."""
        parts = [*([] if self.trees is None else [self.trees.package]), *(["onnxruntime"] if self.network else [])]
        return " and ".join(parts)

    def run(self, rows: Array) -> Array:
        """Outputs [n, O] of prepared documents [n, E]."""
        parts = [part.run(rows) for part in (self.trees, self.network) if part is not None]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def tried(self) -> None:
        """Score a list of two, so that files that do not fit are noticed before a request brings one."""
        width = self.card.features + (0 if self.texts is None else self.texts.width)
        rows = np.random.default_rng(0).standard_normal((2, width), np.float32)
        if self.score_prepared(rows, np.array([2])).shape != (2,):
            raise DataError("the model gives no score for each document")

    @property
    def reads(self) -> bool:
        """Whether it reads what queries and documents say."""
        return self.texts is not None

    def prepared(self, lists: Lists) -> Array:
        """Documents as the ranker takes them: scaled [n, E], and vectors of their texts after them if any."""
        features = super().prepared(lists)
        return features if self.texts is None else np.concatenate([features, self.texts.vectors(lists)], axis=1)

    def outputs(self, documents: Array, sizes: Array, seen: Array | None = None) -> Outputs:
        """What the ranker says of prepared documents, with what the method learned."""
        held = sizes[sizes > 0]
        return Outputs(self.run(documents), held, self.card.method, self.arrays, self.card.positions, seen)

    def score_prepared(self, documents: Array, sizes: Array) -> Array:
        """Scores [n]."""
        return method_score(self.outputs(documents, sizes))

    def numbers(self) -> dict[str, Array]:
        """The arrays that were read, besides those of the scaling."""
        return {name: value for name, value in self.arrays.items() if not name.startswith("scaler.")}

    def write_files(self, folder: Path) -> None:
        """Nothing but numbers."""


def _network(folder: Path, threads: int) -> NetworkGraph:
    """The graph of a folder, or why there is none."""
    if not available():
        raise DataError("its network takes onnx and onnxruntime; run: pip install 'unskew[serve]'")
    if not (folder / GRAPH).exists():
        told = read_json(folder / "model.json").get("no_onnx") or f"there is no {GRAPH}"
        raise DataError(
            f"it was saved without a graph: {str(told)[:400]} (`unskew export {folder} --to onnx` writes it)"
        )
    return NetworkGraph(folder / GRAPH, threads)


def contained(folder: Path) -> None:
    """Refuse a file of a model that lies outside of its folder, or is no file."""
    home = folder.resolve()
    for path in (path for names in (MODEL.marker, *MODEL.names) for path in folder.glob(names)):
        name = path.relative_to(folder).as_posix()
        if not path.resolve().is_relative_to(home):
            raise DataError(f"{name} is a link out of the folder")
        if not path.is_file():
            raise DataError(f"{name} is no file")


@dataclass(frozen=True)
class Served:
    """A model that answers."""

    scorer: ServedScorer
    folder: Path
    version: str
    """A hash of model.json, which names the hashes of all else."""

    @classmethod
    def load(cls, folder: Path | str, *, threads: int = 1) -> Served:
        """Open a run folder, or a saved model."""
        folder = Path(folder)
        try:
            with readable(folder):
                contained(folder)
            card = Card.read(folder)
            with readable(folder):
                return cls(ServedScorer.read(folder, card, threads), folder, digest_of(folder / "model.json"))
        except (AttributeError, LookupError, ArithmeticError, MemoryError) as error:
            raise RunError(f"{folder}: the model cannot be read: {type(error).__name__}: {error}") from error

    @property
    def engine(self) -> str:
        """What scores: lightgbm, xgboost, onnxruntime, or lightgbm and onnxruntime."""
        return self.scorer.engine

    @property
    def names(self) -> tuple[str, ...] | None:
        """Features that it takes, by name; None where they go by place."""
        return self.scorer.names

    def score(self, documents: object, *, seen: Array | None = None) -> Array:
        """Scores of lists, a table by name or a matrix; `seen` [n] says of lists whose clicks are known."""
        if seen is None or not isinstance(documents, Lists):
            return self.scorer.score(documents)
        return method_score(self.scorer.outputs(self.scorer.prepared(documents), documents.sizes, seen))

    def why(self, lists: Lists, *, seen: Array | None = None) -> tuple[str, Array]:
        """How reasons were found, and what each feature as it is adds to a score, [n, D]: see `reasons.py`.

        Inputs are as prepared.
        """
        prepared = self.scorer.prepared(lists)
        given = self.scorer.outputs(prepared, lists.sizes, seen)
        told, parts = reasons_of(self.scorer.trees, self.scorer.network, prepared, given)
        if self.scorer.texts is not None:
            parts, told = parts[:, : self.scorer.card.features], f"{told}, texts left out"
            if not parts.shape[1]:
                raise ConfigError("the model reads texts alone, and has no reasons by feature")
        return told, self._by_origin(parts)

    def _by_origin(self, encoded: Array) -> Array:
        """Parts of encoded features [n, E] added up by the feature that they come from."""
        encoding = self.scorer.card.encoding
        if encoding is None or not encoding.fields:
            return encoded
        found = np.zeros((len(encoded), len(encoding.fields)), np.float64)
        np.add.at(found.T, encoding.origins, encoded.T)
        return found
