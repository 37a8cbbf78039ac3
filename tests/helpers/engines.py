"""Search engines as their documentation has them: features of a document, and the score of a model.

Written from the reference guides of Solr, of the learning-to-rank plugins and of Vespa, and shares nothing with
what writes their files. A document is a dict of fields, None where it has none.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

F = np.float32
Document = dict[str, Any]
Row = dict[str, float]


def read(path: Path) -> Any:
    """A JSON file, in which NaN and infinities are not allowed."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


# ---- Solr ----

CLAUSE = re.compile(r'(NOT )?(\*:\*|((?:\\.|[\w.])+):(?:(\[\* TO \*\])|\(((?:"(?:\\.|[^"])*"(?: OR )?)+)\)))\s*')


def solr_row(store: list[dict[str, Any]], document: Document) -> Row:
    """Fields, or 1 where the filter queries match and 0 elsewhere."""
    found: Row = {}
    for feature in store:
        params = feature["params"]
        if feature["class"].endswith("FieldValueFeature"):
            value = document[params["field"]]
            found[feature["name"]] = float(F(params["defaultValue"] if value is None else value))
        else:
            assert feature["class"].endswith("SolrFeature")
            found[feature["name"]] = float(all(lucene(query, document) for query in params["fq"]))
    return found


def lucene(query: str, document: Document) -> bool:
    """Clauses of the standard query parser: one has to match, and none behind NOT."""
    matched, at = False, 0
    while at < len(query):
        clause = CLAUSE.match(query, at)
        assert clause is not None, query
        at = clause.end()
        value = None if clause[3] is None else document[re.sub(r"\\(.)", r"\1", clause[3])]
        named = [re.sub(r"\\(.)", r"\1", each) for each in re.findall(r'"((?:\\.|[^"])*)"', clause[5] or "")]
        hit = clause[2] == "*:*" or (value is not None and (clause[4] is not None or value in named))
        if clause[1] and hit:
            return False
        matched |= bool(hit and not clause[1])
    return matched


def solr_score(model: dict[str, Any], row: Row) -> float:
    """32-bit floats throughout; 1e-6 is added to each threshold, `value <= threshold` goes left."""
    names = [each["name"] for each in model["features"]]
    kind, params = model["class"].rpartition(".")[2], model["params"]
    if kind == "LinearModel":
        assert set(params["weights"]) == set(names)
        return float(np.sum([F(weight) * F(row[name]) for name, weight in params["weights"].items()], dtype=F))
    if kind == "NeuralNetworkModel":
        return solr_network(params["layers"], [F(row[name]) for name in names])
    total = F(0)
    for tree in params["trees"]:
        node = tree["root"]
        while "feature" in node:
            assert node["feature"] in names
            threshold = F(F(node["threshold"]) + F(1e-6))
            node = node["left"] if F(row[node["feature"]]) <= threshold else node["right"]
        total = F(total + F(tree["weight"]) * F(node["value"]))
    return float(total)


WAVES: dict[str, Callable[[Any], Any]] = {
    "identity": lambda v: v,
    "relu": lambda v: F(0) if v < 0 else v,
    "leakyrelu": lambda v: F(0.01) * v if v < 0 else v,
    "tanh": lambda v: F(math.tanh(v)),
    "sigmoid": lambda v: F(1 / (1 + math.exp(-v))),
}


def solr_network(layers: list[dict[str, Any]], values: list[Any]) -> float:
    """Layers one after another; all numbers are Doubles to Solr, a whole one is not taken."""
    for layer in layers:
        assert all(isinstance(each, float) for row in [*layer["matrix"], layer["bias"]] for each in row)
        assert len(layer["bias"]) == len(layer["matrix"])
        given = []
        for row, bias in zip(layer["matrix"], layer["bias"], strict=True):
            total = F(bias)
            for weight, value in zip(row, values, strict=True):
                total = F(total + F(weight) * value)
            given.append(WAVES[layer["activation"]](total))
        values = given
    assert len(values) == 1
    return float(values[0])


# ---- the plugins of OpenSearch and Elasticsearch ----


class Values(list[Any]):
    """Values of a field in a script."""

    def size(self) -> int:
        return len(self)

    @property
    def value(self) -> Any:
        return self[0]


