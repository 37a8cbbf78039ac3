"""`unskew export RUN --to onnx`: a network as an ONNX model.

Without a file to write to, the run folder gets the `model.onnx` that serving takes, if it was saved without one.
With one, the model stands alone: input `features` float32 [n, E], the encoded columns before scaling
(`export/plain.py`, told in OUT.features.json), output `score` float32 [n, 1]. Scaling is part of the graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import ConfigError
from unskew.files import read_json, write_json
from unskew.learning.onnx_file import INPUT, Graph
from unskew.learning.onnx_graph import add_module
from unskew.learning.scoring.scorer import Scorer, digests, load_scorer
from unskew.serving.export.networks import scored_network
from unskew.tables.lists.scaling import Scaler

FLOAT, DOUBLE = 1, 11
"""Types of numbers, as ONNX counts them."""
SCALED = ("none", "standard", "minmax", "log1p")
"""Scalings that a graph can do, which sees one document at a time."""


def complete(folder: Path) -> dict[str, Any]:
    """Write model.onnx into a run folder that lacks it; in numbers."""
    scorer = load_scorer(folder)
    why_not = scorer.write_onnx(folder)
    if why_not is not None:
        raise ConfigError(f"{folder}: no ONNX model: {why_not}")
    about = read_json(folder / "model.json")
    write_json(folder / "model.json", about | {"files": digests(folder), "no_onnx": None})
    return {"out": str(folder / "model.onnx"), "features": scorer.card.features}


def standalone(scorer: Scorer) -> bytes:
    """A graph from unscaled columns to the score."""
    (network, weights), graph = scored_network(scorer), Graph()
    outputs = add_module(graph, network, add_scaling(graph, scorer.scaler, INPUT))
    score = graph.node("MatMul", outputs, graph.weight(weights[:, None].astype(np.float32)))
    return graph.model("score", scorer.card.features, score, 1, result="score")


def add_scaling(graph: Graph, scaler: Scaler, value: str) -> str:
    """Add the scaling of a model, in 64-bit floats as the model does it."""
    if scaler.kind not in SCALED:
        raise ConfigError(
            f"scaling {scaler.kind} needs more than one document; learn with one of {', '.join(SCALED)}"
        )
    if scaler.kind == "none":
        return value
    value = graph.node("Cast", value, to=DOUBLE)
    if scaler.kind == "log1p":
        larger = graph.node("Add", graph.node("Abs", value), graph.weight(np.ones(1)))
        value = graph.node("Mul", graph.node("Sign", value), graph.node("Log", larger))
    else:
        moved = graph.node("Sub", value, graph.weight(scaler.statistics["shift"]))
        value = graph.node("Div", moved, graph.weight(scaler.statistics["scale"]))
    return graph.node("Cast", value, to=FLOAT)
