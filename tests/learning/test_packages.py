"""LightGBM and XGBoost as methods: their trees, in models, run files and on the command line."""

from __future__ import annotations

import importlib
import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import unskew
from tests.helpers.asked import settings
from unskew.errors import ConfigError, DataError, MissingExtra, RunError
from unskew.learning.fitting.loop import Progress
from unskew.learning.fitting.packages import grow, page_groups
from unskew.learning.methods import LEARNERS, METHODS, PACKAGES, PackageConfig
from unskew.learning.scoring.scorer import TreeScorer
from unskew.logs.log import write_log
from unskew.measuring import ndcg_metric
from unskew.tables.lists.letor import write_letor
from unskew.tables.lists.scaling import fit_scaler
from unskew.terminal.main import app
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.data import LogData, split
from unskew.workflows.runs.fitters import NetworkFitter, PackageFitter
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.run import run

torch.set_num_threads(1)

SMALL: dict[str, Any] = {"rounds": 6, "leaves": 4, "min_data_in_leaf": 2}
ENDINGS = {"lightgbm": "txt", "lightgbm_position": "txt", "xgboost": "json", "xgboost_unbiased": "json"}


@pytest.fixture(autouse=True)
def _need_packages() -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")


@pytest.fixture(scope="module")
def log() -> Log:
    lists = unskew.make_lists(queries=20, features=5, documents=(3, 9), seed=3)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=600, seed=4, cutoff=6)


@pytest.fixture(scope="module")
def fresh() -> Lists:
    return unskew.make_lists(queries=15, features=5, documents=(3, 9), seed=8)


def small(name: str, **changes: Any) -> PackageConfig:
    return PACKAGES[name](**(SMALL | changes))


def grown(name: str, log: Log, chosen_by: Lists | Log | None = None, seed: int = 0, **options: Any) -> TreeScorer:
    """The package's trees, without the rest of a run."""
    training = unskew.Training(seed=seed, threads=1)
    return grow(PACKAGES[name](**options), fit_scaler("none", log.lists), log, chosen_by, training)


def predicted(name: str, model: TreeScorer, features: Array) -> Array:
    """What the package itself says, by its own words."""
    booster, rounds = model.trees.boosters[0], model.trees.kept[0]
    if name.startswith("lightgbm"):
        return booster.predict(features, num_iteration=rounds).astype(np.float32)
    library = importlib.import_module("xgboost")
    return booster.predict(library.DMatrix(features), iteration_range=(0, rounds))


def test_packages_are_learners_and_no_losses() -> None:
    assert list(PACKAGES) == list(ENDINGS)
    assert set(LEARNERS) == {*METHODS, *PACKAGES}
    assert not set(METHODS) & set(PACKAGES)
    for name, config in PACKAGES.items():
        assert config().name == name
        assert config.model_validate({"name": name}) == config()
        assert getattr(unskew.methods, config.__name__) is config
        with pytest.raises(ValueError, match="name"):
            config.model_validate({"name": "other"})
        with pytest.raises(ValueError, match="frozen"):
            config().rounds = 3  # type: ignore[misc]
    module = inspect.getmodule(unskew.methods.LightGBM)
    assert module is not None
    assert "Reference: " in (module.__doc__ or "")
    assert len(inspect.getsource(module).splitlines()) < 150


# ------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("name", PACKAGES)
def test_a_model_has_the_trees_of_its_package(name: str, log: Log, fresh: Lists, tmp_path: Path) -> None:
    model = unskew.learn(log, small(name), validation=fresh, seed=3, threads=1)
    expected = grown(name, log, fresh, 3, **SMALL)
    scores = model.score(fresh)
    assert np.ptp(scores) > 0
    assert np.array_equal(scores, expected.score(fresh))
    np.testing.assert_allclose(scores, predicted(name, expected, fresh.features), rtol=1e-6)
    assert isinstance(model.model, TreeScorer)
    assert model.model.trees.kept == expected.trees.kept
    first = slice(0, int(fresh.offsets[1]))
    assert np.array_equal(model.rank(fresh.features[first]), np.argsort(-scores[first], kind="stable"))
    assert model.propensity() is None
    assert unskew.measure_ranking(scores, fresh).means["ndcg@10"] > 0
    model.save(tmp_path / "model")
    again = unskew.load(tmp_path / "model")
    assert np.array_equal(again.score(fresh), scores)
    assert isinstance(again, TreeScorer)
    assert (again.card.method, again.card.ranker) == (small(name).model_dump(mode="json"), None)
    files = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert files == ["model.json", f"trees_0.{ENDINGS[name]}", "weights.safetensors"]
    again.save(tmp_path / "copy")
    assert np.array_equal(unskew.load(tmp_path / "copy").score(fresh), scores)


