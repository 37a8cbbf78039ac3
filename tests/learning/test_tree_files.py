"""Files of trees that are damaged or not ours never end the process: they are checked, and tried in another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.errors import DataError, RunError
from unskew.files import digest_of, read_json, trees
from unskew.files.trees import check_lightgbm, check_xgboost, read_trees, tried_apart
from unskew.learning.scoring.scorer import MODEL
from unskew.types import Log

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
CHECKS = {"lightgbm": check_lightgbm, "xgboost": check_xgboost}
OPEN, QUOTED = "[" * 10**6, '{"' * 10**6
DEEP = '{"learner":' + '{"a":' * 100_000 + "1" + "}" * 100_001


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    features = rng.random((200, 3))
    features[:, 2] = rng.integers(5, size=200)
    return features, features[:, 0] + (features[:, 1] > 0.5) + (features[:, 2] == 3)


def grown(kind: str = "plain") -> str:
    """The text of a LightGBM model."""
    features, target = data()
    settings = {"num_leaves": 4, "verbosity": -1, "min_data_in_leaf": 5, "num_threads": 1}
    settings |= {"min_data_in_leaf": 500} if kind == "one leaf" else {}
    settings |= {"objective": "none"} if kind == "own objective" else {}
    categories = {"categorical_feature": [2]} if kind == "categories" else {}
    table = lightgbm.Dataset(features, target, **categories)
    booster = lightgbm.Booster(settings, table)
    for _ in range(3):
        own = {"fobj": lambda scores, _: (scores - target, np.ones(200))} if kind == "own objective" else {}
        booster.update(**own)
    return str(booster.model_to_string())


def grown_xgboost() -> str:
    features, target = data()
    booster = xgboost.train({"max_depth": 2, "nthread": 1}, xgboost.DMatrix(features, target, nthread=1), 2)
    raw: bytearray = booster.save_raw("json")
    return raw.decode()


TEXTS = {"lightgbm": grown, "xgboost": grown_xgboost}


@pytest.mark.parametrize("kind", ["plain", "one leaf", "own objective", "categories"])
def test_what_lightgbm_writes_is_read(kind: str) -> None:
    text = grown(kind)
    check_lightgbm(text)
    again = lightgbm.Booster(model_str=text)
    check_lightgbm(again.model_to_string())
    check_lightgbm(again.model_to_string(num_iteration=1))


def test_what_xgboost_writes_is_read() -> None:
    check_xgboost(grown_xgboost())


@pytest.mark.parametrize("package", CHECKS)
@pytest.mark.parametrize("text", ["", "{}", "[]", "tree\n\nTree=0\n", "\0" * 100, "null", DEEP, OPEN, QUOTED])
def test_known_killers_are_refused(package: str, text: str) -> None:
    with pytest.raises(DataError, match="not a whole"):
        CHECKS[package](text)


@pytest.mark.parametrize("package", CHECKS)
def test_every_cut_is_refused(package: str) -> None:
    text = TEXTS[package]()
    end = text.index("pandas_categorical") if package == "lightgbm" else len(text)  # LightGBM needs not that line
    for length in range(0, end - 1, 37):
        with pytest.raises(DataError, match="not a whole"):
            CHECKS[package](text[:length])


@pytest.mark.parametrize(
    ("package", "old", "new", "what"),
    [
        ("lightgbm", "split_feature=", "split_feature=9 ", "tree_sizes|lengths"),
        ("lightgbm", "left_child=", "left_child=0 ", "tree_sizes|lengths"),
        ("lightgbm", "tree_sizes=", "tree_sizes=9", "tree_sizes"),
        ("lightgbm", "num_leaves=4", "num_leaves=9", "tree_sizes|leaf_value"),
        ("lightgbm", "num_cat=0", "num_cut=0", "num_cat|a tree"),
        ("lightgbm", "max_feature_idx=2", "max_feature_idx=9", "feature_names"),
        ("lightgbm", "[verbosity: -1]", "[verbosity; -1]", "after its trees"),
        ("xgboost", '"num_trees":"2"', '"num_trees":"3"', "num_trees"),
        ("xgboost", '"left_children":[1,3', '"left_children":[0,3', "no tree"),
        ("xgboost", '"split_indices":[', '"split_indices":[7,', "lengths"),
        ("xgboost", '"num_nodes":"7"', '"num_nodes":"8"', "lengths"),
        ("xgboost", '"num_feature":"3"', '"num_feature":"1"', "split_indices"),
        ("xgboost", '"name":"gbtree"', '"name":"dart"', "not trees"),
        ("xgboost", '"id":0', '"id":0,"id":0', "twice"),
    ],
)
def test_what_does_not_fit_is_said(package: str, old: str, new: str, what: str) -> None:
    text = TEXTS[package]()
    assert old in text
    with pytest.raises(DataError, match=what):
        CHECKS[package](text.replace(old, new))


@pytest.mark.parametrize(
    ("name", "number", "what"), [("split_feature", "9", "split_feature"), ("left_child", "0", "child")]
)
def test_numbers_of_the_same_length_are_checked(name: str, number: str, what: str) -> None:
    text = grown()
    at = text.index(f"{name}=") + len(name) + 1
    assert text[at].isdigit()
    with pytest.raises(DataError, match=what):
        check_lightgbm(text[:at] + number + text[at + 1 :])


def test_nodes_in_a_ring_are_refused() -> None:
    model = json.loads(grown_xgboost())
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["left_children"], tree["right_children"] = [-1, 2, 1, -1, -1, -1, -1], [-1, 3, 4, -1, -1, -1, -1]
    with pytest.raises(DataError, match=r"no tree|nothing leads to|parents"):
        check_xgboost(json.dumps(model))


FUZZ = """
import random, sys, numpy as np, lightgbm, xgboost
from unskew.files.trees import check_lightgbm, check_xgboost
from unskew.errors import DataError
random.seed(7)
rows, counts = np.random.default_rng(0).random((5, 3)), [0, 0, 0]
for package, check in (("lightgbm", check_lightgbm), ("xgboost", check_xgboost)):
    whole = open(f"{sys.argv[1]}/{package}", "rb").read()
    for _ in range(int(sys.argv[2])):
        text = bytearray(whole)
        for _ in range(random.choice([1, 1, 2, 4])):
            at = random.randrange(len(text))
            if random.random() < 0.5:
                text[at] ^= 1 << random.randrange(8)
            elif random.random() < 0.5:
                text[at] = random.choice(b"0123456789-. =[]{},")
            else:
                del text[at : at + random.randrange(1, 60)]
        try:
            check(text.decode())
        except (DataError, UnicodeDecodeError):
            counts[0] += 1
            continue
        try:
            if package == "lightgbm":
                lightgbm.Booster(model_str=text.decode()).predict(rows, num_threads=1)
            else:
                booster = xgboost.Booster({"nthread": 1})
                booster.load_model(text)
                booster.predict(xgboost.DMatrix(rows, nthread=1))
            counts[1] += 1
        except (lightgbm.basic.LightGBMError, xgboost.core.XGBoostError, ValueError):
            counts[2] += 1
