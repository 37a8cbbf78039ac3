"""Arms of a comparison: rankers of their own, the packages' rankers, a grid for all, and the best baseline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import t as student
from scipy.stats import ttest_1samp

import unskew
from unskew.errors import ConfigError, DataError
from unskew.learning.fitting import packages
from unskew.learning.methods import PACKAGES
from unskew.measuring import crossed_t_test, mean_over_seeds, ndcg_metric, paired_t_test
from unskew.pages.console import print_page
from unskew.studies.compare import simulated as cells
from unskew.studies.compare.compare import compare
from unskew.studies.compare.config import CompareData, asked_for
from unskew.studies.compare.report import comparison_page, rows_table
from unskew.studies.compare.simulated import read_data
from unskew.studies.compare.verdict import Row, best_baseline, marks, with_tests

torch.set_num_threads(1)


def asked(methods: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A tiny comparison."""
    content: dict[str, Any] = {
        "pages": 400,
        "seeds": [3, 4],
        "data": {"synthetic": {"queries": 24, "features": 5, "documents": 6}},
        "behaviours": [{"name": "position"}],
        "methods": methods,
        "ranker": {"name": "mlp", "sizes": [8]},
        "training": {"steps": 4, "batch": 16, "validate_every": 2},
    }
    return content | changes