@pytest.mark.parametrize("name", PACKAGES)
def test_held_out_clicks_choose_the_number_of_trees(name: str, log: Log, fresh: Lists) -> None:
    asked = settings(small(name), None, None, None, {"seed": 5, "threads": 1, "validate_on": "clicks"}, None)
    data = split(log, None, asked)
    assert data.held_out is not None
    done = run(asked, data)
    model, fit = done.model, done.fit
    expected = grown(name, data.train, data.held_out, 5, **SMALL)
    assert np.array_equal(model.score(fresh), expected.score(fresh))
    assert (fit.step, fit.best_step, fit.status) == (expected.trees.kept[0], expected.trees.kept[0], "finished")
    pages = data.held_out
    values = ndcg_metric(expected.score(pages.lists)[pages.row], pages.click, offsets=pages.offsets, at=10)
    assert fit.best == pytest.approx(np.nanmean(values))
    by_log = unskew.learn(data.train, small(name), validation=data.held_out, seed=5, threads=1)
    assert np.array_equal(by_log.score(fresh), model.score(fresh))
    every = unskew.learn(log, small(name), seed=5, threads=1)  # nothing given to choose by
    whole = grown(name, log, None, 5, **SMALL)
    assert whole.trees.kept == [6]
    assert np.array_equal(every.score(fresh), whole.score(fresh))


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("turned", [False, True])
def test_as_many_trees_are_kept_as_validation_lists_like_best(
    name: str, turned: bool, log: Log, fresh: Lists
) -> None:
    """nDCG@10 after every tree, by our metric; with grades turned round few trees are best."""
    grades = fresh.labels.max() - fresh.labels if turned else fresh.labels
    lists = replace(fresh, labels=grades)
    whole = grown(name, log, None, 5, **SMALL)
    found = []
    for trees in range(1, 7):
        scores = replace(whole, trees=replace(whole.trees, kept=[trees])).score(lists)
        found.append(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))
    kept = grown(name, log, lists, 5, **SMALL).trees.kept[0]
    assert found[kept - 1] == pytest.approx(max(found), abs=1e-9)
    assert max(found) - min(found) > 1e-3
    if turned:
        assert kept < 6


@pytest.mark.parametrize("name", PACKAGES)
def test_labels_are_never_read(name: str, log: Log) -> None:
    garbage = np.random.default_rng(1).integers(-7, 99, len(log.lists.labels)).astype(np.int16)
    poisoned = replace(log, lists=replace(log.lists, labels=garbage))
    honest, other = (unskew.learn(part, small(name), threads=1).score(log.lists) for part in (log, poisoned))
    assert np.array_equal(honest, other)


@pytest.mark.parametrize("name", ["lightgbm_position", "xgboost_unbiased"])
def test_a_name_will_do_and_a_scaling_is_heeded(name: str, log: Log, fresh: Lists) -> None:
    by_name = unskew.learn(log, name, validation=fresh, threads=1)
    assert by_name.model.card.method == PACKAGES[name]().model_dump(mode="json")
    assert by_name.model.scaler.kind == "none"
    scaled = unskew.learn(log, small(name), scaling="query_minmax", validation=fresh, threads=1)
    scaler = scaled.model.scaler
    assert scaler.kind == "query_minmax"
    there = replace(log, lists=scaler.apply(log.lists))
    expected = grown(name, there, scaler.apply(fresh), 0, **SMALL)
    assert np.array_equal(scaled.score(fresh), expected.score(scaler.apply(fresh)))


def test_patience_seed_and_progress(log: Log, fresh: Lists) -> None:
    told: list[Progress] = []
    asked = settings(small("lightgbm", rounds=200, patience=2), None, None, None, {"threads": 1}, fresh)
    done = run(asked, LogData(log, None, fresh), report=told.append)
    model, fit = done.model, done.fit
    assert fit.step < asked.steps == told[0].step == 200
    patient = grown("lightgbm", log, fresh, **(SMALL | {"rounds": 200, "patience": 2}))
    assert patient.trees.kept == [fit.step]
    assert (
        fit.best
        == told[0].metric
        == pytest.approx(unskew.measure_ranking(model.score(fresh), fresh).means["ndcg@10"])
    )
    one, two = (unskew.learn(log, small("lightgbm"), seed=seed, threads=1).score(fresh) for seed in (1, 2))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize("name", PACKAGES)
