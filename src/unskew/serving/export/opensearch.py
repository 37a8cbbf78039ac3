"""`unskew export RUN --to opensearch` (or elasticsearch): a model for the learning-to-rank plugin of both engines.

featureset.json and model.json are the bodies of `POST _ltr/_featureset/NAME` and of its `/_createmodel`.

References: the plugins' documentation ("Working with features", "Script features", "Derived features", "Uploading
a trained model") and their scoring: a split sends a value left (`yes`) where it is below `split_condition`, both
32-bit floats; plugins that know missing values send a feature that no query gives to `missing`, which here is
where the mean of training goes, older ones take it for 0. Weights know no constant, which changes no order.

Scores of queries and scripts may not be negative. So a number whose sign the model looks at is the difference of
two features, what it is above 0 and below; of others, all below 0 counts as 0, which goes the same way. Every
number has a script, since `field_value_factor` fails on the first negative value; all of them are one source.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from unskew.serving.export.forms import EngineFeature, Form, Leaf, Node, branches, identifiers

SCRIPT = "params.sign * (doc[params.field].size() == 0 ? params.fallback : doc[params.field].value)"
POSITIVE = f"Math.max(0.0, {SCRIPT})"
"""A number, or what stands for it, in painless."""


def files(name: str, features: Sequence[EngineFeature], form: Form) -> dict[str, Any]:
    """The files of a model."""
    if form.kind == "linear":
        weighed = zip(features, form.model.matrix[0], strict=True)
        definition: Any = {each.name: float(weight) for each, weight in weighed}
        kind, signed = "model/linear", set(range(len(features)))
    else:
        kind, definition = "model/xgboost+json", numbered_trees(features, form.model)
        # a split at 0 or above sends all below 0 the way of 0
        signed = {node.feature for node in branches(form.model) if node.last < 0}
    model = {"name": name, "model": {"type": kind, "definition": json.dumps(definition)}}
    return {"model.json": {"model": model}, "featureset.json": feature_set(name, features, signed)}


def numbered_trees(features: Sequence[EngineFeature], trees: Sequence[Node]) -> list[dict[str, Any]]:
    """Trees as XGBoost's `dump_model` writes them, leaves times what weighs them."""
    return [_numbered(features, tree, count()) for tree in trees]


def _numbered(
    features: Sequence[EngineFeature], node: Node, numbers: Iterator[int], depth: int = 0
) -> dict[str, Any]:
    """A node and all below it, numbered as they come."""
    number = next(numbers)
    if isinstance(node, Leaf):
        return {"nodeid": number, "leaf": float(np.float32(node.value))}
    feature = features[node.feature]
    left, right = (_numbered(features, each, numbers, depth + 1) for each in (node.left, node.right))
    there = left if np.float32(feature.fallback) <= node.last else right
    return {
        "nodeid": number,
        "depth": depth,
        "split": feature.name,
        "split_condition": float(np.nextafter(node.last, np.float32(np.inf))),
        "yes": left["nodeid"],
        "no": right["nodeid"],
        "missing": there["nodeid"],
        "children": [left, right],
    }


# ---- features ----


def feature_set(name: str, features: Sequence[EngineFeature], signed: set[int]) -> dict[str, Any]:
    """What gives each feature; `signed` are those whose sign the model looks at."""
    taken = identifiers(
        [each.name for each in features] + [f"{each.name}_{at}" for each in features for at in ("above", "below")]
    )
    parts = iter(taken[len(features) :])
    listed: list[dict[str, Any]] = []
    for at, each in enumerate(features):
        above, below = next(parts), next(parts)
        if each.kind != "number":
            listed.append(_entry(each.name, "mustache", _filter(each)))
        elif at not in signed:
            listed.append(_entry(each.name, "script_feature", _script(each, 1.0)))
        else:
            listed.append(_entry(above, "script_feature", _script(each, 1.0)))
            listed.append(_entry(below, "script_feature", _script(each, -1.0)))
            listed.append(_entry(each.name, "derived_expression", f"{above} - {below}"))
    return {"featureset": {"name": name, "features": listed}}


def _entry(name: str, language: str, template: Any) -> dict[str, Any]:
    return {"name": name, "params": [], "template_language": language, "template": template}


def _script(feature: EngineFeature, sign: float) -> dict[str, Any]:
    params = {"field": feature.field, "fallback": feature.fallback, "sign": sign}
    return {"lang": "painless", "source": POSITIVE, "params": params}


def _filter(feature: EngineFeature) -> dict[str, Any]:
    """A query whose score is 1 where it matches; elsewhere the feature is 0."""
    exists = {"exists": {"field": feature.field}}
    clause: dict[str, Any]
    if feature.kind == "value":
        clause = {"term": {feature.field: feature.values[0]}}
    elif feature.kind == "missing":
        clause = {"bool": {"must_not": [exists]}}
    else:
        clause = {"bool": {"filter": [exists], "must_not": [{"terms": {feature.field: list(feature.values)}}]}}
    return {"constant_score": {"filter": clause, "boost": 1.0}}