def plugin_row(body: dict[str, Any], document: Document) -> Row:
    """Scores of queries and scripts, which may not be negative, and expressions of them; some are absent."""
    found: Row = {}
    for feature in body["featureset"]["features"]:
        name, language, template = feature["name"], feature["template_language"], feature["template"]
        if language == "derived_expression":
            found[name] = float(F(eval(template, {}, dict(found))))
        elif language == "script_feature":
            found[name] = float(F(painless(template, document)))
            assert found[name] >= 0, "scores may not be negative"
        elif matches(template["constant_score"]["filter"], document):
            found[name] = template["constant_score"]["boost"]
    return found


def painless(script: dict[str, Any], document: Document) -> float:
    """A script of one expression, with one condition."""
    source = re.sub(r"\((doc[^?]*) \? ([^:]*) : ([^)]*)\)", r"((\2) if (\1) else (\3))", script["source"])
    source = re.sub(r"params\.(\w+)", r"params['\1']", source).replace("Math.max", "max")
    doc = {name: Values([] if value is None else [value]) for name, value in document.items()}
    return float(eval(source, {"doc": doc, "params": script["params"]}))


def matches(query: dict[str, Any], document: Document) -> bool:
    """Whether a filter matches."""
    ((kind, about),) = query.items()
    if kind == "exists":
        return document[about["field"]] is not None
    if kind == "bool":
        wanted = [matches(each, document) for each in about.get("filter", [])]
        return all(wanted) and not any(matches(each, document) for each in about.get("must_not", []))
    ((field, value),) = about.items()
    return bool(document[field] in (value if kind == "terms" else [value]))


def plugin_score(body: dict[str, Any], row: Row, *, absent: float = 0.0) -> float:
    """`threshold > value` is yes; what is absent is 0, or NaN in plugins that know missing values."""
    kind, definition = body["model"]["model"]["type"], parsed(body["model"]["model"]["definition"])
    if kind == "model/linear":
        return float(np.sum([F(weight) * F(row.get(name, 0)) for name, weight in definition.items()], dtype=F))
    assert kind == "model/xgboost+json"
    total = F(0)
    for node in definition:
        while "leaf" not in node:
            assert {"nodeid", "depth", "split", "split_condition", "yes", "no", "missing", "children"} == set(node)
            assert [each["nodeid"] for each in node["children"]] == [node["yes"], node["no"]]
            value = F(row.get(node["split"], absent))
            asked = "missing" if np.isnan(value) else "yes" if F(node["split_condition"]) > value else "no"
            node = next(child for child in node["children"] if child["nodeid"] == node[asked])
        total = F(total + F(node["leaf"]))
    return float(total)


@functools.cache
def parsed(definition: str) -> Any:
    """A definition, which is text within JSON."""
    return json.loads(definition)


# ---- Vespa ----

TOKEN = re.compile(r'\s*("(?:\\.|[^"])*"|\d+(?:\.\d+(?:[eE][-+]?\d+)?)?|[A-Za-z_]\w*|==|>=|[-+*!(),<\[\]])')


class Profile:
    """A rank profile: its functions and the expression of its second phase."""

    def __init__(self, text: str) -> None:
        bare = re.sub(r'"(?:\\.|[^"])*"', "", text)
        assert bare.count("{") == bare.count("}")
        pattern = r"function (\w+)\(\) \{\n\s+expression: (.*)\n\s+\}"
        self.functions = dict(re.findall(pattern, text))
        assert len(self.functions) == bare.count("function ")
        second = re.search(r"second-phase \{\n\s+expression: (.*)\n", text)
        assert second is not None
        self.second = second[1]

    def row(self, document: Document) -> Row:
        """What the functions give, in 64-bit floats."""
        return {
            name: float(Expression(text, document, {}).whole())
            for name, text in self.functions.items()
            if not text.startswith("tensor")
        }

    def cells(self) -> list[str]:
        """Functions that a tensor is made of, in its order."""
        (text,) = (text for text in self.functions.values() if text.startswith("tensor"))
        found = re.findall(r"\{d0:0,d1:(\d+)\}: (\w+)", text)
        assert [int(at) for at, _ in found] == list(range(len(found)))
        assert f"d1[{len(found)}]" in text
        return [name for _, name in found]