def test_where_no_split_is_possible(name: str, log: Log, fresh: Lists, tmp_path: Path) -> None:
    same = replace(log.lists, features=np.zeros_like(log.lists.features))
    model = unskew.learn(replace(log, lists=same), small(name), validate_on="nothing", threads=1)
    scores = model.score(fresh)
    assert np.ptp(scores) == 0
    model.save(tmp_path)
    assert np.array_equal(unskew.load(tmp_path).score(fresh), scores)


def test_position_correction_helps_unless_biased_clicks_choose_the_trees() -> None:
    """Where the logging ranker is wrong: clicks like the few trees best that have not unlearned its favourite."""
    train, test = (unskew.make_lists(queries=200, features=8, seed=seed) for seed in (1, 2))
    log = unskew.simulate(train, unskew.behaviours.PositionBias(), pages=40_000, seed=0)

    def ndcg(name: str, **options: Any) -> float:
        model = unskew.learn(log, PACKAGES[name](rounds=60), threads=1, **options)
        return float(unskew.measure_ranking(model.score(test), test).means["ndcg@10"])

    plain, corrected = ndcg("lightgbm"), ndcg("lightgbm_position")
    assert corrected > plain + 0.1
    assert ndcg("lightgbm_position", validate_on="clicks") < corrected - 0.1


# ------------------------------------------------------------------------------------------- files and commands


def written(folder: Path, log: Log, fresh: Lists, method: str, rest: str = "", data: str = "") -> Path:
    """A run file with its data."""
    write_letor(log.lists, folder / "lists.txt")
    write_letor(fresh, folder / "test.txt")
    write_log(log, folder / "log.parquet")
    path = folder / "run.toml"
    source = data or 'log = "log.parquet"'
    text = f'out = "run"\n[data]\n{source}\nfeatures = "lists.txt"\ntest = "test.txt"\n[method]\n{method}\n{rest}'
    path.write_text(text)
    return path


def command(*words: object) -> str:
    ended = CliRunner().invoke(app, [str(word) for word in words])
    assert ended.exit_code == 0, (ended.output, ended.exception)
    return ended.stdout


def test_a_run_file_from_end_to_end(log: Log, fresh: Lists, tmp_path: Path) -> None:
    table = 'name = "lightgbm_position"\nrounds = 6\nleaves = 4\nmin_data_in_leaf = 2'
    path = written(tmp_path, log, fresh, table, '[training]\nseed = 2\nthreads = 1\nvalidate_on = "clicks"\n')
    out = command("learn", path)
    model, read = unskew.load(tmp_path / "run"), unskew.read_letor(tmp_path / "test.txt")
    assert model.card.method == small("lightgbm_position").model_dump(mode="json")
    expected = unskew.learn(
        unskew.read_log(tmp_path / "log.parquet", unskew.read_letor(tmp_path / "lists.txt")),
        small("lightgbm_position"),
        validate_on="clicks",
        seed=2,
        threads=1,
    )
    assert np.array_equal(model.score(read), expected.score(read))
    folder = tmp_path / "run"
    asked, about, metrics = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("config", "run", "metrics")
    )
    assert (asked["ranker"], asked["scaling"], asked["method"]["rounds"]) == (None, "none", 6)
    assert (about["status"], about["steps"], about["seed"]) == ("finished", metrics["validation"]["step"], 2)
    assert metrics["validation"]["on"] == "nDCG of clicks"
    assert f"nDCG@10 of held-out clicks {metrics['validation']['best']:.4f}" in out
    assert metrics["test"]["means"]["ndcg@10"] > 0
    (line,) = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    assert line["metric"] == metrics["validation"]["best"]
    measured = json.loads(command("measure", folder, "--lists", tmp_path / "test.txt", "--json"))
    assert measured["ranking"]["means"]["ndcg@10"] == pytest.approx(metrics["test"]["means"]["ndcg@10"])
    with pytest.raises(RunError, match="never overwritten"):
        CliRunner().invoke(app, ["learn", str(path)], catch_exceptions=False)