def refuse(message: str, *methods: dict[str, Any], **changes: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        asked_for(asked(list(methods), **changes), Path())


# ------------------------------------------------------------------------------------------- the file


def test_a_method_may_bring_its_ranker() -> None:
    arms = asked_for(asked([{"name": "dla", "ranker": {"name": "linear"}}, {"name": "ipw"}]), Path()).arms
    rankers = {arm.label: arm.points[0].ranker for arm in arms}
    assert rankers["dla"] == unskew.rankers.Linear()
    assert rankers["ipw"] == rankers["naive"] == rankers["labeled"] == unskew.rankers.MLP(sizes=(8,))


def test_a_grid_for_all_methods_is_tried_with_all_methods() -> None:
    grid = {"training": {"learning_rate": [0.1, 0.2]}}
    own = {"name": "dla", "grid": {"max_weight": [2.0, 3.0], "training": {"steps": [5]}}}
    arms = asked_for(asked([own, {"name": "lightgbm"}, {"name": "pal"}], grid=grid), Path()).arms
    points = {arm.label: [point.varied for point in arm.points] for arm in arms}
    assert points["dla"] == [
        f"learning_rate = {rate}, steps = 5, max_weight = {weight}" for rate in (0.1, 0.2) for weight in (2.0, 3.0)
    ]
    assert points["pal"] == ["learning_rate = 0.1", "learning_rate = 0.2"]
    assert points["lightgbm"] == [""]
    assert len(points["naive"]) == 4  # every training setting that any method is tried with
    refuse("grid.max_weight: unknown key. Known: training", {"name": "dla"}, grid={"max_weight": [1.0]})
    refuse("grid.training.steps: input should be a valid list", {"name": "dla"}, grid={"training": {"steps": 3}})


def test_settings_of_packages() -> None:
    table = {"name": "lightgbm", "rounds": 7, "grid": {"leaves": [3, 5]}}
    arm = asked_for(asked([table]), Path()).arms[0]
    assert [point.method for point in arm.points] == [
        unskew.methods.LightGBM(rounds=7, leaves=leaves) for leaves in (3, 5)
    ]
    refuse("methods.0.rouns: unknown key. Did you mean rounds?", {"name": "lightgbm", "rouns": 7})
    refuse("methods.0.ranker: lightgbm grows its own trees", {"name": "lightgbm", "ranker": {"name": "linear"}})
    refuse(
        "methods.0.grid.training: xgboost grows its own trees",
        {"name": "xgboost", "grid": {"training": {"steps": [3]}}},
    )
    refuse("methods.0.name: unknown name 'lightgmb'. Did you mean lightgbm?", {"name": "lightgmb"})
    refuse("methods.0.ranker.name: unknown name 'tree'", {"name": "dla", "ranker": {"name": "tree"}})


def test_baselines_of_a_file() -> None:
    methods = [{"name": "dla"}, {"name": "lightgbm", "label": "mart"}]
    assert asked_for(asked(methods), Path()).baselines == ("mart", "naive")
    assert asked_for(asked(methods, baselines=["dla"]), Path()).baselines == ("dla",)
    refuse("baselines: unknown name 'dlaa'. Did you mean dla?", *methods, baselines=["dlaa"])


# ------------------------------------------------------------------------------------------- running


def test_packages_learn_in_the_same_comparison(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    methods = [{"name": name, "rounds": 4, "min_data_in_leaf": 2} for name in PACKAGES]
    methods[0]["grid"] = {"leaves": [2, 4]}
    methods.append({"name": "dla", "label": "dla trees", "ranker": {"name": "trees", "rounds": 3}})
    result = compare(asked(methods), tmp_path / "out", jobs=1)
    assert result.failed == []
    rows = {row.arm: row for row in result.rows("position")}
    assert {*PACKAGES, "dla trees", "naive", "labeled"} <= set(rows)
    assert result.baselines == (*PACKAGES, "naive")
    for record in result.records():
        packaged = record["method"] in PACKAGES
        assert (record["validation_click_ndcg@10"] is not None) == packaged
        if packaged:
            assert 1 <= record["steps"] <= 4
            assert record["validation_click_loglikelihood"] is None
            assert set(json.loads(record["settings"])) == {"method", "training"}
    for way, column in (("clicks", "validation_click_ndcg@10"), ("labels", "validation_ndcg@10")):
        tried = [record for record in result.records() if record["method"] == "lightgbm"]
        means = {p: np.mean([r[column] for r in tried if r["point"] == p]) for p in ("leaves = 2", "leaves = 4")}
        chosen = {record["point"] for record in tried if record[f"selected_by_{way}"]}
        assert means[chosen.pop()] == max(means.values())
    again = compare(asked(methods), tmp_path / "out", jobs=1)
    assert [f.cell.key for f in again.findings] == [f.cell.key for f in result.findings]


def test_a_package_learns_from_the_pages_that_methods_learn_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    logs: dict[str, Any] = {}
    from unskew.studies.compare import simulated as fits

    real_run, found = fits.run, {}

    def run(settings: Any, data: Any, **named: Any) -> Any:
        logs[settings.method.name] = data.train
        done = real_run(settings, data, **named)
        found[settings.method.name] = done.score(data.train.lists)
        return done

    def grow(method: Any, scaler: Any, log: Any, chosen_by: Any, training: Any) -> Any:
        logs["given"], logs["validation"] = log, chosen_by
        model = packages.grow(method, scaler, log, chosen_by, training)
        found["given"] = model.trees.boosters[0].predict(log.lists.features, num_iteration=model.trees.kept[0])
        return model

    monkeypatch.setattr(fits, "run", run)
    monkeypatch.setattr("unskew.workflows.runs.fitters.grow", grow)
    methods = [{"name": "lightgbm", "rounds": 2, "min_data_in_leaf": 2}]
    result = compare(asked(methods, seeds=[5]), tmp_path / "every tree", jobs=1)
    assert result.failed == []
    assert logs["validation"] is None
    training = asked([])["training"] | {"validate_on": "clicks"}
    result = compare(asked(methods, seeds=[5], training=training), tmp_path / "out", jobs=1)
    assert result.failed == []
    assert np.array_equal(logs["lightgbm"].click, logs["naive"].click)
    assert np.array_equal(logs["lightgbm"].row, logs["naive"].row)
    assert np.array_equal(logs["given"].row, logs["naive"].row)
    assert np.array_equal(found["lightgbm"], found["given"].astype(np.float32))  # features as they are
    held = set(logs["validation"].query)
    assert held
    assert not held & set(logs["lightgbm"].query)


def test_the_ranker_of_an_arm_is_part_of_its_cell(tmp_path: Path) -> None:
    first = compare(asked([{"name": "dla"}], seeds=1), tmp_path / "out", jobs=1)
    other = [{"name": "dla", "ranker": {"name": "linear"}}]
    second = compare(asked(other, seeds=1), tmp_path / "out", jobs=1)
    keys = [{f.cell.arm: f.cell.key for f in result.findings} for result in (first, second)]
    assert keys[0]["dla"] != keys[1]["dla"]
    assert keys[0]["naive"] == keys[1]["naive"]


def test_a_method_may_be_trained_in_its_own_way() -> None:
    methods = [{"name": "regression_em", "training": {"learning_rate": 0.005}}, {"name": "dla"}]
    arms = {arm.label: arm for arm in asked_for(asked(methods), Path()).arms}
    assert arms["regression_em"].points[0].training.learning_rate == 0.005
    assert arms["regression_em"].points[0].training.steps == 4  # the rest is the file's
    assert [point.training for point in arms["naive"].points] == [arms["dla"].points[0].training]
    refuse("methods.0.training: lightgbm grows its own trees", {"name": "lightgbm", "training": {"steps": 3}})
    refuse("methods.0.training.stepps", {"name": "dla", "training": {"stepps": 3}})


def test_a_method_may_have_settings_under_one_behaviour() -> None:
    people = [{"name": "position", "label": "weak"}, {"name": "position", "label": "strong", "severity": 2.0}]
    method = {"name": "dla", "under": {"strong": {"max_weight": 5.0}}}
    content = asked([method], behaviours=people)
    found = {
        label: cells.make_cell(asked_for(content, Path()), ("a", "b", "c"), label, "dla", 0, 3)
        for label in ("weak", "strong")
    }
    weights = {label: getattr(cell.point.method, "max_weight") for label, cell in found.items() if cell.point}  # noqa: B009
    assert weights["strong"] == 5.0 != weights["weak"]
    assert [found[label].varied for label in ("weak", "strong")] == ["", "max_weight = 5.0"]
    refuse("under", {"name": "dla", "under": {"other": {"max_weight": 5.0}}})
    refuse("methods.0.under.position", {"name": "dla", "under": {"position": {"max_wait": 5.0}}})
    refuse("methods.0.under.position: input should be a table", {"name": "dla", "under": {"position": 5.0}})


def test_lists_may_be_scaled_before_pages_are_simulated(tmp_path: Path) -> None:
    """Over all parts together: the smallest value of any part becomes -1, the largest 1, what is not there 0."""
    for name, values in (("train", (1, 3)), ("vali", (5, 2)), ("test", (2, 4))):
        (tmp_path / f"{name}.txt").write_text(
            "".join(f"{grade} qid:1 1:{value} 2:7\n" for grade, value in enumerate(values)) + "0 qid:1 2:7\n"
        )
    files = {"lists": "train.txt", "validation": "vali.txt", "test": "test.txt"}
    content = asked([{"name": "dla"}], data={**files, "scaled": "ultra", "scaling": "none"})
    parts = read_data(asked_for(content, tmp_path).file.data, tmp_path)
    assert parts.train.features[:, 0].tolist() == pytest.approx([-0.6, 0.2, 0.0])  # 2 (v - 0) / 5 - 1
    assert parts.test.features[:, 0].tolist() == pytest.approx([-0.2, 0.6, 0.0])
    assert parts.longest == 3
    plain = read_data(asked_for(content | {"data": files}, tmp_path).file.data, tmp_path)
    assert plain.hashes[0] != parts.hashes[0]
    refuse("data.scaled", {"name": "dla"}, data={**files, "scaled": "ultar"})


# ------------------------------------------------------------------------------------------- the tests


def arm(name: str, level: float, seeds: int = 3) -> Row:
    """An arm over 50 queries."""
    rng = np.random.default_rng(len(name))
    values = level + 0.02 * rng.standard_normal((seeds, 50))
    metrics = {metric: mean_over_seeds(values.mean(1)) for metric in cells.MEASURED}
    return Row(name, "", metrics, dict.fromkeys(cells.MEASURED, values), tuple(map(float, values.mean(1))))


def test_methods_are_tested_against_the_best_baseline() -> None:
    rows = [arm("naive", 0.5), arm("dla", 0.6), arm("lightgbm", 0.55), arm("xgboost", 0.52), arm("labeled", 0.7)]
    baselines = ("naive", "lightgbm", "xgboost")
    best = best_baseline(rows, baselines)
    assert best is not None
    assert best.arm == "lightgbm"
    found = {row.arm: row for row in with_tests(rows, baselines)}
    versus = found["dla"].versus
    assert versus is not None
    assert versus.difference == pytest.approx(rows[1].ndcg.mean - rows[2].ndcg.mean)
    assert all(found[name].versus is None for name in ("naive", "lightgbm", "xgboost", "labeled"))
    assert found["xgboost"].against is not None
    table = rows_table(list(found.values()), baselines)
    assert table.columns[5:] == ["against naive", "p", "against lightgbm", "p"]
    assert all(len(line) == len(table.columns) for line in table.rows)
    assert rows_table(with_tests(rows, ("naive",)), ("naive",)).columns[5:] == ["against naive", "p"]


def test_marks_are_against_the_best_baseline_of_the_metric() -> None:
    rows = [arm("naive", 0.5), arm("dla", 0.6), arm("lbd", 0.7), arm("em", 0.55), arm("labeled", 0.8)]
    assert marks(rows, ("naive", "dla"), "ndcg@5") == {"lbd": "++", "em": "--"}
    assert marks(rows, ("naive", "dla"), "arp_legacy") == {
        "lbd": "--",
        "em": "--",
    }  # naive has the least
    assert marks(rows, ("dla",), "ndcg@1")["naive"] == "--"


def test_a_narrow_terminal_shows_every_number(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    methods = [{"name": "dla"}, {"name": "lightgbm_position", "rounds": 2, "min_data_in_leaf": 2}]
    result = compare(asked(methods), tmp_path / "out", jobs=1)
    console = Console(width=80, record=True)
    print_page(comparison_page(result), console)
    text = console.export_text()
    table = [line for line in text.splitlines() if "│" in line or "┃" in line]
    assert table
    assert not any("…" in line for line in table)
    for row in result.rows("position"):
        assert f"{row.ndcg.mean:.3f}" in text


def test_crossed_t_test_by_hand() -> None:
    d = np.array([[0.1, 0.2, 0.3, 0.0], [0.3, 0.3, 0.5, 0.2]])
    mean, by_seed, by_query = d.mean(), d.mean(1), d.mean(0)
    ms_seed = 4 * ((by_seed - mean) ** 2).sum() / 1
    ms_query = 2 * ((by_query - mean) ** 2).sum() / 3
    ms_rest = ((d - by_seed[:, None] - by_query + mean) ** 2).sum() / 3
    variance = (ms_seed + ms_query - ms_rest) / 8
    test = crossed_t_test(d, np.zeros_like(d))
    assert test.difference == pytest.approx(mean)
    assert test.t == pytest.approx(mean / np.sqrt(variance))
    df = variance**2 / ((ms_query / 8) ** 2 / 3 + (ms_seed / 8) ** 2 / 1 + (ms_rest / 8) ** 2 / 3)
    satterthwaite = 2 * student.sf(test.t, df)
    over_seeds, over_queries = (ttest_1samp(means, 0).pvalue for means in (by_seed, by_query))
    assert over_seeds > satterthwaite > over_queries  # two seeds: one degree of freedom says how little is known
    assert test.p == pytest.approx(over_seeds)
    wide = np.concatenate([d, d[:, ::-1] + 0.05, d - 0.02])
    assert crossed_t_test(wide, np.zeros_like(wide)).p > ttest_1samp(wide.mean(1), 0).pvalue  # six seeds


def test_crossed_t_test_of_one_seed_is_the_paired_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(30), rng.random(30)
    a[3] = np.nan
    assert crossed_t_test(a[None], b[None]) == paired_t_test(a, b)
    kept = np.delete(a - b, 3)
    assert crossed_t_test(a, b).p == pytest.approx(ttest_1samp(kept, 0).pvalue)


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0])
def test_crossed_t_test_keeps_its_level(seeds: int, spread: float) -> None:
    """At most 5 in 100 (and 5 in 1,000) of pairs without a difference are called different, however seeds vary."""
    rng, queries, trials = np.random.default_rng([seeds, int(spread)]), 40, 600
    error = (1 + 1 / seeds) / queries  # variance of the mean that queries and rest give
    of_seed = np.sqrt(spread * error * seeds) * rng.normal(size=(trials, seeds, 1))
    d = of_seed + rng.normal(size=(trials, 1, queries)) + rng.normal(size=(trials, seeds, queries))
    p = np.array([crossed_t_test(each, np.zeros_like(each)).p for each in d])
    assert (p < 0.05).mean() < 0.077  # 0.05 and three standard errors of 600 trials; 0.12 by Satterthwaite alone
    assert (p < 0.005).mean() < 0.014
    if spread == 0 and seeds > 2:
        assert (p < 0.05).mean() > 0.02  # and it is not deaf where seeds do not matter


def test_crossed_t_test_finds_a_difference_with_three_seeds() -> None:
    rng = np.random.default_rng(3)
    d = 0.5 + 0.1 * rng.normal(size=(100, 3, 1)) + rng.normal(size=(100, 1, 80)) + rng.normal(size=(100, 3, 80))
    found = np.mean([crossed_t_test(each, np.zeros_like(each)).p < 0.05 for each in d])
    assert found > 0.6  # 0.5 is 3.5 standard errors


def test_crossed_t_test_at_the_edges() -> None:
    same = np.full((3, 4), 0.5)
    assert crossed_t_test(same, same).p == 1
    assert crossed_t_test(same + 0.1, same).p == 0
    assert np.isnan(crossed_t_test(same[:, :1], same[:, :1]).p)
    with pytest.raises(DataError, match="shape"):
        crossed_t_test(same, same[:2])


def test_click_ndcg_is_that_of_the_pages() -> None:
    pytest.importorskip("lightgbm")
    from unskew.studies.compare.simulated import click_ndcg

    people = unskew.behaviours.PositionBias()
    log = unskew.simulate(unskew.make_lists(20, 5, 6, seed=0), people, pages=100, seed=0)
    model = unskew.learn(log, unskew.methods.LightGBM(rounds=3, min_data_in_leaf=2), threads=1).model
    scores, values = model.score(log.lists), []
    for start, end in zip(log.offsets, log.offsets[1:], strict=False):
        page = log.row[start:end]
        values.append(ndcg_metric(scores[page], log.click[start:end], offsets=[0, len(page)], at=10)[0])
    assert click_ndcg(model, log) == pytest.approx(np.nanmean(values))


def test_parts_whose_files_name_other_features_have_one_width(tmp_path: Path) -> None:
    """LETOR leaves out what is 0: the last feature may be 0 throughout one part."""
    for name, line in (("train", "1 qid:1 1:1 3:2\n0 qid:1 2:1\n"), ("test", "1 qid:2 1:1\n0 qid:2 2:1\n")):
        (tmp_path / f"{name}.txt").write_text(line)
    parts = read_data(CompareData(lists="train.txt", validation="test.txt", test=["test.txt"]), tmp_path)
    assert parts.validation is not None
    assert [part.features.tolist() for part in (parts.train, parts.validation)] == [
        [[1, 0, 2], [0, 1, 0]],
        [[1, 0, 0], [0, 1, 0]],
    ]
    assert parts.test.dim == 3
