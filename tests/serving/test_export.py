"""Exported models, run by evaluators written from what each engine says of itself, score as the models do."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engines import (
    Document,
    Expression,
    Profile,
    Row,
    plugin_row,
    plugin_score,
    read,
    solr_row,
    solr_score,
    vespa_trees,
    xgboost_of,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau
from typer.testing import CliRunner

import unskew
from tests.helpers.every_method import METHODS
from unskew.errors import UnskewError
from unskew.files import read_json
from unskew.learning.methods import PACKAGES
from unskew.learning.rankers import DoublyRobustMLP
from unskew.learning.scoring.model import build
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.export import ENGINES, TARGETS, opensearch, possible, solr, vespa
from unskew.serving.export.forms import Branch, EngineFeature, Form, Leaf, features_of, plain_trees
from unskew.tables.features.encoding import EncodingRules
from unskew.tables.lists.scaling import fit_scaler
from unskew.terminal.flags import known_names
from unskew.terminal.main import app
from unskew.types import Log
from unskew.workflows.runs.data import LogData

torch.set_num_threads(1)
NAN = float("nan")
F = np.float32
TEXTS = ("brand", "size")
KINDS = {
    "trees": "standard",
    "xgboost": "log1p",
    "lightgbm": "minmax",
    "linear": "standard",
    "relu": "minmax",
    "tanh": "none",
    "mlp": "standard",
}
"""Models that are tried, and their scaling."""


def items(count: int, seed: int) -> dict[str, Any]:
    """Numbers of many sizes with gaps, and categories with rare, new and missing values."""
    rng = np.random.default_rng(seed)
    return {
        "price": np.where(rng.random(count) < 0.2, NAN, np.exp(rng.normal(3, 2, count))),
        "tiny": rng.normal(0, 1e-4, count),
        "brand": rng.choice(np.array(["acme", "bolt", "cog", "rare", None], object), count).tolist(),
        "size": rng.choice(["s", "m", "l"], count).tolist(),
        "views": rng.integers(0, 1000, count),
    }


@pytest.fixture(scope="module")
def log() -> Log:
    rng = np.random.default_rng(1)
    table = items(180, seed=0)
    table["brand"][:50] = ["acme"] * 50
    table["brand"] = [
        None if at % 9 == 0 else "odd" if at == 7 else each for at, each in enumerate(table["brand"])
    ]
    liked = 0.3 * (np.array(table["size"]) == "m") + 0.4 * (table["views"] > 400) + 0.2 * np.isnan(table["price"])
    page = np.repeat(np.arange(150), 6)
    shown = np.concatenate([rng.permutation(180) for _ in range(5)])
    pairs = {"query_id": page, "doc_id": shown}
    lists = unskew.read_features({"doc_id": np.arange(180), **table}, candidates=pairs)
    clicks = (rng.random(900) < liked[shown]).astype(int)
    rows = pairs | {"page_id": page, "position": np.tile(np.arange(1, 7), 150), "click": clicks}
    return unskew.log_from_table(rows, lists)


@pytest.fixture(scope="module")
def strangers() -> dict[str, Any]:
    """Documents that training had nothing like."""
    table = items(60, seed=5)
    table["price"][:6] = [0.0, -1e9, 1e9, 3.4e38, 1e-38, NAN]
    table["brand"][:4] = ["new", "acme", None, "odd"]
    table["price"] = table["price"].astype(np.float32)
    return table | {"tiny": table["tiny"].astype(np.float32)}


def learned(log: Log, kind: str, scaling: str = "standard") -> Scorer:
    rules = EncodingRules(most_categories=4, least_share=0.01)
    more: dict[str, Any] = {"scaling": scaling, "encoding": rules, "threads": 1}
    if kind in PACKAGES:
        method = PACKAGES[kind](name=kind, rounds=6, min_data_in_leaf=5)
        return unskew.learn(log, method, validate_on="nothing", **more).model
    ranker = {
        "trees": unskew.rankers.Trees(rounds=6, min_data_in_leaf=5),
        "linear": unskew.rankers.Linear(),
        "mlp": unskew.rankers.MLP(sizes=(8,)),
        "relu": unskew.rankers.MLP(sizes=(8, 4), hidden_norm=False, activation="relu", dropout=0.1),
        "tanh": unskew.rankers.MLP(sizes=(8,), hidden_norm=False, activation="tanh"),
    }[kind]
    rounds = {} if kind == "trees" else {"steps": 40}
    return unskew.learn(log, "naive", ranker=ranker, **rounds, **more).model


@pytest.fixture(scope="module")
def models(log: Log) -> dict[str, Scorer]:
    return {kind: learned(log, kind, scaling) for kind, scaling in KINDS.items()}


def stranger(table: dict[str, Any]) -> list[Document]:
    """The documents as an engine holds them."""

    def plain(value: Any) -> Any:
        missing = value is None or (isinstance(value, float | np.floating) and math.isnan(value))
        return None if missing else value if isinstance(value, str) else float(value)

    names = list(table)
    rows = zip(*(table[name] for name in names), strict=True)
    return [{"texts": TEXTS} | dict(zip(names, map(plain, row), strict=True)) for row in rows]


def edges(scorer: Scorer) -> dict[str, Any]:
    """Documents at every threshold of trees, and a 32-bit float above and below."""
    found: dict[int, set[float]] = {}
    left = list(plain_trees(scorer))
    while left:
        node = left.pop()
        if isinstance(node, Branch):
            near = (node.last, np.nextafter(node.last, F(np.inf)), np.nextafter(node.last, F(-np.inf)))
            found.setdefault(node.feature, set()).update(map(float, near))
            left += [node.left, node.right]
    features = features_of(scorer)
    numbers = {features[at].field: sorted(each) for at, each in found.items() if features[at].kind == "number"}
    assert {"price", "tiny", "views"} == set(numbers)
    longest = max(map(len, numbers.values()))
    table: dict[str, Any] = {
        name: np.array([each[at % len(each)] for at in range(longest)], F) for name, each in numbers.items()
    }
    brands = ["acme", "bolt", "cog", None, "new"]
    return table | {
        "brand": [brands[at % 5] for at in range(longest)],
        "size": ["sml"[at % 3] for at in range(longest)],
    }


def by_engine(to: str, folder: Path, documents: list[Document]) -> list[float]:
    """Scores of documents, by the files of a folder alone."""
    if to == "vespa":
        profile = Profile((folder / "unskew.profile").read_text())
        rows = [profile.row(each) for each in documents]
        if (folder / "unskew_trees.json").exists():
            assert profile.second == 'xgboost("unskew_trees.json")'
            return [vespa_trees(read(folder / "unskew_trees.json"), row) for row in rows]
        if (folder / "model.onnx").exists():
            return [float(each) for each in onnx_scores(folder / "model.onnx", profile.cells(), rows)]
        return [Expression(profile.second, {}, row).whole() for row in rows]
    model = read(folder / "model.json")
    if to == "solr":
        store = read(folder / "feature_store.json")
        return [solr_score(model, solr_row(store, each)) for each in documents]
    body = read(folder / "featureset.json")
    rows = [plugin_row(body, each) for each in documents]
    old, new = ([plugin_score(model, row, absent=absent) for row in rows] for absent in (0.0, NAN))
    assert old == new
    return old


def onnx_scores(path: Path, names: list[str], rows: list[Row]) -> np.ndarray[Any, Any]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    matrix = np.array([[row[name] for name in names] for row in rows], F)
    return np.asarray(session.run(["score"], {"features": matrix})[0])[:, 0]


@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
@pytest.mark.parametrize("to", ENGINES)
@pytest.mark.parametrize("kind", ["trees", "xgboost", "lightgbm"])
def test_trees_score_as_the_model(
    to: str, kind: str, models: dict[str, Scorer], strangers: dict[str, Any], tmp_path: Path
) -> None:
    model = models[kind]
    told = unskew.export(model, to, tmp_path / "out")
    assert told.model == "trees"
    assert (told.inexact_splits or 0) <= 3
    for table in (strangers,) if told.inexact_splits else (strangers, edges(model)):
        found, expected = by_engine(to, tmp_path / "out", stranger(table)), model.score(table)
        np.testing.assert_allclose(found, expected, atol=2e-5)
        assert np.ptp(expected) > 0.05


@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
@pytest.mark.parametrize("to", ENGINES)
@pytest.mark.parametrize("kind", ["linear", "relu", "tanh"])
def test_weights_and_networks_score_as_the_model(
    to: str, kind: str, models: dict[str, Scorer], strangers: dict[str, Any], tmp_path: Path
) -> None:
    if to in ("opensearch", "elasticsearch") and kind != "linear":
        with pytest.raises(UnskewError, match=r"networks do not run there.*lists="):
            unskew.export(models[kind], to, tmp_path / "out")
        return
    if to == "vespa":
        pytest.importorskip("onnx")
    told = unskew.export(models[kind], to, tmp_path / "out")
    assert told.model == {"linear": "linear"}.get(kind, "ONNX" if to == "vespa" else "network")
    usual = {
        name: np.asarray(column, object)[6:].tolist() for name, column in strangers.items()
    }  # 1e38 drowns sums
    found, expected = by_engine(to, tmp_path / "out", stranger(usual)), models[kind].score(usual).astype(float)
    apart = np.asarray(found) - expected
    if kind == "linear" and to != "vespa":
        apart -= apart[0]  # those engines know no constant
    np.testing.assert_allclose(apart, 0, atol=2e-5)
    assert expected.std() > 0.05


@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
def test_xgboost_reads_the_trees_of_the_plugins(
    models: dict[str, Scorer], strangers: dict[str, Any], tmp_path: Path
) -> None:
    xgboost = pytest.importorskip("xgboost")
    unskew.export(models["trees"], "opensearch", tmp_path / "out")
    names = [each["name"] for each in read(tmp_path / "out/features.json")["features"]]
    trees = json.loads(read(tmp_path / "out/model.json")["model"]["model"]["definition"])
    booster = xgboost_of(trees, names)
    for table in (strangers, edges(models["trees"])):
        rows = [plugin_row(read(tmp_path / "out/featureset.json"), each) for each in stranger(table)]
        matrix = np.array([[row.get(name, NAN) for name in names] for row in rows], F)
        np.testing.assert_allclose(
            booster.predict(xgboost.DMatrix(matrix)), models["trees"].score(table), atol=2e-5
        )
    numbers = [at for at, name in enumerate(names) if name in ("price", "tiny", "views")]
    means = {each["name"]: each["fallback"] for each in read(tmp_path / "out/features.json")["features"]}
    filled, matrix = matrix.copy(), matrix.copy()
    matrix[:, numbers], filled[:, numbers] = NAN, [means[names[at]] for at in numbers]
    found = [booster.predict(xgboost.DMatrix(each)) for each in (matrix, filled)]
    np.testing.assert_array_equal(*found)  # a number that no query gives goes where its mean goes


@pytest.mark.parametrize("last", [0.5, 3.0, -2.25, 0.125])
def test_solr_splits_at_plain_numbers(last: float) -> None:
    assert solr.inexact_splits([Branch(0, F(last), Leaf(1.0), Leaf(2.0))]) == 0


NUMBER = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=150, deadline=None)
@example(last=float(F(-0.9999996)), value=0.0, near=1)
@example(last=float(F(-0.9999996)), value=0.0, near=0)
@example(last=0.0, value=0.0, near=1)
@given(last=NUMBER.filter(lambda v: abs(v) < 3e38), value=NUMBER, near=st.sampled_from([None, -1, 0, 1]))
def test_every_value_goes_the_way_of_the_split(last: float, value: float, near: int | None) -> None:
    edge = F(last)
    if near is not None:
        value = float(edge if near == 0 else np.nextafter(edge, F(near * np.inf)))
    tree = Branch(0, edge, Leaf(1.0), Leaf(2.0))
    feature = EngineFeature("x", "x", "number")
    expected = 1.0 if value <= last else 2.0
    form = Form("trees", [tree])
    made = opensearch.files("m", [feature], form)
    row = plugin_row(made["featureset.json"], {"x": value})
    assert plugin_score(made["model.json"], row) == expected
    assert vespa_trees(opensearch.numbered_trees([feature], [tree]), {"x": value}) == expected
    by_solr = solr_score(solr.files("m", [feature], form)["model.json"], {"x": value})
    if not solr.inexact_splits([tree]):
        assert by_solr == expected
    elif by_solr != expected:
        assert abs(value - last) <= max(float(np.spacing(abs(edge))), 1.2e-13)


@settings(max_examples=60, deadline=None)
@given(value=st.text(st.sampled_from('aB"\\ \u00e9,:()[]*?!^~{}-+'), min_size=1, max_size=6))
def test_categories_of_any_letters_are_found(value: str) -> None:
    features = [
        EngineFeature("is_value", "own brand", "value", (value,), category=True),
        EngineFeature("is_other", "own brand", "other", (value, "b"), category=True),
        EngineFeature("is_missing", "own brand", "missing", category=True),
    ]
    store = solr.files("m", features, Form("trees", []))["feature_store.json"]
    body = opensearch.feature_set("m", features, set())
    profile = Profile(vespa.profile("m", features, "is_value"))
    for given_value, expected in (
        (value, [1, 0, 0]),
        (f"{value}!x", [0, 1, 0]),
        ("b", [0, 0, 0]),
        (None, [0, 0, 1]),
    ):
        document = {"own brand": given_value, "own_brand": given_value, "texts": ("own_brand",)}
        for row in (solr_row(store, document), plugin_row(body, document), profile.row(document)):
            assert [row.get(each.name, 0.0) for each in features] == expected


def test_inexact_splits_of_solr_are_counted() -> None:
    tree = Branch(0, F(1e-20), Leaf(1.0), Leaf(2.0))
    assert solr.inexact_splits([tree]) == 1
    assert solr.inexact_splits([Branch(0, F(0.5), Leaf(1.0), tree)]) == 1
    assert solr.inexact_splits([Branch(0, F(-12345.678), Leaf(1.0), Leaf(0.0))]) == 0


@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
def test_networks_are_distilled_and_say_how_faithful_they_are(
    models: dict[str, Scorer], log: Log, strangers: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UnskewError, match=r"units are elu.*normalises layers.*lists="):
        unskew.export(models["mlp"], "solr", tmp_path / "out")
    told = unskew.export(models["mlp"], "opensearch", tmp_path / "out", lists=log.lists)
    assert told.fidelity.lists == 150
    assert told.why == "networks do not run there"
    found = by_engine("opensearch", tmp_path / "out", stranger(strangers))
    new = kendalltau(found[6:], models["mlp"].score(strangers)[6:]).statistic
    assert told.fidelity.kendall_tau == pytest.approx(
        new, abs=0.1
    )  # what is told holds for documents that are new
    assert told.fidelity.kendall_tau > 0.5
    assert told.fidelity.kendall_tau < told.fidelity.ndcg < 1


# ---- ONNX and Vespa ----


@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
@pytest.mark.parametrize("scaling", ["none", "standard", "log1p"])
def test_onnx_stands_alone(scaling: str, log: Log, strangers: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    model = learned(log, "mlp", scaling)
    unskew.export(model, "onnx", tmp_path / "model.onnx")
    names = [each["name"] for each in read(tmp_path / "model.onnx.features.json")["features"]]
    usual = {name: np.asarray(column, object)[6:].tolist() for name, column in strangers.items()}
    store = solr.files("m", features_of(model), Form("trees", []))["feature_store.json"]
    rows = [solr_row(store, each) for each in stranger(usual)]
    found = onnx_scores(tmp_path / "model.onnx", names, rows)
    np.testing.assert_allclose(found, model.score(usual), atol=1e-5, rtol=1e-4)


def test_a_run_folder_without_a_graph_gets_one(models: dict[str, Scorer], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    models["mlp"].save(tmp_path / "run")
    first = (tmp_path / "run/model.onnx").read_bytes()
    about = read_json(tmp_path / "run/model.json")
    del about["no_onnx"], about["files"]["model.onnx"]
    (tmp_path / "run/model.json").write_text(json.dumps(about))
    (tmp_path / "run/model.onnx").unlink()
    unskew.load(tmp_path / "run")
    unskew.export(tmp_path / "run", "onnx")
    assert (tmp_path / "run/model.onnx").read_bytes() == first
    unskew.load(tmp_path / "run")
    models["trees"].save(tmp_path / "trees")
    with pytest.raises(UnskewError, match="own package"):
        unskew.export(tmp_path / "trees", "onnx")


# ---- what goes where ----

DOCS = Path(__file__).parents[2] / "docs/how_to/export.md"
ROWS = {
    "ranker `linear`": "linear",
    "ranker `trees`, methods `lightgbm`, `lightgbm_position`": "trees lightgbm",
    "methods `xgboost`, `xgboost_unbiased`": "xgboost",
    "ranker `mlp`": "mlp",
    "ranker `mlp` with `hidden_norm = false` and an `activation` but `elu`": "relu tanh",
}


def word(told: str) -> str:
    """How a model goes, as the documentation says it."""
    return {"exactly": "yes", "with --lists, distilled into trees": "distilled"}.get(told.partition(":")[0], "no")


def test_the_table_of_the_documentation_holds(models: dict[str, Scorer]) -> None:
    pytest.importorskip("onnx")
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("|")][:7]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert [row[0] for row in rows] == list(ROWS)
    for what, *cells in rows:
        for kind in ROWS[what].split():
            told = possible(models[kind])
            for targets, cell in zip(head[1:], cells, strict=True):
                for to in targets.replace("`", "").split(", "):
                    assert word(told[to]) == cell, (kind, to, told[to])


@pytest.mark.filterwarnings("ignore:examination from rank")
def test_methods_that_only_distill_are_those_documented() -> None:
    pytest.importorskip("onnx")
    lists = unskew.make_lists(queries=4, features=4, documents=(4, 4), seed=1)
    log = unskew.simulate(lists, "position", pages=60, seed=2, randomized=0.5)
    scaler = fit_scaler("standard", lists)
    found = set()
    for name in METHODS:
        config = METHODS[name](
            **({"propensity": [1.0, 0.5, 0.3, 0.2]} if name in ("ipw", "doubly_robust") else {})
        )
        ranker = DoublyRobustMLP(tracked=2) if name == "approximated_dr" else unskew.rankers.Linear()
        told = possible(build(config, ranker, scaler, 4, LogData(log).context(config)))
        assert word(told["onnx"]) == ("yes" if word(told["opensearch"]) == "yes" else "no"), name
        found |= {name} if word(told["opensearch"]) == "distilled" else set()
    assert found == {"approximated_dr", "doubly_robust", "vectorization"}
    (line,) = (line for line in DOCS.read_text().splitlines() if "`approximated_dr`" in line)
    assert all(f"`{name}`" in line for name in found)


@pytest.mark.parametrize(("kind", "scaling"), [("linear", "log1p"), ("relu", "log1p"), ("trees", "query_minmax")])
def test_scalings_that_cannot_be_worked_in_say_so(kind: str, scaling: str, log: Log, tmp_path: Path) -> None:
    model = learned(log, kind, scaling)
    with pytest.raises(UnskewError, match=rf"solr cannot run this model: scaling {scaling}.*lists="):
        unskew.export(model, "solr", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- the command ----


def test_the_command_says_what_is_possible_and_what_is_wrong(models: dict[str, Scorer], tmp_path: Path) -> None:
    models["mlp"].save(tmp_path / "run")
    run = str(tmp_path / "run")
    told = json.loads(CliRunner().invoke(app, ["export", run, "--json"]).stdout)
    assert list(told) == list(TARGETS)
    assert told["vespa"] == "exactly: ONNX"
    assert "not a sum of trees" in told["lightgbm"]
    for words, said in (
        (["--to", "solr"], "--out"),
        (["--out", "x"], "say in which form: --to lightgbm"),
        (["--to", "solrr", "--out", "x"], "Did you mean solr?"),
        (["--to", "lightgbm", "--out", str(tmp_path / "x")], "not a sum of trees"),
        (["--to", "vespa", "--out", "x", "--rows", run], "--rows is for --to propensities, not for vespa"),
        (["--to", "quepid", "--out", "x"], "grades come of clicks"),
    ):
        done = CliRunner().invoke(app, ["export", run, *words])
        assert done.exit_code != 0
        assert said in f"{done.output} {done.exception}"
    assert known_names("exports") == list(TARGETS)