def test_the_method_of_the_command_line_leaves_the_files_network_out(
    log: Log, fresh: Lists, tmp_path: Path
) -> None:
    rest = '[ranker]\nname = "linear"\n[training]\nsteps = 3\nseed = 4\nthreads = 1\n'
    path = written(tmp_path, log, fresh, 'name = "dla"\nmax_weight = 3.0', rest)
    command("learn", path, "--method", "xgboost_unbiased", "--out", tmp_path / "package")
    asked = json.loads((tmp_path / "package" / "config.json").read_text())
    assert (asked["method"]["name"], asked["ranker"]) == ("xgboost_unbiased", None)
    assert (asked["training"]["seed"], asked["training"]["validate_on"]) == (4, "nothing")
    assert ask(path).settings.ranker == unskew.rankers.Linear()
    listed = command("catalogue", "methods")
    assert all(f"\n{name} " in listed for name in PACKAGES)


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ranker": "mlp"}, "ranker=: lightgbm grows its own trees"),
        ({"ranker": unskew.rankers.Trees()}, "ranker=: lightgbm grows its own trees"),
        ({"training": unskew.Training(batch=3)}, r"batch=: lightgbm"),
        ({"workers": 2}, r"workers=: lightgbm"),
        ({"rounds": 5}, r"rounds=: unknown key"),
        ({"scaling": ""}, "scaling=: unknown name ''"),
    ],
)
def test_what_a_package_would_not_heed_is_refused(given: dict[str, Any], message: str, log: Log) -> None:
    with pytest.raises(ConfigError, match=message):
        unskew.learn(log, "lightgbm", **given)


@pytest.mark.parametrize(
    ("rest", "data", "message"),
    [
        ('[ranker]\nname = "mlp"\n', "", "ranker: xgboost grows its own trees"),
        ("[training]\npatience = 3\n", "", r"training\.patience: xgboost grows its own trees"),
        ("", 'log = "log.parquet"\nshards = 2', r"data\.shards: trees grow from a log in memory, in one process"),
        ("", 'log = "log.parquet"\nmemory = "1GB"', r"data\.memory: trees grow from a log in memory"),
        ("", 'counts = "counts"', r"data\.counts: trees grow from a log in memory"),
    ],
)
def test_run_files_are_refused(rest: str, data: str, message: str, log: Log, fresh: Lists, tmp_path: Path) -> None:
    path = written(tmp_path, log, fresh, 'name = "xgboost"', rest, data)
    with pytest.raises(ConfigError, match=message):
        ask(path)


