"""`unskew compare`: the grid, its cache, what chooses settings, and a verdict that may be "do not debias"."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError, RunError
from unskew.measuring import mean_over_seeds
from unskew.simulation import PositionBias, Simulation
from unskew.studies.compare import simulated as cells
from unskew.studies.compare import simulated as fits
from unskew.studies.compare.cells import Finding
from unskew.studies.compare.compare import compare
from unskew.studies.compare.config import CompareData, asked_for, read_compare_file
from unskew.studies.compare.report import arm_term, comparison_page, failures, lead
from unskew.studies.compare.simulated import SimulatedCell, SimulatedComparison, choose, compared
from unskew.studies.compare.verdict import Row, verdict, with_tests
from unskew.terminal.main import app

torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[2]
LEARNED = 2 * (2 + 1 + 2)  # two seeds of: two points of dla, regression_em, naive and labeled


def asked(**changes: Any) -> dict[str, Any]:
    """A tiny comparison, with top-level keys changed."""
    content: dict[str, Any] = {
        "pages": 400,
        "seeds": 2,
        "data": {"synthetic": {"queries": 24, "features": 5, "documents": 6}},
        "behaviours": [{"name": "position"}],
        "methods": [{"name": "dla", "grid": {"max_weight": [2.0, 20.0]}}, {"name": "regression_em"}],
        "ranker": {"name": "mlp", "sizes": [8]},
        "training": {"steps": 4, "batch": 16, "validate_every": 2},
    }
    return content | changes


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the methods that were trained since, one for each cell."""
    names: list[str] = []
    real = fits.run

    def spy(settings: Any, *rest: Any, **named: Any) -> Any:
        names.append(settings.method.name)
        return real(settings, *rest, **named)

    monkeypatch.setattr(fits, "run", spy)
    return names


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages take longer than all else here; only `done`, which is made before this, has one."""
    monkeypatch.setattr("unskew.pages.page.write_drawn", lambda *_: None)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> SimulatedComparison:
    """The tiny comparison, run once for the tests that only look."""
    return compare(asked(), tmp_path_factory.mktemp("compare") / "out", jobs=1)


# ------------------------------------------------------------------------------------------- what it writes


def test_every_cell_and_reference_has_a_row(done: SimulatedComparison) -> None:
    rows = pq.read_table(done.out / "results.parquet").to_pylist()
    assert done.failed == []
    assert len(rows) == LEARNED + 2 * 2  # and random and logging
    assert {row["method"] for row in rows} == {"dla", "regression_em", "naive", "labeled", "random", "logging"}
    assert all(0 <= row[name] <= 1 for row in rows for name in ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "err@10"))
    for row in rows:
        settings, learned = json.loads(row["settings"]), row["method"] not in ("random", "logging")
        assert (settings.get("method", {}).get("name") == row["method"]) == learned
        assert (row["validation_ndcg@10"] is not None) == learned
        assert (row["validation_ips_ndcg@10"] is not None) == learned
        assert (row["validation_click_loglikelihood"] is not None) == (learned and row["method"] != "labeled")
        assert row["seconds"] > 0
    for way in ("clicks", "labels"):
        chosen = [row["point"] for row in rows if row["method"] == "dla" and row[f"selected_by_{way}"]]
        assert len(chosen) == 2  # one point, both seeds
        assert len(set(chosen)) == 1


def test_the_choice_is_the_best_mean_over_seeds(done: SimulatedComparison) -> None:
    rows = [row for row in done.records() if row["method"] == "dla"]
    for way, column in (("clicks", "validation_click_loglikelihood"), ("labels", "validation_ndcg@10")):
        means = {
            point: np.mean([row[column] for row in rows if row["point"] == point])
            for point in ("max_weight = 2.0", "max_weight = 20.0")
        }
        selected = {row["point"] for row in rows if row[f"selected_by_{way}"]}
        assert means[selected.pop()] == max(means.values())


def test_cells_keep_the_value_of_every_query(done: SimulatedComparison) -> None:
    for finding in done.findings:
        values = np.load(done.out / "cells" / f"{finding.cell.key}.npy")
        assert values.shape == (len(cells.MEASURED), 6)
        for name, row in zip(cells.MEASURED, values, strict=True):
            assert np.nanmean(row) == pytest.approx(finding.test(name))


def test_table_and_figure(done: SimulatedComparison) -> None:
    text = (done.out / "table.md").read_text(encoding="utf-8")
    assert "## position" in text
    assert done.verdict("position") in text
    means = [f.test("ndcg@10") for f in done.findings if f.cell.arm == "naive"]
    row = next(line for line in text.splitlines() if line.startswith("| naive |"))
    assert f"{np.mean(means):.3f} ± {np.std(means, ddof=1):.3f}" in row
    assert (done.out / "figure.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_page_needs_no_network(done: SimulatedComparison) -> None:
    page = (done.out / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<script[^>]*\bsrc\s*=", page)
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"\bsrc\s*=|@import|https?:|href\s*=\s*'(?!#|data:)|url\((?!#)", markup)
    assert page.count("<svg class='narrow'") == page.count("<figure>") > 0
    assert done.origin in page
    assert lead(done) in page


# ------------------------------------------------------------------------------------------- the cache


def test_a_second_call_trains_nothing_and_finds_the_same(tmp_path: Path, trained: list[str]) -> None:
    first = compare(asked(), tmp_path / "out", jobs=1)
    assert len(trained) == LEARNED
    again = compare(asked(), tmp_path / "out", jobs=1)
    assert len(trained) == LEARNED
    assert again.records() == first.records()
    compare(asked(), tmp_path / "out", jobs=1, force=True)
    assert len(trained) == 2 * LEARNED


def test_a_changed_setting_reruns_what_it_touches(tmp_path: Path, trained: list[str]) -> None:
    out = tmp_path / "out"

    def rerun(**changes: Any) -> list[str]:
        trained.clear()
        compare(asked(**changes), out, jobs=1)
        return sorted(trained)

    rerun()
    methods = asked()["methods"]
    wider = [{"name": "dla", "grid": {"max_weight": [2.0, 5.0]}}, methods[1]]
    assert rerun(methods=wider) == ["dla"] * 2  # one new point, two seeds; the other is there
    assert rerun(seeds=[1, 2]) == ["dla", "dla", "labeled", "naive", "regression_em"]
    assert len(rerun(behaviours=[{"name": "position"}, {"name": "cascade"}])) == LEARNED
    assert len(rerun(pages=401)) == LEARNED
    assert rerun() == []  # what was there before still is


def test_a_new_version_runs_everything_again(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(asked(seeds=1), tmp_path / "out", jobs=1)
    monkeypatch.setattr(cells, "__version__", "999")
    compare(asked(seeds=1), tmp_path / "out", jobs=1)
    assert len(trained) == LEARNED


def test_an_interrupted_comparison_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = fits.run, []

    def interrupted(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*given, **named)

    monkeypatch.setattr(fits, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(asked(), tmp_path / "out", jobs=1)
    assert not list((tmp_path / "out" / "cells").glob("*.part"))
    result = compare(asked(), tmp_path / "out", jobs=1)
    assert len(calls) == LEARNED + 1
    assert result.failed == []


def test_a_training_that_was_interrupted_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fits.run

    def stopped(*given: Any, **named: Any) -> Any:
        done = real(*given, **named)
        return replace(done, fit=replace(done.fit, status="interrupted"))

    monkeypatch.setattr(fits, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        compare(asked(), tmp_path / "out", jobs=1)
    assert list((tmp_path / "out" / "cells").glob("*.json")) == []


def test_a_damaged_cell_is_run_again(tmp_path: Path, trained: list[str]) -> None:
    out = tmp_path / "out"
    first = compare(asked(seeds=1), out, jobs=1)
    keys = {finding.cell.arm: finding.cell.key for finding in first.findings}
    (out / "cells" / f"{keys['naive']}.json").write_text('{"status": "fin')
    (out / "cells" / f"{keys['regression_em']}.npy").unlink()
    trained.clear()
    compare(asked(seeds=1), out, jobs=1)
    assert sorted(trained) == ["naive", "regression_em"]


def test_a_failing_cell_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fits.run

    def failing(settings: Any, *rest: Any, **named: Any) -> Any:
        if settings.method.name == "regression_em" and settings.training.seed == 1:
            raise DataError("the sky fell")
        return real(settings, *rest, **named)

    monkeypatch.setattr(fits, "run", failing)
    result = compare(asked(), tmp_path / "out", jobs=1)
    assert [(f.cell.arm, f.cell.seed, f.error) for f in result.failed] == [("regression_em", 1, "the sky fell")]
    assert "regression_em" not in {row.arm for row in result.rows("position")}
    assert "the sky fell" in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    failed = [
        row for row in pq.read_table(result.out / "results.parquet").to_pylist() if row["status"] == "failed"
    ]
    assert [(row["error"], row["ndcg@10"], row["selected_by_clicks"]) for row in failed] == [
        ("the sky fell", None, False)
    ]
    monkeypatch.setattr(fits, "run", real)
    assert compare(asked(), tmp_path / "out", jobs=1).failed == []  # tried again


# ------------------------------------------------------------------------------------------- data


def write_lists(folder: Path, *, poison: bool = False) -> dict[str, Any]:
    """LETOR files of a tiny world; the test grades upside down where poisoned."""
    for index, (part, queries) in enumerate((("train", 24), ("validation", 8), ("test", 8))):
        lists = unskew.make_lists(queries, 5, 6, seed=index)
        if poison and part == "test":
            lists = replace(lists, labels=4 - lists.labels)
        unskew.write_letor(lists, folder / f"{part}.txt")
    return {"lists": "train.txt", "validation": "validation.txt", "test": "test.txt"}


def test_test_labels_choose_nothing(tmp_path: Path) -> None:
    grid = {"max_weight": [2.0, 20.0], "training": {"learning_rate": [0.001, 0.05]}}
    content = asked(data=write_lists(tmp_path), methods=[{"name": "dla", "grid": grid}])
    honest = compare(content, tmp_path / "out", base=tmp_path, jobs=1)
    write_lists(tmp_path, poison=True)
    poisoned = compare(content, tmp_path / "out", base=tmp_path, jobs=1)
    assert honest.chosen == poisoned.chosen
    values = [
        [f.test("ndcg@10") for f in result.findings if f.cell.arm != "random"] for result in (honest, poisoned)
    ]
    assert all(a != b for a, b in zip(*values, strict=True))


def test_without_validation_lists_clicks_choose(tmp_path: Path) -> None:
    data = {key: path for key, path in write_lists(tmp_path).items() if key != "validation"}
    result = compare(asked(data=data, seeds=1), tmp_path / "out", base=tmp_path, jobs=1)
    assert result.ways == ("clicks",)
    assert not any(row["selected_by_labels"] for row in result.records())
    assert "no validation lists" in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match=r"validate_on = \"labels\" needs data.validation"):
        asked_for(asked(data=data, training={"validate_on": "labels"}), tmp_path)


def test_grades_are_scaled_and_empty_queries_dropped(tmp_path: Path) -> None:
    rows = [f"{(d == q) * 1} qid:{q} 1:{d} 2:{q} 3:{d * q}\n" for q in range(8) for d in range(4)]
    (tmp_path / "lists.txt").write_text("".join(rows))
    data = {"lists": "lists.txt", "test": "lists.txt", "label_scale": 2, "only_relevant": True}
    made = asked_for(asked(data=data), tmp_path).file.data
    splits = cells.read_data(made, tmp_path)
    assert splits.train.labels.max() == 2
    assert len(splits.train) == 4  # of eight queries, four have their document
    assert splits.validation is None


def test_loggers_and_the_logging_arm(tmp_path: Path) -> None:
    small = {"seeds": 1, "methods": [{"name": "dla"}]}
    oracle = compare(asked(**small, logger={"name": "oracle"}), tmp_path / "oracle", jobs=1)
    assert next(row.ndcg.mean for row in oracle.rows("position") if row.arm == "logging") == 1
    documents = len(unskew.make_lists(24, 5, 6, seed=0).features)
    given = {"name": "scores", "values": [float(i) for i in range(documents)]}
    scores = compare(asked(**small, logger=given), tmp_path / "scores", jobs=1)
    assert scores.failed == []
    assert "logging" not in {row.arm for row in scores.rows("position")}
    assert "no arm `logging`" in scores.notes[0]


@pytest.mark.parametrize("on", ["labels", "nothing"])
def test_weights_may_be_chosen_otherwise(tmp_path: Path, on: str) -> None:
    training = asked()["training"] | {"validate_on": on}
    result = compare(asked(seeds=1, training=training), tmp_path / "out", jobs=1)
    assert result.failed == []
    assert any("Weights were chosen on labels" in note for note in result.notes) == (on == "labels")


# ------------------------------------------------------------------------------------------- the verdict


def arm(name: str, *, better: float, noise: float = 0.02) -> Row:
    """An arm over 60 queries whose nDCG@10 is 0.5 and something."""
    rng = np.random.default_rng(len(name))
    values = 0.5 + better + noise * rng.standard_normal(60) + np.array([[0.0], [0.01]])
    seeds = tuple(map(float, values.mean(1)))
    metrics = {metric: mean_over_seeds(seeds) for metric in cells.MEASURED}
    return Row(name, "", metrics, dict.fromkeys(cells.MEASURED, values), seeds)


def said(*rows: Row) -> str:
    return verdict("position", {"clicks": with_tests(rows)})


def test_the_verdict_to_debias() -> None:
    text = said(arm("naive", better=0), arm("dla", better=0.1), arm("em", better=0.05), arm("labeled", better=0.2))
    assert text.startswith("position: debias, it is worth it here. dla reaches nDCG@10 0.60")
    assert "p < 0.0001; higher with 2 of 2 seeds" in text
    assert "% of the way to labels. Also better than naive: em." in text
    above = said(arm("naive", better=0), arm("dla", better=0.1), arm("labeled", better=0.05))
    assert "more than labels give here." in above


def test_the_verdict_not_to_debias() -> None:
    text = said(
        arm("naive", better=0), arm("dla", better=0.0001), arm("em", better=-0.1), arm("labeled", better=-1)
    )
    assert text.startswith("position: do not debias. On this data none of 2 methods beats naive (nDCG@10 0.50")
    assert "Significantly worse than naive: em." in text
    assert "Labels do no better than clicks either" in text
    one = said(arm("naive", better=0), arm("dla", better=0.0001))
    assert "do not debias. On this data dla does not beat naive" in one


def test_the_verdict_when_nothing_can_be_said() -> None:
    assert said(arm("dla", better=0.1)) == "position: nothing can be said, as naive has no result."
    assert said(arm("naive", better=0)) == "position: nothing can be said, as no method finished."


def test_the_verdict_tells_what_labels_would_have_chosen() -> None:
    naive = arm("naive", better=0)
    tables = {
        "clicks": with_tests([naive, arm("dla", better=0)]),
        "labels": with_tests([naive, arm("dla", better=0.1)]),
    }
    text = verdict("position", tables)
    assert "do not debias" in text
    assert "With settings chosen on labels, which a log does not have, dla would win." in text


def test_marks() -> None:
    rows = [arm("naive", better=0), arm("up", better=0.1), arm("low", better=-0.1), arm("same", better=0.0001)]
    assert [row.mark for row in with_tests(rows)] == ["", "++", "--", ""]
    test = with_tests(rows)[1].against
    assert test is not None
    for p, mark in ((0.004, "++"), (0.006, "+"), (0.049, "+"), (0.05, ""), (float("nan"), "")):
        assert replace(rows[1], against=replace(test, p=p)).mark == mark
        assert replace(rows[1], against=replace(test, p=p, difference=-1)).mark == mark.replace("+", "-")


def finding(index: int, seed: int, *, clicks: float | None, status: str = "finished") -> Finding:
    content = {"status": status, "validation_click_loglikelihood": clicks, "test": {}}
    simulation = Simulation(behaviour=PositionBias(), pages=1, seed=seed)
    cell = SimulatedCell("position", "dla", index, None, 0, CompareData(), Path(), "key", simulation, "")
    return Finding(cell=cell, content=content)


def test_a_point_that_failed_for_a_seed_is_not_chosen() -> None:
    good = [finding(0, seed, clicks=-2.0) for seed in (0, 1)]
    half = [finding(1, 0, clicks=-1.0), finding(1, 1, clicks=None, status="failed")]
    assert choose([*good, *half], "clicks") == 0
    assert choose([*half], "clicks") is None
    assert choose([*good, *(finding(2, seed, clicks=None) for seed in (0, 1))], "clicks") == 0
    assert compared(Path("out"), ["position"], half, [], labels=False).chosen == {}


# ------------------------------------------------------------------------------------------- the file


def refuse(message: str, **changes: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        asked_for(asked(**changes), Path())


def test_config_errors_say_where_and_what_was_meant() -> None:
    refuse("page: unknown key. Did you mean pages?", page=3)
    refuse("give pages= or clicks=, one of the two", clicks=3)
    refuse("seeds", seeds=0)
    refuse("data: give one of lists, synthetic and log; there is none", data={})
    refuse("data.test: missing", data={"lists": "a.txt"})
    refuse("data.validation: cannot be given beside synthetic", data={"synthetic": {}, "validation": "b"})
    refuse("data.synthetic.querys: unknown key", data={"synthetic": {"querys": 3}})
    refuse("data.scaling: unknown name", data={"synthetic": {}, "scaling": "standart"})
    refuse("behaviours.0.name: unknown name 'positon'. Did you mean position?", behaviours=[{"name": "positon"}])
    refuse("behaviours.0.curv: unknown key. Did you mean curve?", behaviours=[{"name": "position", "curv": [1.0]}])
    refuse("behaviours: position is there twice", behaviours=[{"name": "position"}] * 2)
    refuse("logger.name: unknown name 'smv'. Did you mean svm?", logger={"name": "smv"})
    refuse("ranker.name: missing", ranker={})
    refuse("training.seed: the file's seeds are used instead", training={"seed": 3})
    refuse("training.step: unknown key. Did you mean steps?", training={"step": 3})


def test_config_errors_of_methods_and_grids() -> None:
    def method(message: str, **table: Any) -> None:
        refuse(message, methods=[{"name": "dla", **table}])

    method("methods.0.name: unknown name 'dlaa'. Did you mean dla?", name="dlaa")
    method("methods.0.grid.max_weight: input should be a valid list, not 3", grid={"max_weight": 3})
    method("methods.0.max_wait: unknown key. Did you mean max_weight?", grid={"max_wait": [3.0]})
    method("methods.0.grid: input should be a table", grid=3)
    method("methods.0.grid.training.lr: unknown key", grid={"training": {"lr": [0.1]}})
    method("methods.0.label: random is the name of an arm", label="random")
    refuse("methods: dla is there twice", methods=[{"name": "dla"}] * 2)


def test_a_method_may_come_twice_under_labels_and_naive_may_be_set() -> None:
    methods = [{"name": "dla"}, {"name": "dla", "label": "clipped", "max_weight": 3.0}]
    found = asked_for(asked(methods=[*methods, {"name": "naive", "loss": "pairwise"}]), Path())
    assert [entry.label for entry in found.arms] == ["dla", "clipped", "naive", "labeled"]
    assert found.arms[2].points[0].method.model_dump()["loss"] == "pairwise"


def test_naive_is_tuned_as_much_as_the_methods() -> None:
    grid = {"max_weight": [2.0, 5.0], "training": {"learning_rate": [0.01, 0.1]}}
    dla, other = {"name": "dla", "grid": grid}, {"name": "regression_em"}
    found = {entry.label: entry.points for entry in asked_for(asked(methods=[dla, other]), Path()).arms}
    assert {name: len(points) for name, points in found.items()} == {
        "dla": 4,
        "regression_em": 1,
        "naive": 3,
        "labeled": 3,
    }
    assert [point.varied for point in found["naive"]] == ["learning_rate = 0.01", "learning_rate = 0.1", ""]


def test_arms_that_were_tuned_less_are_named(tmp_path: Path) -> None:
    dla = {"name": "dla", "grid": {"training": {"learning_rate": [0.01, 0.1]}}}
    result = compare(asked(methods=[dla, {"name": "naive"}], seeds=1), tmp_path / "out", jobs=1)
    assert [note.rpartition(": ")[2] for note in result.notes] == ["dla, naive."]
    assert result.notes[0] in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")


def test_the_example_is_valid() -> None:
    found = read_compare_file(ROOT / "examples" / "compare.toml")
    assert len(found.arms[0].points) > 1


# ------------------------------------------------------------------------------------------- the command

FILE = """
out = "results"
pages = 300
seeds = 1
data.synthetic = { queries = 20, features = 5, documents = 6 }
ranker = { name = "linear" }
training = { steps = 2, batch = 16, validate_every = 1 }
[[behaviours]]
name = "position"
[[methods]]
name = "dla"
"""


def command(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(FILE)
    ended = command(path, "--jobs", 1)
    assert ended.exit_code == 0, ended.exception
    assert "position: " in ended.stdout
    assert "debias" in ended.stdout
    assert (tmp_path / "results" / "table.md").exists()
    assert command(path, "--jobs", 1, "--quiet", "--out", tmp_path / "other").exit_code == 0

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fits, "run", interrupted)
    ended = command(path, "--jobs", 1, "--force", "--quiet")
    assert ended.exit_code == 130
    assert "without --force to go on" in ended.stderr


def test_results_go_to_standard_output_and_nothing_else_does(tmp_path: Path) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(FILE)
    ended = command(path, "--jobs", 1)
    assert ended.stdout.startswith("Is debiasing worth it?")
    assert ended.stderr.startswith("Open ")  # a bar is for terminals
    assert "report.html" not in ended.stdout
    quiet = command(path, "--jobs", 1, "--quiet")
    assert (quiet.stdout, quiet.stderr) == (ended.stdout, "")
    path.write_text(FILE.replace("pages", "page"))
    wrong = command(path, "--jobs", 1)
    assert "Did you mean pages?" in str(wrong.exception)
    assert wrong.output == ""  # no empty bar above the message


def test_pages_without_clicks_may_be_dropped() -> None:
    found = asked_for(asked(drop_clickless=True, randomized=0.5, cutoff=0), Path())
    simulation = found.simulation("position", 1)
    assert (simulation.drop_clickless, simulation.randomized, simulation.cutoff) == (True, 0.5, 0)
    assert (simulation.pages, simulation.seed, simulation.truth) == (400, 1, False)
    lists = unskew.make_lists(24, 5, 6, seed=0)
    log = simulation.draw(lists)
    assert (len(log), np.add.reduceat(log.click, log.offsets[:-1]).min()) == (400, 1)


def test_the_command_fails_where_a_cell_does(tmp_path: Path) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(FILE + '[[methods]]\nname = "ipw"\n')  # no shuffled pages to measure examination on
    ended = command(path, "--jobs", 1, "--quiet")
    assert ended.exit_code == 1
    assert "Failed: position: ipw, seed 0: " in ended.stdout


def test_what_the_page_says_of_arms_that_have_labels_or_no_result(done: SimulatedComparison) -> None:
    page = comparison_page(done)
    assert [term.name for term in page.terms][:1] == ["naive"]
    assert {term.name for term in page.terms} == {finding.cell.arm for finding in done.findings}
    found = next(finding for finding in done.findings if finding.cell.arm == "naive")
    assert found.cell.point is not None
    displayed = found.cell.point.training.model_copy(update={"learn_from": "displayed"})
    said = arm_term("seen", replace(found.cell.point, training=displayed)).says
    assert said.startswith("naive with learn_from = displayed: Learn from clicks")
    broken = [
        replace(f, content={"status": "failed", "error": "no"}) for f in done.findings if f.cell.arm == "naive"
    ]
    seeds = " and ".join(str(seed) for seed in sorted({f.cell.seed for f in broken}))
    assert f"position: naive, seeds {seeds}: no" in failures(replace(done, findings=tuple(broken)))


def test_it_never_writes_over_what_is_not_a_comparison(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(RunError, match=r"has no compare\.json"):
            compare(asked(), tmp_path / "out", jobs=1, force=force)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
    with pytest.raises(ConfigError, match="jobs=: input should be greater than or equal to 1, not 0"):
        compare(asked(), tmp_path / "new", jobs=0)


def test_a_killed_process_is_told_and_costs_only_its_cell(tmp_path: Path, trained: list[str]) -> None:
    def kill_one(done: int, _of: int, running: list[str]) -> None:
        if done and running:
            multiprocessing.active_children()[0].kill()

    with pytest.raises(RunError, match=r"a process was killed.*cells that are done are kept"):
        compare(asked(), tmp_path / "out", jobs=2, tell=kill_one)
    kept = len(list((tmp_path / "out" / "cells").glob("*.json")))
    assert kept >= 1
    again = compare(asked(), tmp_path / "out", jobs=1)
    assert again.failed == []
    assert len(trained) <= LEARNED + 2 * 2 - kept


@pytest.mark.slow
def test_two_processes_find_the_same_as_one(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def tell(finished: int, total: int, running: Any) -> None:
        told.append((finished, total))
        assert len(running) <= 2

    make: Callable[..., SimulatedComparison] = compare
    apart = make(asked(seeds=1), tmp_path / "two", jobs=2, tell=tell)
    alone = make(asked(seeds=1), tmp_path / "one", jobs=1)
    assert apart.failed == []
    assert told[-1] == (7, 7)
    measured = [[(f.cell.key, f.content["test"]) for f in result.findings] for result in (apart, alone)]
    assert measured[0] == measured[1]
