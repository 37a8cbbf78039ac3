"""Run folders opened to be served, and followed: documents in, scores and reasons out; torch is never imported.

    trees            LightGBM's or XGBoost's own predictor
    networks         model.onnx through onnxruntime; beside trees, what stands beside them
    texts            text/encoder.onnx through onnxruntime, and model.onnx on the vectors that it gives

Then the score of the method (`method_scores.py`). What cannot be scored without torch says so when it is opened. A
folder is data: it is tried on a document before it is believed, and whatever is wrong with it is a `RunError`.

A new model is loaded beside the old, then takes its place in one step. A request takes the model once and keeps
it, so none is dropped and none sees two. A folder is taken up whole: one that cannot be read, or that was written
to just now or while it was read, leaves the old model where it is, and is looked at again whenever one of its
files changes. So it does not matter whether a folder is replaced in one step, is a link that is switched, or is
copied over file by file. Nor is one taken up, unless that is asked, that wants features which callers do not send:
those that the first model did not take.

Legend: n documents of lists one after another, D features, E encoded ones, O outputs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import numpy as np

from unskew.errors import ConfigError, DataError, Option, RunError, UnskewError, printable
from unskew.files import digest_of
from unskew.learning.boosters import TREE_FORMATS, Forest
from unskew.learning.scoring.combination import Combination
from unskew.learning.scoring.scorer import LINEAR, MODEL, Card, Scorer, below, read_numbers, readable, unchanged
from unskew.serving.scoring.method_scores import Outputs, method_score, method_slope, scorer_of
from unskew.serving.scoring.networks import NetworkGraph, TextReader
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists

NETWORKS = ("linear", "mlp", "doubly_robust_mlp")
READERS = ("cross_encoder", "vanilla_mix", "doubly_robust_mix")
"""Rankers, by what runs them; others are trees."""


@dataclass
class Served(Scorer):
    """A saved model that answers: its ranker, and the score of its method."""

    card: Card
    scaler: Scaler
    folder: Path
    version: str
    """A hash of model.json, which names the hashes of all else."""
    arrays: dict[str, Array]
    """What the method learned, and the scaling."""
    trees: Forest | None = None
    network: NetworkGraph | None = None
    """Its outputs come after those of trees."""
    texts: TextReader | None = None
    """What reads, where it reads; then prepared documents are features with its vectors after them."""

    @classmethod
    def load(cls, folder: Path | str) -> Served:
        """Open a run folder, or a saved model."""
        folder = Path(folder)
        try:
            with readable(folder):
                _refuse_links(folder)
            card = Card.read(folder)
            with readable(folder):
                return cls._read(folder, card)
        except (AttributeError, LookupError, ArithmeticError, MemoryError) as error:
            raise RunError(f"{folder}: the model cannot be read: {type(error).__name__}: {error}") from error

    @classmethod
    def _read(cls, folder: Path, card: Card) -> Served:
        known, numbers = unchanged(folder), read_numbers(folder)
        arrays = {name: each for name, each in numbers.items() if not name.startswith("ranker.")}
        scaler = Scaler.from_arrays(card.scaling, below(numbers, "scaler."))
        found, ranker = cls(card, scaler, folder, digest_of(folder / "model.json"), arrays), card.ranker or {}
        scorer_of(card.method, arrays)
        found.combination = Combination.read(card.engine, numbers)
        kept = next((name for name in numbers if name.startswith("ranker.") and name.endswith(".kept")), None)
        package = card.trees or "lightgbm"
        if package not in TREE_FORMATS:
            raise DataError(f"model.json: trees of {package!r} are not known")
        if kept is not None:
            own, width = below(numbers, kept.removesuffix("kept")), card.features
            found.trees = Forest.read(folder, package, own, features=width, known=known, threads=1)
        elif ranker.get("name") in READERS:
            found.texts = TextReader.read(folder, ranker)
        elif ranker.get("name") not in NETWORKS:
            raise ConfigError(f"a ranker {str(ranker.get('name'))[:40]} is no network of numbers")
        if found.trees is None or kept != "ranker.kept":  # then networks stand beside the trees
            found.network = NetworkGraph.read(folder)
        found._try()
        return found

    def _try(self) -> None:
        """Score a list of two, so that files that do not fit are noticed before a request brings one."""
        width = self.card.features + (0 if self.texts is None else self.texts.width)
        rows = np.random.default_rng(0).standard_normal((2, width), np.float32)
        if self.score_prepared(rows, np.array([2])).shape != (2,):
            raise DataError("the model gives no score for each document")

    @property
    def engine(self) -> str:
        """What scores: lightgbm, xgboost, onnxruntime, or lightgbm and onnxruntime."""
        parts = [*([] if self.trees is None else [self.trees.package]), *(["onnxruntime"] if self.network else [])]
        return " and ".join(parts)

    @property
    def reads(self) -> bool:
        """Whether it reads what queries and documents say."""
        return self.texts is not None

    def run(self, rows: Array) -> Array:
        """Outputs [n, O] of prepared documents [n, E]."""
        parts = [part.run(rows) for part in (self.trees, self.network) if part is not None]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def prepared(self, lists: Lists) -> Array:
        """Documents as the ranker takes them: scaled [n, E], and vectors of their texts after them if any."""
        features = super().prepared(lists)
        return features if self.texts is None else np.concatenate([features, self.texts.vectors(lists)], axis=1)

    def outputs(self, documents: Array, sizes: Array, seen: Array | None = None) -> Outputs:
        """What the ranker says of prepared documents, with what the method learned."""
        held = sizes[sizes > 0]
        return Outputs(self.run(documents), held, self.card.method, self.arrays, self.card.positions, seen)

    def score_prepared(self, documents: Array, sizes: Array) -> Array:
        """Scores [n] of documents that are encoded and scaled, in lists of these sizes."""
        return method_score(self.outputs(documents, sizes))

    def score(self, documents: object, *, seen: Array | None = None) -> Array:
        """Scores of lists, a table by name or a matrix; `seen` [n] says of lists whose clicks are known."""
        if not isinstance(documents, Lists) or not len(documents.features):
            return super().score(documents)
        prepared = self.prepared(documents)
        found = method_score(self.outputs(prepared, documents.sizes, seen))
        if self.combination is None:
            return found
        return self.combination.scores(np.stack([found, self.combination.along(prepared)], 1), documents)

    def why(self, lists: Lists, *, seen: Array | None = None) -> tuple[str, Array]:
        """How reasons were found, and what each feature as it is adds to a score, [n, D].

        That is the slope of the score by each output times what the feature adds to the output: Shapley values of
        trees, weight x input of a linear ranker, gradient x input of a network; inputs are as prepared. The first
        two add up to the score but for a constant, one for each list with a base vector, unless the score is not
        linear in the outputs.
        """
        prepared = self.prepared(lists)
        how, parts = self._reasons(prepared, self.outputs(prepared, lists.sizes, seen))
        if self.combination is not None:
            how, parts = f"{how}, beside the order of the engine", self.combination.reasons(parts, prepared)
        if self.texts is not None:
            parts, how = parts[:, : self.card.features], f"{how}, texts left out"
            if not parts.shape[1]:
                raise ConfigError("the model reads texts alone, and has no reasons by feature")
        encoding = self.card.encoding
        if encoding is None or not encoding.fields:
            return how, parts
        found = np.zeros((len(parts), len(encoding.fields)), np.float64)
        np.add.at(found.T, encoding.origins, parts.T)  # encoded features, by the one that they come from
        return how, found

    def _reasons(self, rows: Array, given: Outputs) -> tuple[str, Array]:
        """The same of prepared documents [n, E]; trees or networks without a part in the score are passed over."""
        linear = LINEAR in given.numbers or given.method["name"] == "vectorization"
        outputs = 0 if self.trees is None else len(self.trees.start)
        by_trees, by_network = np.split(method_slope(given), [outputs], axis=1)
        kinds, found = list[str](), np.zeros(rows.shape, np.float64)
        if self.trees is not None and (by_trees.any() or self.network is None):
            kinds.append("shapley" if linear else "shapley x slope")
            found += self.trees.reasons(rows, by_trees)
        if self.network is not None and (by_network.any() or self.trees is None):
            slope, straight = self.network.slope(rows, by_network)
            kinds.append("weight x input" if straight and linear else "gradient x input")
            found += slope * rows
        how = " and ".join(kinds)
        how += ", base vector held" if LINEAR not in given.numbers and linear else ""
        return how, found

    def numbers(self) -> dict[str, Array]:
        """The arrays that were read, besides those of the scaling."""
        apart = ("scaler.", "pairs.", "engine.")
        return {name: value for name, value in self.arrays.items() if not name.startswith(apart)}

    def write_files(self, folder: Path) -> None:
        """Write no file: a served network has nothing but numbers to save."""


def inputs_of(served: Served) -> frozenset[str]:
    """What callers bring for a model, as a message says it."""
    if served.taken is None:
        named = {f"{served.features:,} features without names"}
    else:
        named = {f"{name} (a category)" if category else name for name, category in served.taken.items()}
    return frozenset(named | {"texts"} if served.reads else named)


def _refuse_links(folder: Path) -> None:
    """Refuse a file of a model that lies outside of its folder, or is no file."""
    home = folder.resolve()
    for path in (path for names in (MODEL.marker, *MODEL.names) for path in folder.glob(names)):
        name = path.relative_to(folder).as_posix()
        if not path.resolve().is_relative_to(home):
            raise DataError(f"{name} is a link out of the folder")
        if not path.is_file():
            raise DataError(f"{name} is no file")


# ---- followed ----

Stamp = tuple[tuple[str, int, int, int, int], ...]
"""Name, inode, size and times of each file of a model."""
SETTLING = 0.1
"""Seconds without a change after which a folder is read; longer than a tick of the clocks of file systems."""
WRITTEN = 10.0
"""Seconds to wait for a folder that is being written when a server starts."""


def stamp_of(folder: Path) -> Stamp | None:
    """What changes whenever a file of the model does; None where there is no model."""
    found = {}
    for room in ("", "text/"):
        try:
            with os.scandir(folder / room) as entries:
                for entry in entries:
                    name = f"{room}{entry.name}"
                    if any(fnmatchcase(name, own) for own in (MODEL.marker, *MODEL.names)):
                        found[name] = entry.stat()
        except OSError:  # it is not there, or is being replaced
            continue
    if MODEL.marker not in found:
        return None
    return tuple(
        (name, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        for name, each in sorted(found.items())
    )


def is_settled(stamp: Stamp) -> bool:
    """Whether the last change is long enough ago that another one would have another time."""
    ago = time.time_ns() - max(max(times) for _, _, _, *times in stamp)
    return not 0 <= ago < SETTLING * 1e9  # a time to come is another machine's clock, which says nothing


@dataclass
class Following:
    """A model by name, which is that of its folder."""

    name: str
    folder: Path
    patience: float = 0.0
    """Seconds for which a folder that cannot be read is tried again before the first model is there."""
    takes: frozenset[str] | None = None
    """What callers bring, which is what the first model takes unless given."""
    other_features: bool = False
    """Whether a model that takes anything else is taken up."""
    current: Served = field(init=False)
    """The model that answers; replaced whole."""
    trouble: str | None = None
    """Why the newest folder was not taken up."""
    reloads: int = 0
    _stamp: Stamp | None = field(init=False, default=None)
    _failed: Stamp | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        began = time.monotonic()
        while True:
            stamp, found, waited = stamp_of(self.folder), None, time.monotonic() - began
            try:
                found = self._load(stamp)
            except (UnskewError, OSError) as error:
                if waited >= self.patience:
                    raise
                from unskew.serving.telemetry import log_event  # with packages that a plan is checked without

                if str(error) != self.trouble:  # said once
                    self.trouble = str(error)
                    log_event("wait", model=self.name, error=self.trouble)
            if found is not None:
                self._stamp, self.current, self.trouble = stamp, found, None
                self.takes = inputs_of(found) if self.takes is None else self.takes
                return
            if waited > max(self.patience, WRITTEN):
                raise RunError(f"{printable(self.folder)} is being written all the time; start when it is done")
            time.sleep(SETTLING)

    def _load(self, stamp: Stamp | None) -> Served | None:
        """The model in the folder, all of it of one moment; None while the folder is being written."""
        if stamp is not None and not is_settled(stamp):
            return None
        try:
            found = Served.load(self.folder)
        except (UnskewError, OSError):
            if stamp_of(self.folder) != stamp:
                return None
            raise
        if stamp_of(self.folder) != stamp:
            return None
        if self.takes is not None and not self.other_features and (more := inputs_of(found) - self.takes):
            told = f"it takes what callers do not bring: {', '.join(sorted(more)[:5])}"
            hint = ("start the server with it, or with ", Option("other_features", True))
            raise RunError(f"{printable(self.folder)}: {told}", hint=hint)
        return found

    def look(self) -> bool:
        """Take up the folder if it changed; True where a new model answers from now on."""
        stamp = stamp_of(self.folder)
        if stamp == self._stamp:
            self.trouble = None
            return False
        if stamp is None or stamp == self._failed:
            self.trouble = self.trouble or "the folder is gone"
            return False
        try:
            found = self._load(stamp)
        except (UnskewError, OSError) as error:
            self.trouble, self._failed = str(error), stamp
            return False
        if found is None:
            return False
        changed = found.version != self.current.version
        self._stamp, self._failed, self.trouble = stamp, None, None
        if changed:
            self.current, self.reloads = found, self.reloads + 1
        return changed


class Models(dict[str, Following]):
    """The models of a server by name; the first answers who asks for none."""

    @classmethod
    def open(
        cls,
        folders: Mapping[str, Path],
        *,
        patience: float = 0.0,
        takes: Mapping[str, frozenset[str]] | None = None,
        other_features: bool = False,
    ) -> Models:
        """Load run folders, by name; for so many seconds those that cannot be read are tried again."""
        own = {name: (takes or {}).get(name) for name in folders}
        return cls(
            {name: Following(name, at, patience, own[name], other_features) for name, at in folders.items()}
        )

    @cached_property
    def first(self) -> str:
        """The name of the model that answers who asks for none."""
        return next(iter(self))

    def look(self, tell: Callable[[Following, bool], None]) -> None:
        """Look at every folder, and tell of each that changed, or whose trouble did."""
        for model in self.values():
            before = model.trouble
            changed = model.look()
            if changed or (model.trouble is not None and model.trouble != before):
                tell(model, changed)
