"""A network as an ONNX graph: from documents as the ranker takes them to its relevance outputs.

| input      | `features` float32 [n, D]: encoded and scaled, as `Scorer.prepared` gives them          |
|------------|-----------------------------------------------------------------------------------------|
| output     | `outputs` float32 [n, O]: what the ranker says of each document, method's side included |
| nodes      | Gemm, LayerNormalization, activations, Slice and Concat; dropout does nothing afterwards |

The graph is written when a model is saved, so that whoever serves it needs no torch. It is run there and then on
documents, and must say what torch says: no output may differ by more than TOLERANCE times the spread of outputs,
and rounding. One that differs is not written: the model is saved without it, with a warning and the reason.

Legend: n documents, D features, O relevance outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unskew.errors import RunError, optional
from unskew.files import complete_file
from unskew.learning.onnx_file import INPUT, Graph, check_file
from unskew.learning.rankers.networks import ClickNetworks, DoublyRobustTower, WithSide
from unskew.types import Array

TOLERANCE = 1e-5
"""Largest difference from torch, in spreads of the outputs."""
ROUNDING = 1e-6
"""What is allowed besides, times the largest output: sums of 32-bit floats depend on their order."""
CHECKED = 256
"""Documents that a graph is tried on."""


def add_module(graph: Graph, module: nn.Module, value: str) -> str:
    """Add what a module does to a value; the name of what comes out."""
    kind = next((known for known in ADDED if isinstance(module, known)), None)
    if kind is None:
        raise TypeError(f"{type(module).__name__} has no ONNX nodes")
    return ADDED[kind](graph, module, value)


def _sequential(graph: Graph, module: Any, value: str) -> str:
    for each in module:
        value = add_module(graph, each, value)
    return value


def _linear(graph: Graph, module: Any, value: str) -> str:
    return graph.node(
        "Gemm", value, graph.weight(numbers(module.weight)), graph.weight(numbers(module.bias)), transB=1
    )


def _norm(graph: Graph, module: Any, value: str) -> str:
    scale, shift = graph.weight(numbers(module.weight)), graph.weight(numbers(module.bias))
    return graph.node("LayerNormalization", value, scale, shift, axis=-1, epsilon=module.eps)


def _elu(graph: Graph, module: Any, value: str) -> str:
    return graph.node("Elu", value, alpha=module.alpha)


def _leaky(graph: Graph, module: Any, value: str) -> str:
    return graph.node("LeakyRelu", value, alpha=module.negative_slope)


def _plain(kind: str) -> Callable[[Graph, Any, str], str]:
    return lambda graph, module, value: graph.node(kind, value)


def _dropout(graph: Graph, module: Any, value: str) -> str:
    return value


def _beside(graph: Graph, module: Any, value: str) -> str:
    return graph.join([add_module(graph, each, value) for each in (module.ranker, module.side)])


def _tower(graph: Graph, module: Any, value: str) -> str:
    first = graph.columns(value, 0, module.other)
    parts = [add_module(graph, module.imputation, first)]
    if len(module.clicks.each):
        parts.append(add_module(graph, module.clicks, graph.columns(value, module.other, 2**31 - 1)))
    return graph.join(parts)


def _clicks(graph: Graph, module: Any, value: str) -> str:
    return graph.join([add_module(graph, each, value) for each in module.each])


ADDED: dict[type[nn.Module], Callable[[Graph, Any, str], str]] = {
    nn.Sequential: _sequential,
    nn.Linear: _linear,
    nn.LayerNorm: _norm,
    nn.ELU: _elu,
    nn.ReLU: _plain("Relu"),
    nn.LeakyReLU: _leaky,
    nn.Sigmoid: _plain("Sigmoid"),
    nn.Tanh: _plain("Tanh"),
    nn.Dropout: _dropout,
    WithSide: _beside,
    DoublyRobustTower: _tower,
    ClickNetworks: _clicks,
}
"""What each module of a network becomes."""


def numbers(weight: torch.Tensor) -> Array:
    """A parameter as an array."""
    return weight.detach().cpu().float().numpy()


def graph_of(ranker: nn.Module, width: int) -> bytes:
    """The ONNX model of a network that takes `width` features."""
    graph = Graph()
    given = add_module(graph, ranker, INPUT)
    with torch.no_grad():
        device = next(ranker.parameters()).device
        outputs = ranker(torch.zeros(1, width, device=device)).shape[-1]
    return graph.model("ranker", width, given, outputs)


def run_graph(model: bytes, given: Mapping[str, Array]) -> Array:
    """What onnxruntime says of documents, on one thread; inputs by name."""
    runtime = optional("onnxruntime", "serve")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: Array = session.run(None, dict(given))[0]
    return found


@torch.no_grad()
def check_graph(model: bytes, ranker: nn.Module, features: Array) -> None:
    """Refuse a graph that does not say what the network says of these documents."""
    check_file(model, [INPUT])
    ranker.eval()
    device = next(ranker.parameters()).device
    expected = numbers(ranker(torch.from_numpy(np.ascontiguousarray(features, np.float32)).to(device)))
    check_equal(run_graph(model, {INPUT: np.ascontiguousarray(features, np.float32)}), expected)


def check_equal(found: Array, expected: Array) -> None:
    """Refuse numbers of a graph that are not those of torch."""
    apart = np.abs(found - expected).max(initial=0.0)
    spread, size = float(expected.std(0).max(initial=0.0)), float(np.abs(expected).max(initial=0.0))
    if not apart <= TOLERANCE * spread + ROUNDING * size:  # true of NaN too
        raise RunError(f"it differs from the model by {apart:.2g}, and outputs spread by {spread:.2g}")


def write_graph(ranker: nn.Module, width: int, features: Array, path: Path) -> str | None:
    """Write the graph of a network to a file, once it has been tried on documents [n, D]; else why not.

    A model that took hours to learn is not lost for a second copy of it, so trouble is told and not raised.
    """
    try:
        model = graph_of(ranker, width)
        check_graph(model, ranker, features[:CHECKED])
    except Exception as error:  # whatever the packages raise, which share no base
        return told_of(path.name, error)
    with complete_file(path) as ready:
        ready.write_bytes(model)
    return None


def told_of(name: str, error: Exception) -> str:
    """Why there is no such file, and what to do; a warning says it too."""
    what = next(iter(str(error).splitlines()), type(error).__name__)[:200]
    why = (
        f"{name} was not written: {what}. This is a fault of unskew, onnx or onnxruntime, and all else is saved: "
        f"try other versions of them, then `unskew export RUN --to onnx`"
    )
    warnings.warn(why, stacklevel=2)
    return why
