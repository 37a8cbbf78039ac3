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
from unskew.learning.scoring.scorer import Scorer, digests, load_scorer
from unskew.serving.export.networks import scored_network

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
    import torch

    from unskew.learning.scoring.onnx_graph import graph_of

    (network, weights), scaler = scored_network(scorer), scorer.scaler
    if scaler.kind not in SCALED:
        raise ConfigError(
            f"scaling {scaler.kind} needs more than one document; learn with one of {', '.join(SCALED)}"
        )
    told = {name: torch.from_numpy(np.asarray(each)) for name, each in scaler.statistics.items()}
    weigh = torch.from_numpy(weights[:, None].astype(np.float32))

    class Scored(torch.nn.Module):
        """Scaling in 64-bit floats as the model does it, the network, and the weights of its score."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            if scaler.kind == "log1p":
                rows = (rows.double().sign() * (rows.double().abs() + 1).log()).float()
            elif scaler.kind != "none":
                rows = ((rows.double() - told["shift"]) / told["scale"]).float()
            found: torch.Tensor = self.network(rows) @ weigh
            return found

    return graph_of(Scored(), np.zeros((2, scorer.card.features), np.float32), output="score")
