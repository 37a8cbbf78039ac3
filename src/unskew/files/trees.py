"""Model files of LightGBM and XGBoost, checked before a native parser sees them, which not every file lets live.

Both packages believe what a file says of its own lengths and places: a damaged one ends the process, or is read
into memory that is not the model's. So the text is read here first: its size, its depth, every length, and that
the nodes of every tree are a tree over features that there are. Only then does the package read it. What is not
known to be of our writing is read by another process before, whose end is an error and not ours.

Linear leaves, boosters other than trees, and splits of XGBoost by category are refused; nothing here makes them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.files.reading import read_text

LARGEST_TREES = 128 * 2**20
"""Bytes of a file of trees."""
DEEPEST = 32
"""Brackets within brackets; XGBoost's own models have 7."""
MOST_FEATURES = 10**7
PATIENCE = 120
"""Seconds that another process may take to read a model that is not ours."""
NodeNumbers = NDArray[np.int64]
_NUMBER = re.compile(r"[-+0-9.eEinfa]+(?: [-+0-9.eEinfa]+)*")
_TRY = {
    "lightgbm": "import lightgbm, sys; lightgbm.Booster(model_str=open(sys.argv[1], encoding='utf-8').read())",
    "xgboost": "import xgboost, sys; xgboost.Booster().load_model(bytearray(open(sys.argv[1], 'rb').read()))",
}


_HEAD = {"version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx"}
_HEAD |= {"feature_names", "feature_infos", "tree_sizes"}
_TREE = {"num_leaves", "num_cat", "leaf_value", "is_linear", "shrinkage"}
_SPLITS = {"split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child"}
_SPLITS |= {"internal_value", "internal_weight", "internal_count", "leaf_weight", "leaf_count"}
_TAIL = re.compile(
    r"end of trees\n(?:\nfeature_importances:\n(?:[^\n=]+=[0-9.e+-]+\n)*)?"
    r"(?:\nparameters:\n(?:\[[A-Za-z0-9_]+: [^\n\]]*\]\n)*\nend of parameters\n)?"
    r"\n(?:pandas_categorical:null\n)?\n*"
)
_SETS = {"cat_boundaries", "cat_threshold"}


def read_trees(path: Path) -> str:
    """The text of a file of trees, which is not too large."""
    return read_text(path, LARGEST_TREES)


def check_lightgbm(text: str, path: Path | None = None) -> None:
    """Refuse a text that is no whole LightGBM model."""
    try:
        head, _, _ = text.partition("\n\nTree=0\n")
        lines = head.split("\n")
        about = _fields(lines[1:])
        _must(lines[0] == "tree" and "\0" not in text, "its head")
        _must(about.keys() - {"average_output", "monotone_constraints", "objective"} == _HEAD, "its head")
        features = _whole(about, "max_feature_idx") + 1
        _must(0 < features <= MOST_FEATURES and _whole(about, "num_tree_per_iteration") == 1, "features")
        _must(_whole(about, "num_class") == 1 and _whole(about, "label_index") >= 0, "its head")
        for name in ("feature_names", "feature_infos"):
            _must(len(about[name].split(" ")) == features, name)
        start = len(head) + 2
        for number, size in enumerate(about["tree_sizes"].split(" ")):
            block = text[start : start + int(size)]
            _must(block.startswith(f"Tree={number}\n") and block.endswith("\n\n\n"), "tree_sizes")
            _lightgbm_tree(_fields(block.rstrip("\n").split("\n")[1:]), features)
            start += int(size)
        _must(_TAIL.fullmatch(text, start) is not None, "what comes after its trees")
    except (ValueError, KeyError, OverflowError) as error:
        raise DataError(f"not a whole LightGBM model ({_why(error)})", path=path) from error


def _lightgbm_tree(tree: Mapping[str, str], features: int) -> None:
    """The arrays of a tree have its lengths, and its nodes are a tree."""
    leaves, categories = _whole(tree, "num_leaves"), _whole(tree, "num_cat")
    wanted = _TREE | (_SPLITS if leaves > 1 else set()) | (_SETS if categories else set())
    optional = _SPLITS if leaves == 1 else set()
    _must(wanted <= tree.keys() <= wanted | optional, "a tree")
    _must(leaves > 0 and categories >= 0 and tree["is_linear"] == "0", "leaves")
    _must(len(_numbers(tree, "leaf_value")) == leaves and len(_numbers(tree, "shrinkage")) == 1, "leaf_value")
    if leaves == 1:
        others = [tree.get(name, "") for name in _SPLITS]
        _must(not categories and all(re.fullmatch(r"[0-9.e+-]*", value) for value in others), "a tree of one leaf")
        return
    arrays = {name: _numbers(tree, name) for name in _SPLITS}
    _must(all(len(values) == leaves - ("leaf" not in name) for name, values in arrays.items()), "lengths")
    split, threshold, kind = (arrays[name] for name in ("split_feature", "threshold", "decision_type"))
    _must(bool(((split >= 0) & (split < features)).all() and ((kind >= 0) & (kind < 16)).all()), "split_feature")
    children = np.stack([arrays["left_child"], arrays["right_child"]], 1).astype(np.int64)
    _must(bool((children > np.arange(leaves - 1)[:, None])[children >= 0].all()), "a child before its parent")
    _each_once(np.where(children >= 0, children, leaves - 2 - children), np.arange(1, 2 * leaves - 1))
    sets = threshold[(kind.astype(np.int64) & 1) == 1]
    _must(bool(((sets >= 0) & (sets < categories)).all()), "categories")
    if categories:
        bounds = _numbers(tree, "cat_boundaries")
        _must(
            len(bounds) == categories + 1 and bounds[0] == 0 and bool((np.diff(bounds) >= 0).all()), "categories"
        )
        _must(len(_numbers(tree, "cat_threshold")) == bounds[-1], "cat_threshold")


