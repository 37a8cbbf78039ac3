"""Models as search engines take them: weights or trees on unscaled numbers, where every category is a 0 or a 1.

Engines know features that are numbers. So what a model takes there are its encoded columns, before scaling:

| column             | in an engine                                                        | where it is missing |
|--------------------|---------------------------------------------------------------------|---------------------|
| `price`            | the number                                                          | the mean of training |
| `price is missing` | 1 where there is none, else 0                                       |                     |
| `brand=acme`       | 1 where the category has this value, else 0                         |                     |
| `brand is other`   | 1 where it has a value that is not named, else 0                    |                     |
| `brand is missing` | 1 where it has none, else 0                                         |                     |

Scaling is worked into thresholds and weights. Trees split as `value <= last`, with `last` a 32-bit float, which is
what engines compute in; every 32-bit float goes the way it goes in the model.

Legend: E encoded columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unskew.errors import ConfigError
from unskew.files import complete_file, refuse_existing, write_json
from unskew.learning.boosters import Forest
from unskew.learning.scoring.raw_trees import MONOTONE, WHY_NOT, TreeColumn, text_names, weighted_trees
from unskew.learning.scoring.scorer import Scorer
from unskew.tables.features.encoding import Encoding
from unskew.tables.features.fields import CategoryField, NumberField
from unskew.tables.lists.scaling import Scaler

GIVEN = {"missing": "NaN", "true and false": "1 and 0", "dates and times": "days since 1970-01-01 UTC"}
"""How values are given to exported models."""


def beside(out: Path) -> Path:
    """Where the features of a model that is one file are told."""
    return out.with_name(f"{out.name}.features.json")


def write_trees(scorer: Scorer, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the trees of a model; in numbers."""
    for place in (out, beside(out)):
        refuse_existing(place, force=force)
    made = scorer.raw_trees()
    out.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(out) as ready:
        ready.write_text(made.text, encoding="utf-8")
    write_json(beside(out), {**GIVEN, "features": made.features})
    trees = made.text.count("\nTree=")
    return {"out": str(out), "features in": str(beside(out)), "trees": trees, "features": len(made.features)}


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

    def to_dict(self) -> dict[str, Any]:
        """For features.json."""
        return vars(self) | {"values": list(self.values)}


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


def fields_of(scorer: Scorer) -> tuple[NumberField | CategoryField, ...]:
    """The features of a model; numbers by place where they have no names."""
    encoding = scorer.card.encoding
    if encoding is not None and encoding.fields:
        return encoding.fields
    return tuple(NumberField(f"feature_{at + 1}", 0.0, False, False) for at in range(scorer.card.features))


def features_of(scorer: Scorer) -> list[EngineFeature]:
    """What an engine has to give, [E], in the order of the encoded columns."""
    found: list[tuple[str, EngineFeature]] = []
    for field in fields_of(scorer):
        for column in field.columns:
            found.append((column, _feature(field, column)))
    names = identifiers([column for column, _ in found])
    return [EngineFeature(**vars(each) | {"name": name}) for name, (_, each) in zip(names, found, strict=True)]


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


def plain_trees(scorer: Scorer) -> list[Node]:
    """Trees whose sum is the score of a model of trees."""
    if scorer.scaler.kind not in MONOTONE:
        raise ConfigError(
            f"scaling {scorer.scaler.kind} cannot be worked into trees: {WHY_NOT[scorer.scaler.kind]}; learn with "
            f"one of {', '.join(MONOTONE)}"
        )
    columns, features = splits_of(scorer.scaler), features_of(scorer)
    if scorer.card.trees == "xgboost":
        forest = scorer.forest()
        assert forest is not None
        return list(xgboost_trees(forest, columns, features))
    return list(lightgbm_trees(scorer.lightgbm_forest(), columns, features))


def splits_of(scaler: Scaler) -> list[TreeColumn]:
    """What becomes of the splits of each column, [E]."""
    fields = tuple(NumberField(str(at), 0.0, False, False) for at in range(scaler.width))
    encoding = Encoding(fields)
    return [TreeColumn(encoding, scaler, at) for at in range(scaler.width)]


def lightgbm_trees(
    forest: Forest, columns: Sequence[TreeColumn], features: Sequence[EngineFeature]
) -> Iterator[Node]:
    """Trees of LightGBM, times the weight of their output, and what outputs start at."""
    constant, trees = weighted_trees(forest)
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
        values = {~at: value for at, value in enumerate(leaves)}
        yield halved(_grown(0, columns, split, bounds, children, values), features)


def xgboost_trees(
    forest: Forest, columns: Sequence[TreeColumn], features: Sequence[EngineFeature]
) -> Iterator[Node]:
    """Trees of XGBoost, which go left where a value is below a bound."""
    assert forest.weights is not None
    if constant := float(np.dot(forest.start, forest.weights)):
        yield Leaf(constant)
    for text, weight in zip(forest.texts(), forest.weights, strict=False):
        learner = json.loads(text)["learner"]
        base = learner["learner_model_param"]["base_score"]
        if start := float(json.loads(base)[0] if base.startswith("[") else base):
            yield Leaf(start * float(weight))
        for tree in learner["gradient_booster"]["model"]["trees"]:
            left, right, values = tree["left_children"], tree["right_children"], tree["split_conditions"]
            inner = [node for node in range(len(left)) if left[node] >= 0]
            below = [float(np.nextafter(np.float32(value), np.float32(-np.inf))) for value in values]
            leaves = {node: float(values[node]) * float(weight) for node in range(len(left)) if left[node] < 0}
            children = {node: (left[node], right[node]) for node in inner}
            yield halved(_grown(0, columns, tree["split_indices"], below, children, leaves), features)


def _grown(
    node: int,
    columns: Sequence[TreeColumn],
    split: Sequence[int],
    bounds: Sequence[float],
    children: dict[int, tuple[int, int]],
    leaves: dict[int, float],
) -> Node:
    """The tree below a node; splits that all values pass on one side are left out."""
    if node in leaves:
        return Leaf(leaves[node])
    left, right = children[node]
    column = columns[split[node]]
    if bounds[node] not in column.found:
        plain = column.scaler.kind == "none"  # a search for each threshold takes long
        column.found[bounds[node]] = bounds[node] if plain else column.raw(bounds[node])
    bound = column.found[bounds[node]]
    if abs(bound) >= LARGEST:
        return _grown(left if bound > 0 else right, columns, split, bounds, children, leaves)
    sides = (_grown(each, columns, split, bounds, children, leaves) for each in (left, right))
    return Branch(split[node], last_left(bound), *sides)


def halved(node: Node, features: Sequence[EngineFeature]) -> Node:
    """The tree with splits of columns that are 0 or 1 between the two, where every engine can make them."""
    if isinstance(node, Leaf):
        return node
    left, right = (halved(each, features) for each in (node.left, node.right))
    if features[node.feature].kind == "number":
        return Branch(node.feature, node.last, left, right)
    if not 0 <= node.last < 1:
        return left if node.last >= 1 else right
    return Branch(node.feature, np.float32(0.5), left, right)


def last_left(bound: float) -> np.float32:
    """The largest 32-bit float that is not above the bound.

    >>> float(last_left(0.1)) <= 0.1 < float(np.nextafter(last_left(0.1), np.float32(1)))
    True
    """
    near = np.float32(bound)
    return near if float(near) <= bound else np.nextafter(near, np.float32(-np.inf))
