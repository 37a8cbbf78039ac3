"""Models as search engines take them: weights or trees on unscaled numbers, where every category is a 0 or a 1.

Engines know features that are numbers. So what a model takes there are its encoded columns, before scaling: the
number, or the mean of training where it is missing, and 0 or 1 for `price is missing`, `brand=acme`, `brand is
other` (than those named) and `brand is missing`. Scaling is worked into thresholds and weights. Trees split as
`value <= last`, with `last` a 32-bit float, which is what engines compute in; every 32-bit float goes the way it
goes in the model.

Legend: E encoded columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.boosters import Forest
from unskew.learning.scoring.raw_trees import MONOTONE, WHY_NOT, TreeColumn, text_names, weighted_trees
from unskew.learning.scoring.scorer import Scorer
from unskew.tables.features.encoding import CategoryField, Encoding, NumberField
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array

GIVEN = {"missing": "NaN", "true and false": "1 and 0", "dates and times": "days since 1970-01-01 UTC"}
"""How values are given to exported models."""
LARGEST = float(np.finfo(np.float32).max)
_OTHER = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True)
class EngineFeature:
    """One number that an engine has to give."""

    name: str
    """In the files that are written."""
    field: str
    """The feature, as the model was trained on it."""
    kind: Literal["number", "missing", "value", "other"]
    values: tuple[str, ...] = ()
    """The value of `value`; for `other`, all that are named."""
    fallback: float = 0.0
    """What stands for a number that is missing."""
    category: bool = False
    """Whether the feature is a category, which is text in an engine."""


@dataclass(frozen=True)
class Leaf:
    """Where a tree ends."""

    value: float


@dataclass(frozen=True)
class Branch:
    """Values up to `last` go left."""

    feature: int
    last: np.float32
    left: Node
    right: Node


Node = Leaf | Branch


@dataclass(frozen=True)
class Layer:
    """One layer of a network."""

    matrix: Array
    """[H, E]."""
    bias: Array
    activation: str


class Form(NamedTuple):
    """A model as an engine runs it."""

    kind: Literal["linear", "trees", "network", "ONNX"]
    model: Any
    """A layer of one unit, a list of nodes, a list of layers, or bytes."""


def fields_of(scorer: Scorer) -> tuple[NumberField | CategoryField, ...]:
    """The features of a model; numbers by place where they have no names."""
    encoding = scorer.card.encoding
    if encoding is not None and encoding.fields:
        return encoding.fields
    return tuple(NumberField(f"feature_{at + 1}", 0.0, False, False) for at in range(scorer.card.features))


def features_of(scorer: Scorer) -> list[EngineFeature]:
    """What an engine has to give, [E], in the order of the encoded columns."""
    found = [_feature(field, column) for field in fields_of(scorer) for column in field.columns]
    names = identifiers([each.name for each in found])
    return [replace(each, name=name) for each, name in zip(found, names, strict=True)]


def identifier(name: str) -> str:
    """A name of letters, digits and underscores, which expressions of all engines take.

    >>> identifier("unit price"), identifier("4k")
    ('unit_price', '_4k')
    """
    plain = _OTHER.sub("_", name)
    return plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"


def identifiers(names: Sequence[str]) -> list[str]:
    """Such names, each another.

    >>> identifiers(["brand=caf\u00e9", "brand=caf\u00e8"])
    ['brand_caf_', 'brand_caf__2']
    """
    return text_names([identifier(name) for name in names])


def _feature(field: NumberField | CategoryField, column: str) -> EngineFeature:
    if isinstance(field, NumberField):
        if column == field.name:
            return EngineFeature(column, field.name, "number", fallback=field.mean)
        return EngineFeature(column, field.name, "missing")
    at = field.columns.index(column)
    if at < len(field.values):
        return EngineFeature(column, field.name, "value", (field.values[at],), category=True)
    if field.rare and at == len(field.values):
        return EngineFeature(column, field.name, "other", field.values, category=True)
    return EngineFeature(column, field.name, "missing", category=True)


# ---- trees ----


def branches(trees: Sequence[Node]) -> Iterator[Branch]:
    """Every split of trees."""
    left = list(trees)
    while left:
        node = left.pop()
        if isinstance(node, Branch):
            yield node
            left += [node.left, node.right]


def plain_trees(scorer: Scorer) -> list[Node]:
    """Trees whose sum is the score of a model of trees."""
    if scorer.scaler.kind not in MONOTONE:
        raise ConfigError(
            f"scaling {scorer.scaler.kind} cannot be worked into trees: {WHY_NOT[scorer.scaler.kind]}; learn with "
            f"one of {', '.join(MONOTONE)}"
        )
    if scorer.card.trees == "xgboost":
        forest = scorer.forest()
        assert forest is not None
        return list(_xgboost_trees(forest, scorer.scaler, features_of(scorer)))
    return list(lightgbm_trees(scorer.lightgbm_forest(), scorer.scaler, features_of(scorer)))


def lightgbm_trees(forest: Forest, scaler: Scaler, features: Sequence[EngineFeature]) -> Iterator[Node]:
    """Trees of LightGBM, times the weight of their output, and what outputs start at."""
    constant, trees = weighted_trees(forest)
    grower = _Grower(scaler, features)
    if constant:
        yield Leaf(constant)
    for weight, tree in trees:
        leaves = [float(value) * weight for value in tree["leaf_value"].split()]
        if len(leaves) == 1:
            yield Leaf(leaves[0])
            continue
        split, left, right = (
            [int(each) for each in tree[name].split()] for name in ("split_feature", "left_child", "right_child")
        )
        bounds = [float(each) for each in tree["threshold"].split()]
        children = {node: (left[node], right[node]) for node in range(len(left))}
        yield grower.tree(0, split, bounds, children, {~at: value for at, value in enumerate(leaves)})


def _xgboost_trees(forest: Forest, scaler: Scaler, features: Sequence[EngineFeature]) -> Iterator[Node]:
    """Trees of XGBoost, which go left where a value is below a bound."""
    assert forest.weights is not None
    grower = _Grower(scaler, features)
    if constant := float(np.dot(forest.start, forest.weights)):
        yield Leaf(constant)
    for text, weight in zip(forest.texts(), forest.weights, strict=False):
        learner = json.loads(text)["learner"]
        base = learner["learner_model_param"]["base_score"]
        if start := float(json.loads(base)[0] if base.startswith("[") else base):
            yield Leaf(start * float(weight))
        for tree in learner["gradient_booster"]["model"]["trees"]:
            left, right, values = tree["left_children"], tree["right_children"], tree["split_conditions"]
            below = [float(np.nextafter(np.float32(value), np.float32(-np.inf))) for value in values]
            leaves = {node: float(values[node]) * float(weight) for node in range(len(left)) if left[node] < 0}
            children = {node: (left[node], right[node]) for node in range(len(left)) if left[node] >= 0}
            yield grower.tree(0, tree["split_indices"], below, children, leaves)


class _Grower:
    """Makes trees on scaled columns trees on unscaled ones."""

    def __init__(self, scaler: Scaler, features: Sequence[EngineFeature]) -> None:
        encoding = Encoding(tuple(NumberField(str(at), 0.0, False, False) for at in range(scaler.width)))
        self.columns = [TreeColumn(encoding, scaler, at) for at in range(scaler.width)]
        self.features, self.plain = features, scaler.kind == "none"

    def tree(
        self,
        node: int,
        split: Sequence[int],
        bounds: Sequence[float],
        children: Mapping[int, tuple[int, int]],
        leaves: Mapping[int, float],
    ) -> Node:
        """The tree below a node; splits that all values pass on one side are left out."""
        if node in leaves:
            return Leaf(leaves[node])
        at, bound, (left, right) = split[node], bounds[node], children[node]
        found = self.columns[at].found
        if bound not in found:  # a search for each threshold takes long
            found[bound] = bound if self.plain else self.columns[at].raw(bound)
        number, bound = self.features[at].kind == "number", found[bound]
        low, high = (-LARGEST, LARGEST) if number else (0.0, 1.0)  # other columns are 0 or 1
        if not low <= bound < high:
            return self.tree(left if bound >= high else right, split, bounds, children, leaves)
        last = last_left(bound) if number else np.float32(0.5)  # between the two, where every engine can split
        sides = (self.tree(each, split, bounds, children, leaves) for each in (left, right))
        return Branch(at, last, *sides)


def last_left(bound: float) -> np.float32:
    """The largest 32-bit float that is not above the bound.

    >>> float(last_left(0.1)) <= 0.1 < float(np.nextafter(last_left(0.1), np.float32(1)))
    True
    """
    near = np.float32(bound)
    return near if float(near) <= bound else np.nextafter(near, np.float32(-np.inf))
