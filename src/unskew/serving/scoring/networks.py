"""Rankers of a saved run without torch: their outputs, and the gradient of a score by their inputs.

    layer    LayerNorm (weights of one axis) or Linear (of two);  an activation after every Linear but the last
    network  such stacks, or trees, side by side, each on some columns: a ranker, and a second network if any

The shapes are read from the names and axes of the weights, as `learning/rankers/networks.py` makes them.

Legend: n documents, D features, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.scoring.scorer import below
from unskew.types import Array

TEXT = ("cross_encoder", "vanilla_mix", "doubly_robust_mix")
"""Rankers that read."""
EPSILON = 1e-5
"""Constant inside LayerNorm, unless the ranker has its own."""


class RankerPart(Protocol):
    """What gives some of the outputs."""

    @property
    def outputs(self) -> int:
        """O."""
        ...

    @property
    def exact(self) -> bool:
        """Whether reasons add up to what it says, but for a constant."""
        ...

    def run(self, rows: Array) -> Array:
        """Outputs [n, O] of all rows [n, D]."""
        ...

    def reasons(self, rows: Array, towards: Array) -> Array:
        """What each feature adds to outputs . towards, [n, D]."""
        ...


@dataclass(frozen=True)
class Stack:
    """Layers one after another, on some columns."""

    layers: tuple[tuple[Array, Array], ...]
    """Weight and bias of each."""
    columns: slice
    """Those that it reads."""
    epsilon: float = EPSILON
    activation: str = "elu"
    """What stands after every Linear but the last, of ACTIVATIONS."""

    @classmethod
    def of(
        cls,
        numbers: Mapping[str, Array],
        columns: slice = slice(None),
        epsilon: float = EPSILON,
        activation: str = "elu",
    ) -> Stack:
        """The layers whose weights are called 0.weight, 0.bias, 2.weight, ..."""
        places = sorted({int(name.partition(".")[0]) for name in numbers})
        layers = tuple((numbers[f"{at}.weight"], numbers[f"{at}.bias"]) for at in places)
        if not layers or layers[-1][0].ndim != 2:
            raise ConfigError("the weights are not those of a network")
        return cls(layers, columns, epsilon, activation)

    @property
    def outputs(self) -> int:
        """O."""
        return len(self.layers[-1][1])

    @property
    def exact(self) -> bool:
        """Whether it is linear."""
        return len(self.layers) == 1

    def run(self, rows: Array) -> Array:
        """Outputs [n, O] of all rows [n, D]."""
        return self._steps(rows)[-1]

    def reasons(self, rows: Array, towards: Array) -> Array:
        """Gradient x input, [n, D]."""
        return self.gradient(rows, towards) * rows

    def _steps(self, rows: Array) -> list[Array]:
        """What goes into each layer, and what comes out of the last."""
        values = [np.asarray(rows[:, self.columns], np.float32)]
        for at, (weight, bias) in enumerate(self.layers):
            if at and self.layers[at - 1][0].ndim == 2:
                values[-1] = ACTIVATIONS[self.activation][0](values[-1])
            values.append(
                values[-1] @ weight.T + bias if weight.ndim == 2 else self._norm(values[-1]) * weight + bias
            )
        return values

    def _norm(self, values: Array) -> Array:
        centred = values - values.mean(-1, keepdims=True)
        found: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        return found

    def gradient(self, rows: Array, towards: Array) -> Array:
        """The gradient by all rows [n, D] of the outputs times `towards` [n, O]; 0 in columns not read."""
        steps, slope = self._steps(rows), np.asarray(towards, np.float32)
        for at in range(len(self.layers) - 1, -1, -1):
            weight, value = self.layers[at][0], steps[at]
            slope = slope @ weight if weight.ndim == 2 else self._through_norm(value, slope * weight)
            if at and self.layers[at - 1][0].ndim == 2:
                slope = slope * ACTIVATIONS[self.activation][1](value)
        whole = np.zeros(rows.shape, np.float32)
        whole[:, self.columns] = slope
        return whole

    def _through_norm(self, value: Array, slope: Array) -> Array:
        normal = self._norm(value)
        spread = np.sqrt(value.var(-1, keepdims=True) + self.epsilon)
        along = (slope * normal).mean(-1, keepdims=True)
        found: Array = (slope - slope.mean(-1, keepdims=True) - normal * along) / spread
        return found


@dataclass(frozen=True)
class Network:
    """Parts whose outputs stand side by side."""

    parts: tuple[RankerPart, ...]

    @classmethod
    def of(
        cls,
        ranker: Mapping[str, Any],
        numbers: Mapping[str, Array],
        features: int,
        trees: Callable[[Mapping[str, Array]], RankerPart] | None = None,
    ) -> Network:
        """The ranker as model.json has it, with the weights below `ranker.`; `trees` opens those it names."""
        if side := below(numbers, "side."):
            inner = cls.of(ranker, below(numbers, "ranker."), features, trees)
            return cls((*inner.parts, Stack.of(below(side, "layers.") or side)))
        if "kept" in numbers and trees is not None:
            return cls((trees(numbers),))
        if ranker["name"] in ("mlp", "linear"):
            epsilon, activation = float(ranker.get("epsilon", EPSILON)), str(ranker.get("activation", "elu"))
            return cls((Stack.of(numbers, epsilon=epsilon, activation=activation),))
        if ranker["name"] in TEXT:
            return cls(tuple(heads(str(ranker["name"]), numbers, features)))
        if ranker["name"] != "doubly_robust_mlp":
            raise ConfigError(f"a ranker {ranker['name']} is no network of numbers")
        own = features - int(ranker["tracked"])
        first = Stack.of(below(numbers, "imputation."), slice(0, own))
        return cls((first, *clicks(numbers, slice(own, features))))

    def run(self, rows: Array) -> Array:
        """Outputs [n, O]."""
        return np.concatenate([part.run(rows) for part in self.parts], axis=1)

    def split(self, towards: Array) -> list[Array]:
        """Columns [n, O] as those of each part."""
        return np.split(np.asarray(towards), np.cumsum([part.outputs for part in self.parts])[:-1], axis=1)

    def reasons(self, rows: Array, towards: Array) -> Array:
        """What each feature adds to outputs . towards, [n, D]."""
        found = np.zeros(rows.shape, np.float64)
        for part, own in zip(self.parts, self.split(towards), strict=True):
            if own.any():
                found += part.reasons(rows, own)
        return found


def heads(name: str, numbers: Mapping[str, Array], features: int) -> Iterator[Stack]:
    """What a ranker that reads makes of [h, x]: vectors of its encoder, then features."""
    head = below(numbers, "head.")
    if name == "vanilla_mix":
        yield Stack.of(head)
        return
    width = head["0.weight"].shape[-1]
    yield Stack.of(head, slice(0, width))
    if name == "doubly_robust_mix":
        yield from clicks(numbers, slice(width, width + features), "others")


def clicks(numbers: Mapping[str, Array], columns: slice, name: str = "clicks") -> Iterator[Stack]:
    """The networks on tracked clicks, one for each output but the first."""
    several = below(numbers, f"{name}.each.")
    count = 1 + max((int(each.partition(".")[0]) for each in several), default=-1)
    for at in range(count):
        yield Stack.of(below(several, f"{at}."), columns)


def elu(values: Array) -> Array:
    """v above 0, and exp(v) - 1 below.

    >>> elu(np.array([-1.0, 0.0, 2.0])).round(4).tolist()
    [-0.6321, 0.0, 2.0]
    """
    return np.where(values > 0, values, np.expm1(np.minimum(values, 0)))


def sigmoid(values: Array) -> Array:
    """1 / (1 + exp(-v)).

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1 / (1 + small), small / (1 + small))


Wave = Callable[[Array], Array]
LEAK = 0.01
ACTIVATIONS: Mapping[str, tuple[Wave, Wave]] = {
    "elu": (elu, lambda given: np.where(given > 0, 1.0, given + 1.0)),
    "relu": (lambda values: np.maximum(values, 0), lambda given: np.where(given > 0, 1.0, 0.0)),
    "leaky_relu": (
        lambda values: np.where(values > 0, values, LEAK * values),
        lambda given: np.where(given > 0, 1.0, LEAK),
    ),
    "sigmoid": (sigmoid, lambda given: given * (1 - given)),
    "tanh": (np.tanh, lambda given: 1 - given**2),
}
"""What each gives, and its slope by what it gave."""