print(*counts)
"""


def test_what_passes_the_check_does_not_end_the_process(tmp_path: Path) -> None:
    tries = 400
    for package, text in TEXTS.items():
        (tmp_path / package).write_text(text())
    command = [sys.executable, "-c", FUZZ, str(tmp_path), str(tries)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
    refused, read, _ = map(int, done.stdout.splitlines()[-1].split())
    assert refused > tries
    assert read > 0


def test_another_process_tries_what_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for package, text in TEXTS.items():
        path.write_text(text())
        tried_apart(package, path)  # type: ignore[arg-type]
    path.write_text(DEEP)
    with pytest.raises(DataError, match=r"xgboost does not survive reading it .signal"):
        tried_apart("xgboost", path)


def test_files_of_trees_have_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "trees_0.txt"
    with path.open("wb") as file:
        file.truncate(trees.LARGEST_TREES + 1)  # takes no room
    with pytest.raises(DataError, match=r"trees_0.txt: 134,217,729 bytes, where a file of this kind has"):
        read_trees(path)


# ------------------------------------------------------------------------------------------- models


@pytest.fixture(scope="module")
def log() -> Log:
    lists = unskew.make_lists(queries=30, features=5, documents=6, seed=0)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=200, seed=0, logger="random")


@pytest.mark.parametrize(("method", "file"), [("lightgbm", "trees_0.txt"), ("xgboost", "trees_0.json")])
def test_what_was_changed_is_told_and_what_is_not_ours_is_tried_apart(
    method: str, file: str, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr("unskew.learning.boosters.tried_apart", lambda package, path: tried.append(path.name))
    done = unskew.learn(log, method, threads=1, validate_on="nothing")
    done.save(tmp_path / "model")
    place, card = tmp_path / "model", tmp_path / "model" / "model.json"
    scores = unskew.load(place).score(log.lists)
    assert not tried
    content = read_json(card)
    assert content["files"] == {path.name: digest_of(path) for path in MODEL.files(place)}
    card.write_text(json.dumps({name: value for name, value in content.items() if name != "files"}))
    np.testing.assert_array_equal(unskew.load(place).score(log.lists), scores)
    assert tried == [file]
    card.write_text(json.dumps(content))
    for name in (file, "weights.safetensors"):
        whole = bytearray((place / name).read_bytes())
        whole[-7] ^= 1
        (place / name).write_bytes(whole)
        with pytest.raises(RunError, match=rf"{name}: damaged, it is not what was written"):
            unskew.load(place)
        whole[-7] ^= 1
        (place / name).write_bytes(whole)
    card.write_text(json.dumps(content | {"files": {"../../etc/passwd": "0"}}))
    with pytest.raises(RunError, match="which models do not have"):
        unskew.load(place)