def test_several_processes_are_refused(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.workflows.runs.fitters.workers_of", lambda training: 2)
    with pytest.raises(ConfigError, match=r"in one process; choose .* another method"):
        unskew.learn(log, small("lightgbm"))


def test_a_package_and_a_ranker_do_not_go_together(log: Log) -> None:
    scaler, data = fit_scaler("none", log.lists), LogData(log)
    asked = settings(small("lightgbm"), None, None, None, {}, None)
    with pytest.raises(ConfigError, match="lightgbm grows its own trees"):
        NetworkFitter(asked.model_copy(update={"ranker": unskew.rankers.MLP()}), data, scaler)
    with pytest.raises(ConfigError, match="dla needs a ranker"):
        PackageFitter(asked.model_copy(update={"method": unskew.methods.DLA()}), data, scaler)


@pytest.mark.parametrize(("name", "package"), [("lightgbm", "lightgbm"), ("xgboost_unbiased", "xgboost")])
def test_a_missing_package_names_its_extra(
    name: str, package: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def missing(wanted: str, *rest: Any) -> Any:
        if wanted == package:
            raise ImportError(wanted)
        return real(wanted, *rest)

    monkeypatch.setattr("unskew.errors.import_module", missing)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed; run: pip install 'unskew\[trees\]'"):
        unskew.learn(log, name)


@pytest.mark.parametrize("damage", ["missing", "cut", "nonsense", "narrow", "few"])
def test_damaged_models_are_named(damage: str, log: Log, tmp_path: Path) -> None:
    unskew.learn(log, small("xgboost"), threads=1, validate_on="nothing").save(tmp_path)
    path = tmp_path / "trees_0.json"
    text = path.read_text()
    if damage in ("narrow", "few"):
        features = 3 if damage == "narrow" else 5
        lists = replace(log.lists, features=np.ascontiguousarray(log.lists.features[:, :features]))
        config = small("xgboost", rounds=2 if damage == "few" else 6)
        other = unskew.learn(replace(log, lists=lists), config, threads=1, validate_on="nothing").model
        assert isinstance(other, TreeScorer)
        text = other.trees.texts()[0]
    path.write_text({"cut": text[:300], "nonsense": "{}"}.get(damage, text))
    if damage == "missing":
        path.unlink()
    with pytest.raises(RunError, match=r"trees_0\.json"):
        unskew.load(tmp_path)


def test_a_log_without_pairs_is_named(log: Log) -> None:
    wholly = np.repeat(np.arange(len(log)) % 2, log.sizes).astype(np.uint8)
    with pytest.raises(DataError, match="both a clicked and an unclicked"):
        unskew.learn(replace(log, click=wholly), "lightgbm", validate_on="nothing")


# ------------------------------------------------------------------------------------------- groups


def test_pages_that_are_clicked_wholly_or_not_at_all_are_left_out() -> None:
    lists = Lists(np.eye(3, dtype=np.float32), np.array([0, 3]), np.zeros(3, np.int16), np.array([0]))
    pages = [([0, 1], [0, 0]), ([1, 2], [1, 1]), ([2, 0], [0, 1]), ([0, 1], [1, 0])]
    log = Log(
        lists,
        query=np.zeros(4, np.int64),
        offsets=np.arange(5) * 2,
        row=np.concatenate([rows for rows, _ in pages]),
        position=np.tile([1, 2], 4).astype(np.int16),
        click=np.concatenate([clicks for _, clicks in pages]).astype(np.uint8),
    )
    found = page_groups(log, lists.features, pages=9, seed=0)
    assert found.features.argmax(1).tolist() == [2, 0, 0, 1]
    assert (found.labels.tolist(), found.sizes.tolist()) == ([0, 1, 1, 0], [2, 2])


def backwards(log: Log) -> Log:
    """The same pages with the rows of each in the opposite order."""
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(log.offsets, log.offsets[1:], strict=False)])
    return replace(log, row=log.row[order], position=log.position[order], click=log.click[order])


@pytest.mark.parametrize("name", PACKAGES)
def test_the_order_of_rows_never_matters(name: str, log: Log) -> None:
    first, again, turned = (grown(name, part, log.lists, **SMALL) for part in (log, log, backwards(log)))
    scores = first.score(log.lists)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) > 0
    assert 1 <= first.trees.kept[0] <= SMALL["rounds"]
    assert np.array_equal(again.score(log.lists), scores)
    assert np.array_equal(turned.score(log.lists), scores)


def test_bias_options_change_the_trees(log: Log) -> None:
    for plain, other in (("lightgbm", "lightgbm_position"), ("xgboost", "xgboost_unbiased")):
        scores = [grown(name, log, **SMALL).score(log.lists) for name in (plain, other)]
        assert not np.array_equal(*scores)


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
def test_rows_arrive_sorted_by_rank_one_group_a_page(
    package: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip(package)
    given: list[dict[str, Any]] = []
    kind = "Dataset" if package == "lightgbm" else "DMatrix"
    real = getattr(library, kind)

    def spy(features: Array, labels: Array | None = None, **rest: Any) -> Any:
        given.append({"features": features, "labels": labels} | rest)
        return real(features, labels, **rest)

    monkeypatch.setattr(library, kind, spy)
    name = {"lightgbm": "lightgbm_position", "xgboost": "xgboost_unbiased"}[package]
    grown(name, backwards(log), rounds=1)
    clicks = np.add.reduceat(log.click.astype(int), log.offsets[:-1])
    kept = log.take((clicks > 0) & (clicks < log.sizes))
    assert np.array_equal(given[0]["features"], log.lists.features[kept.row])
    assert np.array_equal(given[0]["labels"], kept.click)
    if package == "lightgbm":
        assert np.array_equal(given[0]["group"], kept.sizes)
        assert np.array_equal(given[0]["position"], kept.position)
    else:
        assert np.array_equal(np.unique(given[0]["qid"], return_counts=True)[1], kept.sizes)


def test_at_most_so_many_pages_are_drawn(log: Log) -> None:
    assert len(page_groups(log, log.lists.features, pages=7, seed=0).sizes) == 7
