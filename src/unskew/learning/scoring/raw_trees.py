"""Trees that take features as they are: the LightGBM text of a model, with encoding and scaling worked into it.

The trees of a model split encoded, scaled features. Each split becomes one of the raw feature:

| split of              | becomes                                                                              |
|-----------------------|--------------------------------------------------------------------------------------|
| a number, scaled <= t | raw <= r, with r such that every value, rounded to a 32-bit float, goes the same way |
| `price is missing`    | NaN to one side, all else to the other                                               |
| `brand=acme`          | the code of acme to one side, all other codes and NaN to the other                   |
| `brand is other`      | codes from the number of known values on to one side, all else to the other          |
| `brand is missing`    | NaN to one side, all else to the other                                               |

A missing number goes where the mean of training goes. Several outputs of a model become one sum: their trees
follow one another, their leaves times the weight of the output. Scalings that look at other documents
(`query_minmax`) or at which entries a file names (`ultra`) cannot be worked in.

Legend: T splits of one feature, V known values of a category.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.boosters import Forest
from unskew.tables.features.encoding import CategoryField, Encoding, NumberField
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array

ALWAYS = 1e300
"""A threshold above every number."""
CATEGORY, LEFT, NAN = 1, 2, 8
"""Bits of a decision of LightGBM: by category; NaN goes left; NaN is known apart from numbers."""
MONOTONE = ("none", "standard", "minmax", "log1p")
WHY_NOT = {
    "query_minmax": "it scales within a query, and a tree sees one document",
    "ultra": "it depends on which entries a file names",
    "ultra_log": "it depends on which entries a file names",
}
_UNSAFE = str.maketrans(dict.fromkeys(' \t\r\n",:[]{}=', "_"))


@dataclass(frozen=True)
class RawTrees:
    """A LightGBM model on features as they are."""

    text: str
    features: list[dict[str, Any]]
    """What it takes: name, the name in the text, and for categories the code of each value and of all others."""


def raw_trees(forest: Forest, encoding: Encoding | None, scaler: Scaler) -> RawTrees:
    """The trees with encoding and scaling worked in."""
    if scaler.kind not in MONOTONE:
        raise ConfigError(
            f"scaling {scaler.kind} cannot be worked into trees: {WHY_NOT[scaler.kind]}; learn with one of "
            f"{', '.join(MONOTONE)}"
        )
    if encoding is None or not encoding.fields:
        fields = tuple(NumberField(f"feature_{at + 1}", 0.0, False, False) for at in range(scaler.width))
        encoding = Encoding(fields)
    splits = [TreeColumn(encoding, scaler, at) for at in range(scaler.width)]
    constant, trees = weighted_trees(forest)
    added = [constant, *[0.0] * len(trees)]  # the first tree has the constant in its leaves
    blocks = [_rewritten(tree, splits, weight, more) for (weight, tree), more in zip(trees, added, strict=False)]
    blocks = blocks or [{"num_leaves": "1", "num_cat": "0", "leaf_value": repr(constant), "is_linear": "0"}]
    names, told = text_names([field.name for field in encoding.fields]), list[dict[str, Any]]()
    for field, name in zip(encoding.fields, names, strict=True):
        told.append({"name": field.name, "in_text": name})
        if isinstance(field, CategoryField):
            codes = {value: code for code, value in enumerate(field.values)}
            told[-1] |= {"codes": codes, "other": len(codes)}
    return RawTrees(_text(blocks, names), told)


def text_names(names: Sequence[str]) -> list[str]:
    """Names that LightGBM takes, each another.

    >>> text_names(["unit price", "unit_price", "vector[0]"])
    ['unit_price', 'unit_price_2', 'vector_0_']
    """
    taken: list[str] = []
    for name in names:
        plain = name.translate(_UNSAFE) or "_"
        number, unique = 2, plain
        while unique in taken:
            unique, number = f"{plain}_{number}", number + 1
        taken.append(unique)
    return taken


# ---- one split ----


class TreeColumn:
    """What becomes of splits of one encoded feature."""

    def __init__(self, encoding: Encoding, scaler: Scaler, at: int) -> None:
        self.origin = int(encoding.origins[at])
        self.field = encoding.fields[self.origin]
        first = int(np.flatnonzero(encoding.origins == self.origin)[0])
        self.place = at - first
        statistics = {name: values[at : at + 1] for name, values in scaler.statistics.items()}
        self.scaler = Scaler(scaler.kind, 1, statistics)
        self.found: dict[float, float] = {}
        """Raw thresholds, by scaled ones; they repeat."""

    def scaled(self, values: Array) -> Array:
        """Raw values [T] as trees see them, float32."""
        return self.scaler.transform(values[:, None])[:, 0]

    def split(self, threshold: float) -> tuple[int, float, int | None]:
        """Decision and threshold of a raw split; and the category that it is of, where its sides change places."""
        if self.place == 0 and isinstance(self.field, NumberField):
            mean = float(self.scaled(np.array([self.field.mean], np.float32))[0])
            if threshold not in self.found:
                self.found[threshold] = self.raw(threshold)
            return NAN | (LEFT if mean <= threshold else 0), self.found[threshold], None
        off, on = (float(each) <= threshold for each in self.scaled(np.array([0.0, 1.0], np.float32)))
        if off == on:  # a split that all documents pass on one side
            return NAN | (LEFT if off else 0), ALWAYS if off else -ALWAYS, None
        if isinstance(self.field, CategoryField):
            known = len(self.field.values)
            if self.place < known:
                return CATEGORY, 0.0, self.place
            if self.field.rare and self.place == known:  # all other values
                return NAN | LEFT, known - 0.5, None
        return NAN, ALWAYS, None  # whether it is missing

    def raw(self, threshold: float) -> float:
        """The largest number that goes left: rounded to a 32-bit float and scaled, it is <= threshold."""
        low, high = -(2**31) + 2**23, 2**31 - 2**23  # 32-bit floats in order, the finite ones
        while high - low > 1:
            middle = (low + high) // 2
            if float(self.scaled(np.array([_ordered(middle)]))[0]) <= threshold:
                low = middle
            else:
                high = middle
        if high == 2**31 - 2**23:
            return ALWAYS
        if low == -(2**31) + 2**23:
            return -ALWAYS
        last, following = float(_ordered(low)), float(_ordered(high))
        halfway = (last + following) / 2  # exact; ties go to the even one
        return halfway if np.float32(halfway) == np.float32(last) else float(np.nextafter(halfway, -np.inf))


def _ordered(index: int) -> np.float32:
    """The 32-bit float of this place in their order; 0 is 0.0."""
    bits = np.uint32(index if index >= 0 else 2**31 - index)
    return bits.view(np.float32)


# ---- whole trees ----


def weighted_trees(forest: Forest) -> tuple[float, list[tuple[float, dict[str, str]]]]:
    """What LightGBM's trees add to in a score, and each tree in use with the weight of its output."""
    assert forest.weights is not None
    every = zip(forest.texts(), forest.kept, forest.weights.tolist(), strict=False)
    trees = [(weight, tree) for text, kept, weight in every for tree in list(tree_fields(text))[:kept]]
    return float(np.dot(forest.start, forest.weights)), trees


