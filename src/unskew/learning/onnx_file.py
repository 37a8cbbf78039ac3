"""ONNX files as we write them: nodes and numbers put together, and a file tried before anything runs it; no torch.

A graph that is read is one of ours or it is refused: nodes of `KINDS` alone, with no graph inside a node, no
function, no other domain, no data in other files, and of every weight as many bytes as its shape says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from unskew.errors import DataError, optional
from unskew.types import Array

OPSET, IR_VERSION = 17, 8
"""Versions that runtimes of 2022 and later read."""
INPUT, OUTPUT = "features", "outputs"
NETWORK_KINDS = ("Gemm", "LayerNormalization", "Elu", "LeakyRelu", "Sigmoid", "Slice", "Concat", "Identity")
TEXT_KINDS = (
    "Gather",
    "Add",
    "Mul",
    "Div",
    "MatMul",
    "Reshape",
    "Transpose",
    "Softmax",
    "Erf",
    "Tanh",
    "Relu",
)
KINDS = frozenset(NETWORK_KINDS + TEXT_KINDS)
"""Nodes that we write; none of them loops, reads a file, or makes more numbers than it is given."""
MOST_NODES = 10_000
LARGEST = 2**30
"""Bytes of a graph that are written and read."""
FLOAT, INT = 1, 7
"""Types of numbers, as ONNX counts them."""
BYTES = {FLOAT: 4, INT: 8}
"""Of each number of a weight."""
Shape = Sequence[str | int]


def available() -> bool:
    """Whether graphs can be written and tried here."""
    return find_spec("onnx") is not None and find_spec("onnxruntime") is not None


@dataclass
class Graph:
    """Nodes and weights, in the making; names of values are handed from one node to the next."""

    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Add a node; the name of what it gives."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(optional("onnx", "serve").helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def weight(self, values: Array) -> str:
        """Add numbers; their name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(optional("onnx", "serve").numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def join(self, parts: list[str]) -> str:
        """Columns side by side."""
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=1)

    def columns(self, value: str, start: int, stop: int) -> str:
        """Some of the columns."""
        edges = (self.weight(np.array([each], np.int64)) for each in (start, stop, 1))
        return self.node("Slice", value, *edges)

    def model(self, name: str, width: int, given: str, outputs: int, *, result: str = OUTPUT) -> bytes:
        """The whole as a file has it: from features [n, D] to outputs [n, O]."""
        return self.file(name, {INPUT: (FLOAT, ["n", width])}, given, outputs, result=result)

    def file(
        self,
        name: str,
        inputs: Mapping[str, tuple[int, Shape]],
        given: str,
        outputs: int,
        *,
        result: str = OUTPUT,
    ) -> bytes:
        """The whole as a file has it; inputs are types and shapes by name."""
        onnx = optional("onnx", "serve")
        self.nodes.append(onnx.helper.make_node("Identity", [given], [result], result))
        shaped = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            self.nodes,
            name,
            [shaped(each, kind, shape) for each, (kind, shape) in inputs.items()],
            [shaped(result, FLOAT, ["n", outputs])],
            self.weights,
        )
        versions = [onnx.helper.make_opsetid("", OPSET)]
        made = onnx.helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="unskew")
        onnx.checker.check_model(made)
        text: bytes = made.SerializeToString()
        return text


def check_file(content: bytes, inputs: Sequence[str]) -> None:
    """Refuse what is not a graph of ours, before a runtime sees it."""
    onnx = optional("onnx", "serve")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, which has several
        raise DataError(f"not an ONNX graph: {str(error)[:200]}") from error
    graph = model.graph
    if [each.domain for each in model.opset_import] != [""] or len(model.functions) or len(model.training_info):
        raise DataError("the graph has functions, or nodes that are not ONNX's own")
    if [each.name for each in graph.input] != list(inputs) or [each.name for each in graph.output] != [OUTPUT]:
        raise DataError(f"the graph does not go from {', '.join(inputs)} to {OUTPUT}")
    if len(graph.node) > MOST_NODES or len(graph.sparse_initializer):
        raise DataError(f"the graph has more than {MOST_NODES:,} nodes, or weights that are sparse")
    for node in graph.node:
        if node.op_type not in KINDS or node.domain:
            raise DataError(f"the graph has a node {node.domain}{' ' if node.domain else ''}{node.op_type[:40]}")
        if any(each.type not in (1, 2, 7) for each in node.attribute):  # a float, an int, ints
            raise DataError(f"the graph has a node {node.op_type} with an attribute that is no number")
    for weight in graph.initializer:
        _check_weight(weight)


def _check_weight(weight: Any) -> None:
    """Refuse numbers that lie elsewhere, or are not as many as is said."""
    if weight.data_location or len(weight.external_data):
        raise DataError(f"the numbers of {weight.name[:40]} are in another file")
    size = BYTES.get(weight.data_type)
    if size is None or any(each < 0 for each in weight.dims):
        raise DataError(f"{weight.name[:40]} has numbers of another type")
    if math.prod(weight.dims) * size != len(weight.raw_data):
        raise DataError(f"{weight.name[:40]} has another shape than numbers")
