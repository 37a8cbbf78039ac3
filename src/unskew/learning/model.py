"""A trained model: scale features, score, rank; saved as JSON and safetensors, never as code.

Legend: Q queries, N documents, K documents of the longest list, D features.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from unskew.clicks.lists.scaling import Scaler
from unskew.errors import ConfigError, DataError, RunError, did_you_mean
from unskew.learning.fitting.checkpoint import under, write_tensors
from unskew.learning.methods import LEARNERS, Context, MethodConfig, MethodModule, PackageConfig
from unskew.learning.rankers.networks import RANKERS, Ranker, beside_trees
from unskew.learning.rankers.trees import Trees, tree_rankers
from unskew.types import Array, Lists

FORMAT = 1
_CHUNK = 65_536  # documents scored at once


@dataclass
class Model:
    """A ranker with its method and its feature scaling."""

    method_config: MethodConfig
    ranker_config: Ranker | None
    """None where the method is a package, whose trees are its own."""
    scaler: Scaler
    ranker: nn.Module
    method: MethodModule
    features: int
    positions: int
    factors: Mapping[str, int] = field(default_factory=dict)

    @overload
    def score(self, documents: Lists) -> Array: ...
    @overload
    def score(self, documents: Array) -> Array: ...
    def score(self, documents: Lists | Array) -> Array:
        """Scores, higher is better: of every document of Lists [N], of one list [n, D], or of lists [B, K, D]."""
        if isinstance(documents, Lists):
            return self._score(documents.features, documents.offsets, documents.present)
        documents = np.asarray(documents, dtype=np.float32)
        if documents.ndim == 3:
            rows, width, dim = documents.shape
            flat = self._score(documents.reshape(-1, dim), np.arange(rows + 1) * width, None)
            return flat.reshape(rows, width)
        if documents.ndim != 2:
            raise DataError(f"features must have shape [n, D] or [B, K, D], not {documents.shape}")
        return self._score(documents, np.array([0, len(documents)]), None)

    def rank(self, documents: Array) -> Array:
        """The order to show one list [n, D] in: indices of its documents, best first; ties keep their order."""
        order: Array = np.argsort(-self.score(documents), kind="stable")
        return order

    def propensity(self) -> Array | None:
        """Examination relative to rank 1, as the method learned it; None where it has no such thing."""
        values = self.method.propensity()
        if values is None:
            return None
        array: Array = values.detach().cpu().numpy()
        return array

    def _score(self, features: Array, offsets: Array, present: Array | None) -> Array:
        if features.shape[1] != self.features:
            raise DataError(
                f"the model was trained on {self.features} features, these documents have {features.shape[1]}"
            )
        scores = np.zeros(len(features), dtype=np.float32)
        for first, last in _chunks(offsets):
            start, stop = int(offsets[first]), int(offsets[last])
            block = self.scaler.transform(
                features[start:stop],
                offsets=offsets[first : last + 1] - start,
                present=None if present is None else present[start:stop],
            )
            scores[start:stop] = self.score_scaled(torch.from_numpy(block), np.diff(offsets[first : last + 1]))
        return scores

    def score_scaled(self, documents: torch.Tensor, sizes: Array) -> Array:
        """Scores [n] of whole lists, one after another, whose features are scaled already."""
        self.ranker.eval()
        self.method.eval()
        device = next(self.ranker.parameters()).device
        where = torch.from_numpy(np.arange(max(int(sizes.max(initial=0)), 1)) < sizes[:, None]).to(device)
        with torch.no_grad():
            relevance = self.ranker(documents.to(device))
            padded = relevance.new_zeros(*where.shape, relevance.shape[-1])
            padded[where] = relevance
            flat: Array = self.method.score(padded, where)[where].cpu().numpy()
        return flat

    def save(self, folder: Path | str, *, force: bool = False) -> None:
        """Write model.json and weights.safetensors into the folder, and trees in the text of their package."""
        folder = Path(folder)
        if (folder / "model.json").exists() and not force:
            raise RunError(f"{folder} already holds a model; choose another folder or pass force=True")
        modules = nn.ModuleDict({"ranker": self.ranker, "method": self.method})
        scaling = {f"scaler.{name}": torch.from_numpy(array) for name, array in self.scaler.arrays().items()}
        write_tensors(folder / "weights.safetensors", dict(modules.state_dict()) | scaling, {"format": FORMAT})
        for trees in tree_rankers(self.ranker):
            trees.write(folder)
        (folder / "model.json").write_text(json.dumps(self.describe(), indent=2) + "\n")

    def describe(self) -> dict[str, Any]:
        """Everything about the model but its weights, as JSON."""
        return {
            "format": FORMAT,
            "method": self.method_config.model_dump(mode="json"),
            "ranker": None if self.ranker_config is None else self.ranker_config.model_dump(mode="json"),
            "scaling": self.scaler.kind,
            "features": self.features,
            "positions": self.positions,
            "factors": dict(self.factors),
        }


def load(folder: Path | str) -> Model:
    """Read a model back from a folder that `Model.save` or a run wrote."""
    folder = Path(folder)
    if not (folder / "model.json").exists():
        raise RunError(f"{folder} holds no model.json; it is not a finished run")
    try:
        about = json.loads((folder / "model.json").read_text())
        if about["format"] != FORMAT:
            raise RunError(f"{folder}: written in format {about['format']}, this version reads {FORMAT}")
        model = _restore(about, load_file(folder / "weights.safetensors"))
        for trees in tree_rankers(model.ranker):
            trees.read(folder)
        return model
    except (ValueError, KeyError, TypeError, OSError, SafetensorError, DataError, ConfigError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise RunError(f"{folder}: the model cannot be read: {what}") from error
    except RuntimeError as error:  # weights of other names or shapes than model.json says
        raise RunError(f"{folder}: the weights do not fit model.json: {error}") from error


def _restore(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Model:
    """The model that `Model.describe` and its weights say."""
    scaling = {name: tensor.numpy() for name, tensor in under(tensors, "scaler.").items()}
    model = build(
        named_method(about["method"]),
        None if about["ranker"] is None else named_ranker(about["ranker"]),
        Scaler.from_arrays(about["scaling"], scaling),
        about["features"],
        Context(positions=about["positions"], log=None, factors=about["factors"]),
    )
    model.ranker.load_state_dict(under(tensors, "ranker."))
    model.method.load_state_dict(under(tensors, "method."))
    model.ranker.eval()
    model.method.eval()
    return model


def build(method: MethodConfig, ranker: Ranker | None, scaler: Scaler, features: int, context: Context) -> Model:
    """An untrained model, its weights drawn from torch's current random state; a package brings its ranker."""
    module = method.build(context)
    if ranker is None and isinstance(method, PackageConfig):
        plain: nn.Module = method.trees(features)
    elif ranker is None or isinstance(method, PackageConfig):
        raise ConfigError(f"{method.name} {'needs a ranker' if ranker is None else 'grows its own trees'}")
    elif isinstance(ranker, Trees) and module.boosted is not None:
        plain = beside_trees(ranker, features, module.outputs, module.boosted)
    else:
        plain = ranker.build(features, module.outputs)
    tower = module.tower(plain, features)
    return Model(method, ranker, scaler, tower, module, features, context.positions, context.factors)


def named_method(settings: dict[str, Any]) -> MethodConfig:
    """The method config of a table with a `name`."""
    name = settings.get("name", "")
    if name not in LEARNERS:
        raise RunError(f"unknown method {name!r}. {did_you_mean(name, LEARNERS)}")
    return LEARNERS[name].model_validate(settings)


def named_ranker(settings: dict[str, Any]) -> Ranker:
    """The ranker config of a table with a `name`."""
    name = settings.get("name", "")
    if name not in RANKERS:
        raise RunError(f"unknown ranker {name!r}. {did_you_mean(name, RANKERS)}")
    return RANKERS[name].model_validate(settings)


def _chunks(offsets: Array) -> Iterator[tuple[int, int]]:
    """Ranges of whole lists with about _CHUNK documents each."""
    first, queries = 0, len(offsets) - 1
    while first < queries:
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK, side="right")) - 1
        last = min(max(last, first + 1), queries)
        yield first, last
        first = last