def tree_fields(text: str) -> Iterator[dict[str, str]]:
    """The fields of each tree of a LightGBM text."""
    body = text.partition("\n\nTree=0\n")[2].partition("\nend of trees")[0]
    for block in ("Tree=0\n" + body).split("Tree=")[1:]:
        lines = block.strip().split("\n")[1:]
        yield dict(line.split("=", 1) for line in lines)


def _rewritten(tree: dict[str, str], splits: Sequence[TreeColumn], weight: float, added: float) -> dict[str, str]:
    """A tree on raw features, its leaves times the weight plus a constant."""
    leaves = [float(value) * weight + added for value in tree["leaf_value"].split()]
    tree = tree | {"leaf_value": " ".join(map(repr, leaves))}
    if int(tree["num_leaves"]) == 1:
        return tree
    split = [splits[int(each)] for each in tree["split_feature"].split()]
    thresholds = [float(each) for each in tree["threshold"].split()]
    left, right = tree["left_child"].split(), tree["right_child"].split()
    decisions, sets = [], list[int]()
    for node, (column, threshold) in enumerate(zip(split, thresholds, strict=True)):
        decision, thresholds[node], category = column.split(threshold)
        decisions.append(decision)
        if category is not None:
            thresholds[node] = len(sets)
            sets.append(category)
            left[node], right[node] = right[node], left[node]
    tree |= {
        "num_cat": str(len(sets)),
        "split_feature": " ".join(str(column.origin) for column in split),
        "threshold": " ".join(map(repr, thresholds)),
        "decision_type": " ".join(map(str, decisions)),
        "left_child": " ".join(left),
        "right_child": " ".join(right),
    }
    if sets:  # of one category each, as LightGBM writes them: words of 32 bits
        words = [[0] * (code // 32) + [1 << code % 32] for code in sets]
        tree["cat_boundaries"] = " ".join(map(str, np.cumsum([0, *map(len, words)])))
        tree["cat_threshold"] = " ".join(str(word) for each in words for word in each)
    return tree


def _text(trees: Sequence[dict[str, str]], names: Sequence[str]) -> str:
    """A LightGBM model of these trees."""
    blocks = []
    for number, tree in enumerate(trees):
        lines = [f"{name}={value}" for name, value in ({"shrinkage": "1"} | tree).items()]
        blocks.append("\n".join([f"Tree={number}", *lines, "", "", ""]))
    head = [
        "tree",
        "version=v4",
        "num_class=1",
        "num_tree_per_iteration=1",
        "label_index=0",
        f"max_feature_idx={len(names) - 1}",
        f"feature_names={' '.join(names)}",
        f"feature_infos={' '.join(['[-1e+300:1e+300]'] * len(names))}",
        f"tree_sizes={' '.join(str(len(block.encode())) for block in blocks)}",
        "",
        "",
    ]
    return "\n".join(head) + "".join(blocks) + "end of trees\n\npandas_categorical:null\n"
