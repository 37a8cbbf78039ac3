"""What onnxruntime runs of a saved model: the network from features to outputs, and the encoder that reads texts.

For reasons there is the slope of a score by the network's inputs. It goes backwards through the nodes of the
graph, from the values that onnxruntime gives for each of them. Vectors of texts are remembered from request to
request, as a trained model does (`ranker.cache`): the oldest are forgotten first.

Legend: n documents, D features, O outputs, H width of the encoder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unskew.errors import DataError, optional
from unskew.files import read_json
from unskew.learning.scoring.onnx_file import (
    CODES,
    ENCODER,
    GRAPH,
    INPUT,
    NETWORK,
    OUTPUT,
    READER,
    READING,
    Run,
    TextInputs,
    available,
    opened,
    read_graph,
)
from unskew.types import Array, Lists

MOST_REMEMBERED = 1_000_000
STRAIGHT = frozenset(("Concat", "Gemm", "Identity", "Slice"))
"""Nodes whose slope is the same for all documents."""


def _refuse_without(folder: Path, *files: str) -> None:
    """Refuse a folder that lacks files, which training wrote where it could, or a machine that cannot run them."""
    if not available():
        raise DataError("it takes onnx and onnxruntime; run: pip install 'unskew[serve]'")
    for file in files:
        if not (folder / file).exists():
            told = read_json(folder / "model.json").get("no_onnx") or f"there is no {file}"
            hint = f"`unskew export {folder} --to onnx` writes it, where that can be done"
            raise DataError(f"it was saved without a graph: {str(told)[:400]} ({hint})")


class NetworkGraph:
    """A network from documents as the ranker takes them [n, D] to outputs [n, O]."""

    def __init__(self, model: Any, run: Run) -> None:
        self._model, self._run = model, run

    @classmethod
    def read(cls, folder: Path) -> NetworkGraph:
        """The graph of a folder, or why there is none."""
        _refuse_without(folder, GRAPH)
        return cls(*read_graph(folder / GRAPH, INPUT, NETWORK, 1))

    def run(self, rows: Array) -> Array:
        """Relevance outputs [n, O] of prepared documents [n, D]."""
        return self._run({INPUT: np.ascontiguousarray(rows, np.float32)})[0]

    def slope(self, rows: Array, towards: Array) -> tuple[Array, bool]:
        """The gradient [n, D] of outputs . towards by rows, and whether it is the same for all rows."""
        rows = np.ascontiguousarray(rows, np.float32)
        values = self._constants | {INPUT: rows} | dict(zip(self._names, self._inner({INPUT: rows}), strict=True))
        slopes: dict[str, Array] = {OUTPUT: np.asarray(towards, np.float32)}
        straight = True
        for node in reversed(self._model.graph.node):
            slope = slopes.pop(node.output[0], None)
            if slope is None or not slope.any():
                continue
            straight = straight and node.op_type in STRAIGHT
            told = {each.name: each.f if each.type == 1 else each.i for each in node.attribute}
            step = Step(slope, [values[name] for name in node.input], values[node.output[0]], told)
            for name, own in zip(node.input, BACKWARDS[node.op_type](step), strict=False):
                slopes[name] = slopes[name] + own if name in slopes else own
        return slopes.get(INPUT, np.zeros_like(rows)), straight

    @cached_property
    def _names(self) -> list[str]:
        return [node.output[0] for node in self._model.graph.node if node.op_type != "Constant"]

    @cached_property
    def _constants(self) -> dict[str, Array]:
        read = optional("onnx", "serve").numpy_helper.to_array
        found: dict[str, Array] = {weight.name: read(weight) for weight in self._model.graph.initializer}
        made = [node for node in self._model.graph.node if node.op_type == "Constant"]
        return found | {node.output[0]: read(node.attribute[0].t) for node in made}

    @cached_property
    def _inner(self) -> Run:
        """The graph with the values of all its nodes; made when reasons are first asked for."""
        onnx = optional("onnx", "serve")
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._names if name != OUTPUT)
        return opened(model.SerializeToString(), self._names)


# ---- texts


@dataclass
class TextReader:
    """The tokenizer and the encoder of a run."""

    reading: TextInputs
    tokenizer: Any
    graph: Callable[[Array], Array]
    """Vectors [n, H] of codes [n, L]."""
    width: int
    """H."""
    cache: int
    """Texts whose vectors are remembered."""
    known: dict[bytes, Array] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def read(cls, folder: Path, ranker: Mapping[str, Any]) -> TextReader:
        """As the folder of a run has them, or why they cannot be read without torch."""
        place = folder / Path(ENCODER).parent
        _refuse_without(folder, ENCODER, f"{place.name}/{READING}")
        reading = TextInputs.read(place)
        _, run = read_graph(folder / ENCODER, CODES, READER, 1)
        width = run({CODES: np.zeros((1, 1), np.int64)})[0].shape[-1]
        cache = min(int(ranker.get("cache", 0)), MOST_REMEMBERED)
        tokenizer = reading.tokenizer(place)
        return cls(reading, tokenizer, lambda codes: run({CODES: codes})[0], width, cache)

    def vectors(self, lists: Lists) -> Array:
        """h of each document with its query, [n, H]."""
        if lists.texts is None:
            raise DataError("the model reads text, and the documents have none; give a query and a text for each")
        asked = np.repeat(lists.texts.query, lists.sizes)
        codes = self.reading.codes(self.tokenizer, asked, lists.texts.document)
        keys = [each.tobytes() for each in codes]
        with self.lock:
            found = {key: self.known[key] for key in keys if key in self.known}
        new = {key: each for key, each in zip(keys, codes, strict=True) if key not in found}
        if new:
            made = self.reading.vectors([*new.values()], self.width, self.graph)
            found |= dict(zip(new, made, strict=True))
            with self.lock:
                self.known |= {key: found[key] for key in new}
                for key in [*self.known][: max(len(self.known) - self.cache, 0)]:
                    del self.known[key]
        return np.stack([found[key] for key in keys]) if keys else np.zeros((0, self.width), np.float32)


# ---- slopes of nodes


class Step(NamedTuple):
    """A node on the way back."""

    slope: Array
    """By what it gave."""
    given: list[Array]
    gave: Array
    told: Mapping[str, Any]
    """Its attributes."""


def _gemm(step: Step) -> list[Array]:
    weight = step.given[1]
    return [step.slope @ (weight if step.told.get("transB") else weight.T)]


def _norm(step: Step) -> list[Array]:
    """Through (x - mean) / sqrt(variance + epsilon), times a weight."""
    value, weight = step.given[:2]
    slope, spread = step.slope * weight, np.sqrt(value.var(-1, keepdims=True) + step.told["epsilon"])
    normal = (value - value.mean(-1, keepdims=True)) / spread
    along = (slope * normal).mean(-1, keepdims=True)
    return [(slope - slope.mean(-1, keepdims=True) - normal * along) / spread]


def _slice(step: Step) -> list[Array]:
    value, start, stop = step.given[:3]
    whole = np.zeros_like(value)
    whole[:, int(start[0]) : int(stop[0])] = step.slope
    return [whole]


def _concat(step: Step) -> list[Array]:
    return np.split(step.slope, np.cumsum([each.shape[1] for each in step.given])[:-1], axis=1)


BACKWARDS: Mapping[str, Callable[[Step], list[Array]]] = {
    "Concat": _concat,
    "Elu": lambda step: [step.slope * np.where(step.gave > 0, 1.0, step.gave + step.told["alpha"])],
    "Gemm": _gemm,
    "Identity": lambda step: [step.slope],
    "LayerNormalization": _norm,
    "LeakyRelu": lambda step: [step.slope * np.where(step.gave > 0, 1.0, step.told["alpha"])],
    "Relu": lambda step: [step.slope * (step.gave > 0)],
    "Sigmoid": lambda step: [step.slope * step.gave * (1 - step.gave)],
    "Slice": _slice,
    "Tanh": lambda step: [step.slope * (1 - step.gave**2)],
}
"""From the slope by what a node gave to that by what it was given, for its first inputs."""