class Expression:
    """A ranking expression, evaluated as it is read; comparisons with NaN are false."""

    def __init__(self, text: str, document: Document, row: Row) -> None:
        self.document, self.row = document, row
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            assert found is not None, text[at:]
            self.tokens.append(found[1])
            at = found.end()

    def whole(self) -> Any:
        value = self.compared()
        assert not self.tokens
        return value

    def take(self, *wanted: str) -> str:
        token = self.tokens.pop(0)
        assert not wanted or token in wanted, (token, wanted)
        return token

    def compared(self) -> Any:
        left = self.sum()
        if not self.tokens or self.tokens[0] not in ("==", "<", ">=", "in"):
            return left
        sign = self.take()
        right = list(self.members()) if sign == "in" else self.sum()
        told: dict[str, Callable[[], Any]] = {
            "==": lambda: left == right,
            "<": lambda: left < right,
            ">=": lambda: left >= right,
            "in": lambda: left in right,
        }
        return told[sign]()

    def members(self) -> Iterator[Any]:
        self.take("[")
        while True:
            yield self.sum()
            if self.take(",", "]") == "]":
                return

    def sum(self) -> Any:
        value = self.product()
        while self.tokens and self.tokens[0] in "+-":
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> Any:
        value = self.one()
        while self.tokens and self.tokens[0] == "*":
            self.take()
            value *= self.one()
        return value

    def one(self) -> Any:
        token = self.take()
        if token == "-":
            return -self.one()
        if token.startswith('"'):
            return json.loads(token)
        if token[0].isdigit():
            return float(token)
        if token not in ("if", "isNan", "attribute"):
            return self.row[token]
        self.take("(")
        if token == "attribute":
            name = self.take()
            value = self.document[name]
            given: Any = value if value is not None else "" if name in self.document["texts"] else math.nan
        elif token == "isNan":
            given = math.isnan(self.compared())
        else:
            asked = self.compared()
            self.take(",")
            yes = self.compared()
            self.take(",")
            no = self.compared()
            given = yes if asked else no
        self.take(")")
        return given


def vespa_trees(trees: list[dict[str, Any]], row: Row) -> float:
    """Trees as Vespa imports them: `value < condition`, or `!(value >= condition)` where missing is yes."""
    total = 0.0
    for node in trees:
        while "leaf" not in node:
            value, condition = row[node["split"]], node["split_condition"]
            yes = not value >= condition if node["missing"] == node["yes"] else value < condition
            node = next(each for each in node["children"] if each["nodeid"] == node["yes" if yes else "no"])
        total += node["leaf"]
    return total


# ---- XGBoost itself ----


def xgboost_of(trees: list[dict[str, Any]], names: list[str]) -> Any:
    """A booster of trees as `dump_model` writes them: its own format, with the nodes put in."""
    import xgboost

    seed = xgboost.train({"base_score": 0, "max_depth": 1}, xgboost.DMatrix(np.eye(2), [0, 1]), 1)
    whole = json.loads(bytes(seed.save_raw("json")))
    learner = whole["learner"]
    learner["learner_model_param"]["num_feature"] = str(len(names))
    model = learner["gradient_booster"]["model"]
    model["trees"] = [xgboost_tree(tree, names, at) for at, tree in enumerate(trees)]
    model["tree_info"] = [0] * len(trees)
    model["iteration_indptr"] = list(range(len(trees) + 1))
    model["gbtree_model_param"] = {"num_parallel_tree": "1", "num_trees": str(len(trees))}
    return xgboost.Booster(model_file=bytearray(json.dumps(whole).encode()))


def xgboost_tree(tree: dict[str, Any], names: list[str], number: int) -> dict[str, Any]:
    """The arrays of one tree."""
    ordered, parents = [tree], [2**31 - 1]
    for at, node in enumerate(ordered):  # level by level: XGBoost looks for the right child beside the left one
        ordered += node.get("children", [])
        parents += [at] * len(node.get("children", []))
    place = {node["nodeid"]: at for at, node in enumerate(ordered)}
    split = ["leaf" not in node for node in ordered]
    return {
        "base_weights": [0.0] * len(ordered),
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "default_left": [
            int(is_split and node["missing"] == node["yes"]) for node, is_split in zip(ordered, split, strict=True)
        ],
        "id": number,
        "left_children": [place.get(node.get("yes"), -1) for node in ordered],
        "loss_changes": [0.0] * len(ordered),
        "parents": parents,
        "right_children": [place.get(node.get("no"), -1) for node in ordered],
        "split_conditions": [node.get("split_condition", node.get("leaf")) for node in ordered],
        "split_indices": [
            names.index(node["split"]) if is_split else 0 for node, is_split in zip(ordered, split, strict=True)
        ],
        "split_type": [0] * len(ordered),
        "sum_hessian": [1.0] * len(ordered),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(len(names)),
            "num_nodes": str(len(ordered)),
            "size_leaf_vector": "1",
        },
    }
