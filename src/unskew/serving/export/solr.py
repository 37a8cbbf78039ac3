"""`unskew export RUN --to solr`: a model for Solr's learning-to-rank module.

feature_store.json and model.json are the bodies of `PUT schema/feature-store` and `PUT schema/model-store`.

Reference: Solr Reference Guide, "Learning To Rank". Solr computes in 32-bit floats and adds 1e-6 to thresholds
before it compares `value <= threshold`. So thresholds are written such that the sum is the one wanted; where no
32-bit float gives it (close to 0, and just above a negative power of 2), the split is off by one 32-bit float, or
by 1e-13 where that is more, and how many are is reported.

Its `NeuralNetworkModel` has layers with relu, leakyrelu (0.01), sigmoid, tanh or identity, and no LayerNorm or
ELU; a network with `activation` and `hidden_norm` set so goes exactly, others are distilled into trees. Scaling is
worked into weights, not left to Solr's normalizers: those are a shift and a scale too, and know no log1p.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unskew.serving.export.forms import EngineFeature, Form, Leaf, Node, branches

SLACK = np.float32(1e-6)
"""What Solr adds to thresholds."""
ACTIVATIONS = {"relu": "relu", "leaky_relu": "leakyrelu", "sigmoid": "sigmoid", "tanh": "tanh"}
"""Solr's name for each of our activations that it has."""
STORE = "unskew"
_PACKAGE = "org.apache.solr.ltr"


def files(name: str, features: Sequence[EngineFeature], form: Form) -> dict[str, Any]:
    """The files of a model."""
    params: dict[str, Any]
    if form.kind == "linear":
        weighed = zip(features, form.model.matrix[0], strict=True)
        kind, params = "LinearModel", {"weights": {each.name: float(weight) for each, weight in weighed}}
    elif form.kind == "network":  # all numbers have a point, since Solr takes no whole ones there
        layers = [
            {
                "matrix": layer.matrix.astype(float).tolist(),
                "bias": layer.bias.astype(float).tolist(),
                "activation": layer.activation,
            }
            for layer in form.model
        ]
        kind, params = "NeuralNetworkModel", {"layers": layers}
    else:  # numbers of trees are texts, as Solr's own examples have them
        trees = [{"weight": "1", "root": _node(tree, features)} for tree in form.model]
        kind, params = "MultipleAdditiveTreesModel", {"trees": trees}
    model = {
        "class": f"{_PACKAGE}.model.{kind}",
        "name": name,
        "store": STORE,
        "features": [{"name": each.name} for each in features],
        "params": params,
    }
    store = [{"store": STORE, "name": each.name} | _feature(each) for each in features]
    return {"model.json": model, "feature_store.json": store}


def _node(node: Node, features: Sequence[EngineFeature]) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"value": repr(float(np.float32(node.value)))}
    return {
        "feature": features[node.feature].name,
        "threshold": repr(float(written_threshold(node.last))),
        "left": _node(node.left, features),
        "right": _node(node.right, features),
    }


def written_threshold(last: np.float32) -> np.float32:
    """The 32-bit float that becomes `last` when Solr has added its slack, or the one that comes nearest.

    >>> float(written_threshold(np.float32(0.5)) + SLACK)
    0.5
    """
    guess = np.float32(last - SLACK)
    near = [guess, np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.float32(np.inf))]
    return min(near, key=lambda each: abs(float(np.float32(each + SLACK)) - float(last)))


def inexact_splits(trees: Sequence[Node]) -> int:
    """How many splits Solr cannot make at the very place."""
    lasts = [node.last for node in branches(trees)]
    return sum(int(np.float32(written_threshold(last) + SLACK) != last) for last in lasts)


def _feature(feature: EngineFeature) -> dict[str, Any]:
    if feature.kind == "number":
        params: dict[str, Any] = {"field": feature.field, "defaultValue": feature.fallback}
        return {"class": f"{_PACKAGE}.feature.FieldValueFeature", "params": params}
    field = _escaped(feature.field)
    if feature.kind == "missing":
        return {"class": f"{_PACKAGE}.feature.SolrFeature", "params": {"fq": [f"*:* NOT {field}:[* TO *]"]}}
    named = " OR ".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in feature.values)
    matched = f"{field}:({named})"
    query = matched if feature.kind == "value" else f"{field}:[* TO *] NOT {matched}"
    return {"class": f"{_PACKAGE}.feature.SolrFeature", "params": {"fq": [query]}}


def _escaped(name: str) -> str:
    r"""A field's name in a query.

    >>> _escaped("unit price")
    'unit\\ price'
    """
    return "".join(f"\\{each}" if not (each.isalnum() or each in "_.") else each for each in name)
