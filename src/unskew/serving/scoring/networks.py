"""The network of a saved run by its graph: outputs, and for reasons the slope of a score by its inputs.

The slope goes backwards through the nodes of the graph, from the values that onnxruntime gives for each of them.

Legend: n documents, D features, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unskew.errors import optional
from unskew.learning.scoring.onnx_file import INPUT, NETWORK, OUTPUT, Run, opened, read_graph
from unskew.types import Array

STRAIGHT = frozenset(("Concat", "Gemm", "Identity", "Slice"))
"""Nodes whose slope is the same for all documents."""


class NetworkGraph:
    """A network from documents as the ranker takes them [n, D] to outputs [n, O]."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self._model, self._run = read_graph(path, INPUT, NETWORK, threads)

    def run(self, rows: Array) -> Array:
        """Outputs [n, O]."""
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
