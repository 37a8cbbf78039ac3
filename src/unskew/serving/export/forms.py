"""Models as search engines take them: weights, layers, trees or an ONNX graph on unscaled numbers.

    linear     w . x + c                                   any engine
    trees      `value <= last` goes left                   any engine
    layers     activation(W x + b), one after another      Solr's NeuralNetworkModel
    ONNX       from `features` float32 [n, E] to `score` float32 [n, 1], scaling inside

Engines know features that are numbers: a model's encoded columns before scaling (docs/how_to/export.md).
Trees split at `last`, a 32-bit float, which is what engines compute in; every 32-bit float goes the way it goes in
the model. Scaling is worked into thresholds, and into the first layer: by a shift s and a scale t for each column
W (x - s) / t + b is (W / t) x + (b - W (s / t)). The weights of a score over several outputs go into the last.

Legend: E encoded columns, O relevance outputs, H units.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.boosters import Forest
from unskew.learning.scoring.raw_trees import MONOTONE, WHY_NOT, TreeColumn, text_names, weighted_trees
from unskew.learning.scoring.scorer import Scorer
from unskew.tables.features.encoding import CategoryField, Encoding, NumberField
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array

if TYPE_CHECKING:
    from torch import nn

GIVEN = {"missing": "NaN", "true and false": "1 and 0", "dates and times": "days since 1970-01-01 UTC"}
"""How values are given to exported models."""
LARGEST = float(np.finfo(np.float32).max)
SHIFTED = ("none", "standard", "minmax")
"""Scalings that are a shift and a scale of each column."""
BY_DOCUMENT = (*SHIFTED, "log1p")
"""Scalings that a graph can do, which sees one document at a time."""


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


def features_of(scorer: Scorer) -> list[EngineFeature]:
    """What an engine has to give, [E], in the order of the encoded columns."""
    encoding, numbers = scorer.card.encoding, range(1, scorer.card.features + 1)
    fields = () if encoding is None else encoding.fields
    if not fields:  # numbers by place
        fields = tuple(NumberField(f"feature_{at}", 0.0, False, False) for at in numbers)
    found = [_feature(field, column) for field in fields for column in field.columns]
    names = identifiers([each.name for each in found])
    return [replace(each, name=name) for each, name in zip(found, names, strict=True)]


def identifier(name: str) -> str:
    """A name of letters, digits and underscores, which expressions of all engines take.

    >>> identifier("unit price"), identifier("4k")
    ('unit_price', '_4k')
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
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


class NodeTable(NamedTuple):
    """A tree on scaled columns as libraries have it; its root is node 0."""

    leaves: Mapping[int, float]
    """By node, times the weight of their output."""
    split: Sequence[int] = ()
    """The column of each other node."""
    bounds: Sequence[float] = ()
    """Values up to it go left."""
    children: Mapping[int, tuple[int, int]] = {}


def plain_trees(scorer: Scorer) -> list[Node]:
    """Trees whose sum is the score of a model of trees."""
    if scorer.scaler.kind not in MONOTONE:
        raise ConfigError(
            f"scaling {scorer.scaler.kind} cannot be worked into trees: {WHY_NOT[scorer.scaler.kind]}; learn with "
            f"one of {', '.join(MONOTONE)}"
        )
    if scorer.card.trees != "xgboost":
        return grown(lightgbm_tables(scorer.lightgbm_forest()), scorer.scaler, features_of(scorer))
    forest = scorer.forest()
    assert forest is not None
    return grown(_xgboost_tables(forest), scorer.scaler, features_of(scorer))


def lightgbm_tables(forest: Forest) -> Iterator[NodeTable]:
    """Trees of LightGBM, and what outputs start at."""
    constant, trees = weighted_trees(forest)
    if constant:
        yield NodeTable({0: constant})
    for weight, tree in trees:
        leaves = [float(value) * weight for value in tree["leaf_value"].split()]
        if len(leaves) == 1:
            yield NodeTable({0: leaves[0]})
            continue
        split, left, right = (
            [int(each) for each in tree[name].split()] for name in ("split_feature", "left_child", "right_child")
        )
        bounds = [float(each) for each in tree["threshold"].split()]
        children = dict(enumerate(zip(left, right, strict=True)))
        yield NodeTable({~at: value for at, value in enumerate(leaves)}, split, bounds, children)


def _xgboost_tables(forest: Forest) -> Iterator[NodeTable]:
    """Trees of XGBoost, which go left where a value is below a bound, and what outputs start at."""
    assert forest.weights is not None
    if constant := float(np.dot(forest.start, forest.weights)):
        yield NodeTable({0: constant})
    for text, weight in zip(forest.texts(), forest.weights, strict=False):
        learner = json.loads(text)["learner"]
        base = learner["learner_model_param"]["base_score"]
        if start := float(json.loads(base)[0] if base.startswith("[") else base):
            yield NodeTable({0: start * float(weight)})
        for tree in learner["gradient_booster"]["model"]["trees"]:
            values, children = tree["split_conditions"], dict[int, tuple[int, int]]()
            below = [float(np.nextafter(np.float32(value), np.float32(-np.inf))) for value in values]
            for node, sides in enumerate(zip(tree["left_children"], tree["right_children"], strict=True)):
                if sides[0] >= 0:
                    children[node] = sides
            leaves = {
                node: float(value) * float(weight) for node, value in enumerate(values) if node not in children
            }
            yield NodeTable(leaves, tree["split_indices"], below, children)