def check_xgboost(text: str, path: Path | None = None) -> None:
    """Refuse a text that is no whole XGBoost model of trees, as JSON."""
    try:
        _must(_depth(text.encode()) <= DEEPEST, "its brackets are too deep")
        learner = json.loads(text, object_pairs_hook=_unique)["learner"]
        features, booster = int(learner["learner_model_param"]["num_feature"]), learner["gradient_booster"]
        groups = max(int(learner["learner_model_param"]["num_class"]), 1)
        _must(booster["name"] == "gbtree" and 0 < features <= MOST_FEATURES, "not trees")
        model = booster["model"]
        trees, count = model["trees"], int(model["gbtree_model_param"]["num_trees"])
        _must(len(trees) == len(model["tree_info"]) == count, "num_trees")
        _must(all(0 <= int(group) < groups for group in model["tree_info"]), "tree_info")
        bounds = np.asarray(model.get("iteration_indptr", [0, count]), np.int64)
        _must(bounds[0] == 0 and bounds[-1] == count and bool((np.diff(bounds) >= 0).all()), "iteration_indptr")
        for tree in trees:
            _xgboost_tree(tree, features)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(f"not a whole XGBoost model ({_why(error)})", path=path) from error


def _xgboost_tree(tree: Mapping[str, Any], features: int) -> None:
    """The arrays of a tree have its lengths, and its nodes are a tree."""
    about = tree["tree_param"]
    nodes = int(about["num_nodes"])
    _must(nodes > 0 and int(about["num_deleted"]) == 0 and int(about["size_leaf_vector"]) <= 1, "tree_param")
    _must(int(about["num_feature"]) == features and not any(tree["split_type"]), "splits by category")
    named = ("base_weights", "default_left", "loss_changes", "split_conditions", "sum_hessian", "split_type")
    _must(all(len(np.asarray(tree[name], np.float64)) == nodes for name in named), "lengths")
    numbered = ("left_children", "right_children", "parents", "split_indices")
    left, right, parents, split = (np.asarray(tree[name], np.int64) for name in numbered)
    _must(all(values.shape == (nodes,) for values in (left, right, parents, split)), "lengths")
    _must(not any(tree.get(name) for name in tree if name.startswith("categories")), "splits by category")
    inner = left != -1
    _must(bool(((right != -1) == inner).all()), "children")
    _must(bool(((split >= 0) & (split < features)).all()), "split_indices")
    children = np.stack([left[inner], right[inner]], 1)
    _each_once(children, np.arange(1, nodes))
    _must(bool((parents[children] == np.flatnonzero(inner)[:, None]).all()), "parents")
    _reached(left, right, nodes)


def _reached(left: NodeNumbers, right: NodeNumbers, nodes: int) -> None:
    """Every node is reached from the first: there is no ring apart."""
    level, seen = np.array([0]), 0
    while len(level):
        seen += len(level)
        level = np.concatenate([left[level], right[level]])
        level = level[level >= 0]
    _must(seen == nodes, "nodes that nothing leads to")


def _each_once(found: NodeNumbers, wanted: NodeNumbers) -> None:
    _must(np.array_equal(np.sort(found, axis=None), wanted), "nodes that are no tree")


def tried_apart(package: Literal["lightgbm", "xgboost"], path: Path) -> None:
    """Let another process read a file of trees that may not be ours; where it does not live, this one does."""
    command = [sys.executable, "-c", _TRY[package], str(path.resolve())]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise DataError(f"{package} does not come to an end with it", path=path) from None
    if done.returncode < 0:
        raise DataError(f"{package} does not survive reading it (signal {-done.returncode})", path=path)
    if done.returncode > 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise DataError(f"{package} cannot read it: {said[-1][:200]}", path=path)


# ---- parts ----


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """name=value lines by name, each once."""
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        _must(name not in found and (bool(equals) or name == "average_output"), f"the line {line[:40]!r}")
        found[name] = value
    return found


def _numbers(tree: Mapping[str, str], name: str) -> NDArray[np.float64]:
    _must(_NUMBER.fullmatch(tree[name]) is not None, name)
    return np.array(tree[name].split(" "), np.float64)


def _whole(tree: Mapping[str, str], name: str) -> int:
    _must(re.fullmatch(r"-?[0-9]{1,12}", tree[name], re.ASCII) is not None, name)
    return int(tree[name])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names differ; of two of a name, parsers do not take the same one."""
    found = dict(pairs)
    _must(len(found) == len(pairs), "a name twice")
    return found


def _depth(text: bytes) -> int:
    """How deep brackets lie in brackets, outside of strings.

    >>> _depth(b'{"a[[": [1, [2]]}')
    3
    """
    signs, level, deepest = re.sub(rb'"(?:[^"\\]|\\.)*+"?', b"", text, flags=re.DOTALL), 0, 0
    for start in range(0, len(signs), 2**20):
        part = np.frombuffer(signs[start : start + 2**20], np.uint8)
        levels = level + np.cumsum(np.isin(part, list(b"[{")) * 1 - np.isin(part, list(b"]}")) * 1)
        level, deepest = int(levels[-1]), max(deepest, int(levels.max()))
    return deepest


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _why(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)[:100] or type(error).__name__