def grown(tables: Iterable[NodeTable], scaler: Scaler, features: Sequence[EngineFeature]) -> list[Node]:
    """Trees on unscaled columns; splits that all values pass on one side are left out."""
    encoding = Encoding(tuple(NumberField(str(at), 0.0, False, False) for at in range(scaler.width)))
    columns = [TreeColumn(encoding, scaler, at) for at in range(scaler.width)]

    def grow(table: NodeTable, node: int) -> Node:
        if node in table.leaves:
            return Leaf(table.leaves[node])
        at, bound, (left, right) = table.split[node], table.bounds[node], table.children[node]
        found = columns[at].found
        if bound not in found:  # a search for each threshold takes long
            found[bound] = bound if scaler.kind == "none" else columns[at].raw(bound)
        number, bound = features[at].kind == "number", found[bound]
        low, high = (-LARGEST, LARGEST) if number else (0.0, 1.0)  # other columns are 0 or 1
        if not low <= bound < high:
            return grow(table, left if bound >= high else right)
        last = last_left(bound) if number else np.float32(0.5)  # between the two, where every engine can split
        return Branch(at, last, grow(table, left), grow(table, right))

    return [grow(table, 0) for table in tables]


def last_left(bound: float) -> np.float32:
    """The largest 32-bit float that is not above the bound.

    >>> float(last_left(0.1)) <= 0.1 < float(np.nextafter(last_left(0.1), np.float32(1)))
    True
    """
    near = np.float32(bound)
    return near if float(near) <= bound else np.nextafter(near, np.float32(-np.inf))


# ---- networks ----


def scored_network(scorer: Scorer) -> tuple[nn.Module, Array]:
    """The network, and w [O]: its outputs . w are the score; or an error that says why there is none."""
    from unskew.learning.rankers.networks import WithSide
    from unskew.learning.rankers.trees import tree_rankers
    from unskew.learning.scoring.model import Model

    if scorer.reads:
        raise ConfigError("it reads text, whose tokens need the tokenizer of the encoder; serve it with unskew")
    if scorer.card.trees is not None:
        raise ConfigError("its score is of trees, not of a network; export it to lightgbm, solr or opensearch")
    assert isinstance(scorer, Model)
    weights = scorer.method.score_weights()
    if weights is None:
        name = scorer.card.method["name"]
        raise ConfigError(
            f"the score of {name} is not a weighted sum of the network's outputs; serve it with unskew"
        )
    if tree_rankers(scorer.ranker):
        raise ConfigError("trees and a network score together; serve it with unskew")
    ranker = scorer.ranker.ranker if isinstance(scorer.ranker, WithSide) else scorer.ranker
    return ranker, weights.detach().cpu().double().numpy()


def plain_layers(scorer: Scorer, activations: dict[str, str]) -> list[Layer]:
    """The layers of a network on unscaled columns, or an error that says why an engine cannot run them.

    `activations` are those that the engine has: its name for each of ours.
    """
    ranker, weights = scored_network(scorer)
    if scorer.scaler.kind not in SHIFTED:
        raise ConfigError(
            f"scaling {scorer.scaler.kind} cannot be worked into weights; learn with one of {', '.join(SHIFTED)}"
        )
    layers, scaler = list(_layers(ranker, activations)), scorer.scaler
    if scaler.kind != "none":
        first = layers[0]
        matrix = first.matrix / scaler.statistics["scale"]
        layers[0] = Layer(matrix, first.bias - matrix @ scaler.statistics["shift"], first.activation)
    last = layers[-1]
    layers[-1] = Layer((weights @ last.matrix)[None], np.array([weights @ last.bias]), "identity")
    return layers


def _layers(network: nn.Module, activations: dict[str, str]) -> Iterator[Layer]:
    """Each Linear, with the activation after it."""
    from torch import nn

    if not isinstance(network, nn.Sequential):
        raise ConfigError("it is several networks side by side")
    modules = [each for each in network if not isinstance(each, nn.Dropout)]
    units = {_activation(each) for each in modules} - {None, *activations}
    why = [f"its units are {name} (ranker.activation)" for name in sorted(filter(None, units))]
    if any(isinstance(each, nn.LayerNorm) for each in modules):
        why.append("it normalises layers (ranker.hidden_norm, ranker.input_norm)")
    if why:
        raise ConfigError(f"{' and '.join(why)}; it knows {', '.join(activations)}, and no norm")
    for at, module in enumerate(modules):
        if isinstance(module, nn.Linear):
            name = _activation(modules[at + 1]) if at + 1 < len(modules) else None
            matrix, bias = (each.detach().double().cpu().numpy() for each in (module.weight, module.bias))
            yield Layer(matrix, bias, "identity" if name is None else activations[name])


def _activation(module: nn.Module) -> str | None:
    from unskew.learning.rankers.networks import ACTIVATIONS

    return next((name for name, make in ACTIVATIONS.items() if type(make()) is type(module)), None)


def standalone(scorer: Scorer) -> bytes:
    """An ONNX graph from unscaled columns to the score."""
    import torch

    from unskew.learning.scoring.onnx_graph import graph_of

    (network, weights), scaler = scored_network(scorer), scorer.scaler
    if scaler.kind not in BY_DOCUMENT:
        raise ConfigError(
            f"scaling {scaler.kind} needs more than one document; learn with one of {', '.join(BY_DOCUMENT)}"
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
