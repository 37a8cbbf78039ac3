"""`python -m unskew_reproductions`: recipes, the data they find, claims judged by hand, and what is written."""

from __future__ import annotations

import subprocess
import sys
import warnings
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from unskew.errors import ConfigError, DataError, RunError
from unskew.measuring import mean_over_seeds
from unskew.studies.compare.config import asked_for
from unskew.studies.compare.verdict import Row
from unskew.types import Lists
from unskew_reproductions.__main__ import app
from unskew_reproductions.claims import judge, result, tally
from unskew_reproductions.data import NAMES, DataSet, choose_sources, find_sets
from unskew_reproductions.embedding import Space, projections
from unskew_reproductions.recipe import (
    Claim,
    PaperNumber,
    Recipe,
    compare_content,
    merged,
    recipe_named,
    recipe_names,
    sources,
)
from unskew_reproductions.reproduce import (
    CHOSEN,
    KINDS_OF_RECIPE,
    QUICK,
    recipes,
    reproduce,
    reproduction_page,
)
from unskew_reproductions.table import Number, outcome
from unskew_reproductions.trial import How, Tried

torch.set_num_threads(1)

EVERY = (
    "adr-table-2",
    "adr-table-4",
    "bal-figure-4b",
    "bal-table-1",
    "bal-table-2",
    "lbd-eta",
    "lbd-table-4",
    "two-tower-table-3",
    "vectorization-figure-4",
    "vectorization-figure-5",
    "vectorization-table-1",
    "vectorization-table-2",
    "vectorization-table-3",
)
COMPARED = [name for name in EVERY if name != "vectorization-table-3"]
DATA: dict[str, dict[str, Any]] = {
    "yahoo": {"lists": ["a.txt"], "validation": ["b.txt"], "test": ["c.txt"]},
    "istella": {"lists": ["a.txt"], "validation": ["b.txt"], "test": ["c.txt"]},
    "mq2008": {"lists": ["a.txt"], "validation": ["b.txt"], "test": ["c.txt"]},
    "mslr": {"lists": "a.txt", "validation": "b.txt", "test": "c.txt"},
    "generated": {},
}


# ------------------------------------------------------------------------------------------------- recipes


def test_every_recipe_is_there_and_reads() -> None:
    assert tuple(recipe_names()) == EVERY
    assert all(recipe.title and recipe.reference and recipe.says for recipe in recipes().values())


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("name", COMPARED)
def test_every_recipe_makes_a_compare_file_on_every_data_set(name: str, source: str, quick: bool) -> None:
    recipe = recipe_named(name)
    for panel in recipe.panels:
        asked = asked_for(compare_content(recipe, panel, source, DATA[source], quick=quick), Path())
        arms = {arm.label for arm in asked.arms}
        assert {claim.first for claim in recipe.claims} <= arms
        assert {second for claim in recipe.claims for second in claim.second} <= arms
        assert {label for claim in recipe.claims for label in claim.behaviours or ()} <= set(asked.behaviours)
        for printed in recipe.paper:
            if printed.panel == panel.name:
                assert set(printed.values) <= arms
                assert printed.behaviour in asked.behaviours
        if quick:
            assert all(len(arm.points) == 1 for arm in asked.arms)
            assert len(asked.seeds) == 2


@pytest.mark.parametrize("name", EVERY)
def test_printed_numbers_have_the_shape_of_their_metrics(name: str) -> None:
    for printed in recipe_named(name).paper:
        assert sources()[printed.data]["title"]  # by which the page names it
        for values in (*printed.values.values(), *printed.sd.values(), *printed.marks.values()):
            assert len(values) == len(printed.metrics)
        assert set(printed.sd) <= set(printed.values)
        assert set(printed.marks) <= set(printed.values)
        for method in printed.values:
            found = printed.value(method, printed.metrics[-1])
            assert found is not None
            # every recipe's last metric is an nDCG, for BAL an ERR, and for doubly robust a gain in per cent
            low, high = {"bal": (0.1, 0.8), "adr": (-5.0, 30.0)}.get(name[:3], (0.5, 0.8))
            assert low < found.value < high


@pytest.mark.parametrize(
    ("name", "place", "metric", "value", "sd", "mark"),
    [
        ("vectorization-table-1", ("yahoo", "", "click matrix", "vectorization"), "ndcg@10", 0.747, 0.001, ""),
        ("vectorization-table-1", ("istella", "", "click matrix", "affine"), "ndcg@1", 0.637, 0.005, ""),
        ("vectorization-table-1", ("istella", "", "click matrix", "regression_em"), "ndcg@5", 0.565, 0.012, ""),
        ("vectorization-table-2", ("yahoo", "", "trust bias", "dla"), "ndcg@10", 0.751, 0.001, ""),
        ("lbd-table-4", ("yahoo", "DNN", "eta = 0.1", "lbd"), "ndcg@10", 0.758, None, "++"),
        ("lbd-table-4", ("istella", "Linear", "eta = 0.1", "unlimited"), "arp_legacy", 2.121, None, "-"),
        ("two-tower-table-3", ("yahoo", "", "0:1:1:0", "einter"), "ndcg@5", 0.6914, None, "+"),
        ("two-tower-table-3", ("yahoo", "", "0:0:0:1", "mixem"), "ndcg@5", 0.6620, None, "-"),
        ("adr-table-2", ("baidu", "all queries", "search engine", "vanilla_mix"), "dcg@10", -3.215, None, ""),
        ("adr-table-4", ("baidu", "tail", "search engine", "imputation"), "dcg@4", 23.34, None, "+"),
    ],
)
def test_numbers_are_those_of_the_papers(
    name: str, place: tuple[str, str, str, str], metric: str, value: float, sd: float | None, mark: str
) -> None:
    assert recipe_named(name).printed(*place, metric) == (value, sd, mark, place[0])


def test_the_increments_that_the_paper_prints_follow_from_its_columns() -> None:
    """Table 1 was read from jumbled columns; the printed gains over DLA and Affine tell which is which."""
    printed = {part.data: part for part in recipe_named("vectorization-table-1").paper}
    gains = {
        "yahoo": {"dla": (6.88, 4.82, 3.87, 3.03), "affine": (2.14, 2.28, 2.20, 1.91)},
        "istella": {"dla": (7.35, 5.69, 4.10, 2.21), "affine": (0.94, 1.32, 1.11, 1.17)},
    }
    for data, rows in gains.items():
        values = printed[data].values
        for method, expected in rows.items():
            found = [100 * (a / b - 1) for a, b in zip(values["vectorization"], values[method], strict=True)]
            assert found == pytest.approx(expected, abs=0.006)


def test_where_the_paper_has_no_number_for_the_data_another_set_stands_in() -> None:
    recipe = recipe_named("vectorization-table-1")
    assert recipe.printed("mq2008", "", "click matrix", "dla", "ndcg@10") == (0.725, 0.008, "", "yahoo")
    assert recipe.printed("mq2008", "", "click matrix", "random", "ndcg@10") is None


def test_the_papers_settings_are_used_on_the_papers_data() -> None:
    recipe = recipe_named("lbd-table-4")
    dnn, linear = (compare_content(recipe, panel, "yahoo", DATA["yahoo"], quick=False) for panel in recipe.panels)
    lbd = {method.get("label"): method for method in linear["methods"]}["lbd"]
    assert (lbd["strength"], lbd["drop"], lbd["penalty"], lbd["grid"]) == (10_000.0, 0.1, "published", {})
    assert dnn["ranker"]["sizes"] == [512, 256, 128]
    assert linear["ranker"] == {"name": "linear", "input_norm": True}
    assert (dnn["training"]["optimizer"], linear["training"]["optimizer"]) == ("adagrad", "sgd")
    assert dnn["behaviours"][0]["features"][5] == 16  # the file's feature 17
    assert (dnn["data"]["scaled"], dnn["data"]["scaling"]) == ("ultra", "none")  # before pages are simulated
    assert (dnn["pages"], dnn["training"]["steps"], dnn["seeds"]) == (2_560_000, 10_000, 5)


@pytest.mark.parametrize(("source", "scaled"), [("yahoo", "ultra"), ("istella", "ultra_log")])
def test_methods_have_their_published_settings_on_the_papers_data(source: str, scaled: str) -> None:
    recipe = recipe_named("vectorization-table-2")
    asked = asked_for(compare_content(recipe, recipe.panels[0], source, DATA[source], quick=False), Path())
    points = {arm.label: arm.points[0] for arm in asked.arms}
    settings = {label: point.method.model_dump() for label, point in points.items()}
    rates = {label: point.training.learning_rate for label, point in points.items()}
    assert rates.pop("pair_debias") == 0.005
    assert set(rates.values()) == {0.05}
    assert (settings["dla"]["elu"], settings["dla"]["max_weight"]) == (True, 1e9)
    assert settings["regression_em"]["step"] == 0.05
    assert (settings["vectorization"]["schedule"], settings["vectorization"]["freeze"]) == ("joint", 500)
    assert settings["labeled"]["documents"] == "shown"
    assert asked.behaviours["trust bias"].model_dump()["version"] == "published"  # relevance with noise
    assert (asked.file.drop_clickless, asked.file.data.scaled) == (True, scaled)
    assert asked.file.pages == 256 * asked.file.training["steps"]
    assert all(len(arm.points) == 1 for arm in asked.arms)  # nothing is tuned beside them


def test_every_eta_has_the_strengths_that_the_appendix_prints() -> None:
    recipe = recipe_named("lbd-eta")
    asked = asked_for(compare_content(recipe, recipe.panels[0], "yahoo", DATA["yahoo"], quick=False), Path())
    (point,) = next(arm for arm in asked.arms if arm.label == "lbd").points
    found = [point.at(f"eta = 0.{eta}").method.model_dump() for eta in range(7)]
    assert [each["strength"] for each in found] == [100.0, 100.0, 100.0, 1.0, 1.0, 1.0, 1.0]
    assert [each["drop"] for each in found] == [0.1, 0.1, 0.1, 0.1, 0.3, 0.3, 0.4]


def test_quick_shrinks_generated_lists_and_no_others() -> None:
    recipe = recipe_named("vectorization-table-1")
    full, small = (
        compare_content(recipe, recipe.panels[0], "generated", {}, quick=quick)["data"]["synthetic"]
        for quick in (False, True)
    )
    assert (full["queries"], full["features"]) == (19_944, 700)  # the size of Yahoo!'s training set
    assert small["queries"] <= 200
    assert (
        "synthetic" not in compare_content(recipe, recipe.panels[0], "mq2008", DATA["mq2008"], quick=True)["data"]
    )


def test_merging_keeps_what_it_was_given() -> None:
    old = {"training": {"steps": 1}}
    assert merged(old, {"training": {"batch": 2}}) == {"training": {"steps": 1, "batch": 2}}
    assert old == {"training": {"steps": 1}}


def test_an_unknown_recipe_is_an_error_that_helps() -> None:
    done = CliRunner().invoke(app, ["vectorization-tabel-1"])
    assert isinstance(done.exception, ConfigError)
    assert "Did you mean vectorization-table-1?" in str(done.exception)


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_recipes_are_listed(arguments: list[str]) -> None:
    lines = CliRunner().invoke(app, [*arguments]).output.splitlines()
    assert [line.split()[0] for line in lines] == list(EVERY)


# ---------------------------------------------------------------------------------------------------- data


def letor(folder: Path, names: tuple[str, ...], feature: int, query: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"1 qid:{query} 1:0.5 {feature}:1\n0 qid:{query} 2:0.5\n")


LETOR = ("train.txt", "vali.txt", "test.txt")
PARTS = tuple(f"S{number}.txt" for number in range(1, 6))


def test_data_sets_are_told_apart_by_their_content(tmp_path: Path) -> None:
    letor(tmp_path / "a", ("set1.train.txt", "set1.valid.txt", "set1.test.txt"), 700)
    letor(tmp_path / "b", LETOR, 220)
    letor(tmp_path / "c", PARTS, 46, query=10_002)
    letor(tmp_path / "d" / "Fold1", LETOR, 136)
    found = find_sets([tmp_path])
    assert {name: (folder.name, preset) for name, (folder, preset) in found.items()} == {
        "yahoo": ("a", "yahoo-set1"),
        "istella": ("b", "istella-s"),
        "mq2008": ("c", "mq2008"),
        "mslr": ("d", "mslr-web10k"),
    }
    assert [source.name for source in choose_sources((), [tmp_path], tmp_path / "work")] == ["yahoo", "istella"]


def test_files_of_the_same_names_are_not_taken_for_another_set(tmp_path: Path) -> None:
    letor(tmp_path / "mslr-fold", LETOR, 136)  # not Istella-S
    letor(tmp_path / "mq2007", PARTS, 46, query=10)  # not MQ2008
    letor(tmp_path / "letor4" / "Fold1", LETOR, 46)  # not MSLR
    assert find_sets([tmp_path]) == {}


def test_the_folder_itself_may_be_the_data_set(tmp_path: Path) -> None:
    letor(tmp_path, LETOR, 220)
    assert find_sets([tmp_path])["istella"][0] == tmp_path


def sample(folder: Path) -> None:
    folder.mkdir()
    queries = [(str(number), f"S{number}") for number in range(1, 6)]
    (folder / "queries.tsv").write_text("qid\tpartition\n" + "".join(f"{a}\t{b}\n" for a, b in queries))
    (folder / "sample.txt").write_text("".join(f"2 qid:{query} 1:3 136:{query}\n" for query, _ in queries))


def test_a_sample_is_cut_by_the_partition_of_its_queries(tmp_path: Path) -> None:
    sample(tmp_path / "sample")
    source, made = choose_sources((), [tmp_path], tmp_path / "work")
    assert (source.name, source.paper, made.name) == ("mslr", False, "generated")
    counts = {key: len(Path(source.data[key]).read_text().splitlines()) for key in ("lists", "validation", "test")}
    assert counts == {"lists": 3, "validation": 1, "test": 1}
    assert "qid:4 " in Path(source.data["validation"]).read_text()


def test_nothing_found_leaves_generated_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    assert [source.name for source in choose_sources((), (), tmp_path)] == ["generated"]
    sample(tmp_path / "sample")
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
    assert [source.name for source in choose_sources((), (), tmp_path / "work")] == ["mslr", "generated"]


def test_what_is_asked_for_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="yahoo not found; looked into"):
        choose_sources(["yahoo"], [tmp_path], tmp_path)
    with pytest.raises(ConfigError, match="Did you mean istella"):
        choose_sources(["istela"], [tmp_path], tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        find_sets([tmp_path / "none"])


def test_real_data_are_found(data_folder: Path, tmp_path: Path) -> None:
    found = find_sets([data_folder])
    if not {"mq2008", "mslr"} <= set(found):
        pytest.skip("no MQ2008 or MSLR among the real data")
    assert "istella" not in found or "yahoo" in found  # nothing there is taken for Istella-S
    assert found["mq2008"][1] == "mq2008"


# -------------------------------------------------------------------------------------------------- claims


def noisy(mean: float, seed: int = 0, seeds: int = 3, queries: int = 200) -> Row:
    values = mean + 0.02 * np.random.default_rng(seed).standard_normal((seeds, queries))
    return Row("", "", {}, {"ndcg@10": values})


@pytest.mark.parametrize(
    ("difference", "p", "relation", "expected"),
    [
        (0.02, 0.01, ">", "holds"),
        (0.02, 0.20, ">", "holds, not significant"),
        (0.0004, 0.90, ">", "tied"),
        (-0.02, 0.20, ">", "reversed, not significant"),
        (-0.02, 0.01, ">", "reversed"),
        (0.0004, 0.01, ">", "holds"),
        (0.02, 0.20, "~", "no difference found"),
        (0.02, 0.01, "~", "differs"),
        (-0.02, 0.01, "~", "differs"),
        (nan, nan, ">", "cannot be tested"),
    ],
)
def test_how_a_claim_ends(difference: float, p: float, relation: str, expected: str) -> None:
    assert result(difference, p, relation) == expected


def test_claims_on_made_up_rows() -> None:
    rows = {"good": noisy(0.8, 1), "bad": noisy(0.7, 2), "same": noisy(0.7, 3)}
    claims = [
        (Claim(first="good", second=["bad"]), "bad"),
        (Claim(first="bad", second=["good"]), "good"),
        (Claim(first="bad", second=["same"], relation="~"), "same"),
        (Claim(first="good", second=["gone"]), "gone"),
    ]
    judged = judge(rows, claims)
    assert [one.result for one in judged] == ["holds", "reversed", "no difference found", "cannot be tested"]
    assert [(one.wins, one.seeds) for one in judged[:2]] == [(3, 3), (0, 3)]
    good, bad = (rows[name].values["ndcg@10"] for name in ("good", "bad"))
    assert judged[0].difference == pytest.approx(float((good - bad).mean()))
    assert judged[0].difference == -judged[1].difference
    assert [one.text for one in judged][:2] == ["good > bad", "bad > good"]
    assert tally(judged) == (
        "4 orders tested. Holds: 1; no difference found: 1; reversed: 1; cannot be tested: 1."
    )


def test_p_values_are_corrected_over_the_claims_of_a_table() -> None:
    rows = {"a": noisy(0.703, 1), "b": noisy(0.7, 2), "c": noisy(0.6, 3), "d": noisy(0.5, 4)}
    alone = judge(rows, [(Claim(first="a", second=["b"]), "b")])[0]
    among = judge(rows, [(Claim(first="a", second=[other]), other) for other in "bcd"])[0]
    several = judge(rows, [(Claim(first="a", second=["b"]), "b")] * 3)[0]
    assert several.p == pytest.approx(min(1, 3 * alone.p))
    assert alone.p <= among.p <= several.p


def test_a_claim_ends_by_its_corrected_p() -> None:
    """One order that holds alone, and does not among as many as make its p too large."""
    rows = {"a": noisy(0.72, 1), "b": noisy(0.7, 2)}
    alone = judge(rows, [claim_of("a", "b")])[0]
    assert alone.result == "holds"
    among = judge(rows, [claim_of("a", "b")] * (int(0.05 / alone.p) + 1))[0]
    assert among.result == "holds, not significant"


def test_a_tie_wins_no_seed_and_what_is_missing_costs_nothing() -> None:
    rows = {"a": noisy(0.703, 1), "b": noisy(0.7, 2), "same": noisy(0.703, 1)}
    tied, alone = (judge(rows, [claim_of("a", other)])[0] for other in ("same", "b"))
    assert (tied.wins, tied.seeds, tied.result) == (0, 3, "tied")
    among = judge(rows, [claim_of("a", "b"), claim_of("a", "gone"), claim_of("gone", "b")])
    assert among[0].p == pytest.approx(alone.p)
    assert [one.result for one in among[1:]] == ["cannot be tested"] * 2


def claim_of(first: str, second: str) -> tuple[Claim, str]:
    return Claim(first=first, second=[second]), second


def test_numbers_are_those_chosen_on_labels() -> None:
    """As in the papers: of two settings, the one that labelled validation lists choose."""
    asked: list[str] = []

    class Found:
        findings, baselines = (), ("naive",)

        def rows(self, behaviour: str, way: str = "clicks") -> list[Row]:
            asked.append(way)
            return []

    source = DataSet("generated", "", {}, paper=False)
    outcome(recipe_named("two-tower-table-3"), source, "", Found(), "position")  # type: ignore[arg-type]
    assert asked == ["labels"]


def test_queries_that_are_skipped_do_not_spoil_a_claim() -> None:
    rows = {"a": noisy(0.8, 1), "b": noisy(0.7, 2)}
    for row in rows.values():
        row.values["ndcg@10"][:, :5] = nan
    (one,) = judge(rows, [(Claim(first="a", second=["b"]), "b")])
    assert (one.result, one.wins) == ("holds", 3)
    assert not isnan(one.difference)


def number(**changes: Any) -> Number:
    about: dict[str, Any] = {"data": "yahoo", "panel": "", "behaviour": "b", "method": "dla", "metric": "ndcg@10"}
    about |= {"measured": mean_over_seeds([0.70, 0.72]), "mark": "-"}
    return Number(**(about | {"paper": PaperNumber(0.725, 0.008, "+", "yahoo")} | changes))


def test_a_difference_is_given_only_where_values_compare() -> None:
    assert number().difference == pytest.approx(-0.015)
    assert number(data="mq2008").difference is None
    assert number(paper=None).difference is None
    assert (number().printed(), number(paper=None).printed()) == ("0.725 ± 0.008 +", "–")
    assert number().ours() == "0.710 ± 0.014 -"


def test_a_method_without_a_result_keeps_its_row() -> None:
    failed = number(measured=None)
    assert failed.ours() == "failed"
    assert failed.record()["status"] == "failed"
    assert (failed.record()["paper"], failed.record()["paper_mark"]) == (0.725, "+")


def test_projections_by_hand() -> None:
    """Two documents, of which the first dimension ranks the relevant one first and the second last."""
    lists = Lists(np.zeros((2, 1), np.float32), np.array([0, 2]), np.array([1, 0], np.int16), np.array([0]))
    space = Space(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.9, 0.1]]))
    rows = projections([space], lists)
    second_of_two = 1 / np.log2(3)
    assert {name: row.ndcg.mean for name, row in rows.items()} == pytest.approx(
        {"base vector": 1.0, "position 1": 1.0, "position 2": second_of_two, "principal direction": 1.0}
    )


# ----------------------------------------------------------------------------------------------------- runs


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even smaller than --quick, and without the pages of the comparisons, which take longest."""
    monkeypatch.setattr("unskew.studies.compare.report.write_page", lambda *_: None)
    small = {"queries": 24, "features": 5, "documents": 6}
    monkeypatch.setitem(sources()["quick"], "synthetic", small)
    monkeypatch.setitem(sources()["quick"]["compare"], "pages", 400)
    monkeypatch.setitem(sources()["quick"]["compare"], "training", {"steps": 4, "validate_every": 2, "batch": 16})


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_table_is_run_written_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, name = tmp_path / "out", "vectorization-table-2"
    asked = {"on": ["generated"], "quick": True, "jobs": 1}
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    done = CliRunner().invoke(app, [name, "--quick", "--jobs", "1", "--quiet", "--out", str(out)])
    assert done.exit_code == 0, done.output
    text, table = (out / "table.md").read_text(), pq.read_table(out / "numbers.parquet").to_pylist()
    methods = {
        "naive",
        "labeled",
        "dla",
        "pair_debias",
        "regression_em",
        "affine",
        "vectorization",
        "random",
        "logging",
    }
    assert {row["method"] for row in table} == methods
    assert len(table) == len(methods) * 3  # metrics
    dla = next(row for row in table if (row["method"], row["metric"]) == ("dla", "ndcg@10"))
    assert (dla["paper"], dla["paper_data"], dla["comparable"], dla["difference"]) == (0.751, "yahoo", False, None)
    assert dla["seeds"] == 2
    assert QUICK in text
    assert "values do not compare" in text
    assert all(f"| {method} |" in text for method in methods)
    assert text.count("vectorization >") == 4  # and every claim has its row
    assert (out / "figure.svg").read_text().startswith("<svg")
    page = (out / "report.html").read_text()
    for part in (
        "<svg class='wide'",
        "Clicks simulated (",
        "on generated lists; no real user",
        "★",
        f"unskew_reproductions {name}",
    ):
        assert part in page

    monkeypatch.setattr("unskew.pages.page.write_drawn", lambda *_: None)
    run: list[str] = []
    monkeypatch.setattr("unskew.studies.compare.cells.run_cell", lambda cell, folder: run.append(str(cell)))
    again = reproduce(name, out, **asked)  # type: ignore[arg-type]
    assert (run, list(again.page.failed)) == ([], [])
    assert (out / "table.md").read_text().rpartition("Made by")[0] == text.rpartition("Made by")[0]
    more = reproduce(name, out, seeds=3, **asked)  # type: ignore[arg-type]
    assert len(run) == len(methods)  # the third seed of each, and nothing of the others
    assert len(more.page.failed) == len(methods)
    with_failures = (out / "table.md").read_text()
    assert all(line in with_failures for line in more.page.failed)
    assert all(f"| {method} |" in with_failures for method in methods)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["bal-table-1", "bal-table-2"])
def test_whole_pages_are_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("causallearn")
    monkeypatch.setattr("unskew.pages.page.write_drawn", lambda *_: None)
    done = reproduce(name, tmp_path / "out", on=["generated"], quick=True, jobs=1)
    table = pq.read_table(tmp_path / "out" / "numbers.parquet").to_pylist()
    assert {row["method"] for row in table} >= {"naive", "ipw", "bal"}
    assert all(row["measured"] is not None and row["seeds"] == 2 for row in table)
    text = (tmp_path / "out" / "table.md").read_text()
    assert ("Baidu-ULTR: values do not compare" in text) == (name == "bal-table-1")
    if name == "bal-table-2":
        moved = [row for row in table if row["method"] == "labels"]
        assert [row["metric"] for row in moved] == [f"new position of rank {k}" for k in range(1, len(moved) + 1)]
        assert 1 < moved[0]["measured"] < moved[-1]["measured"]  # labels and naive agree somewhat
    assert list(done.page.failed) == []


def test_a_recipe_says_the_size_of_its_own_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def told(recipe: Recipe, chosen: list[DataSet], how: How) -> Tried:
        said.extend(source.title for source in chosen)
        return Tried([], [])

    monkeypatch.setitem(KINDS_OF_RECIPE, "table", told)  # type: ignore[misc]
    for size in ({}, {"features": 6}):
        reproduce("bal-table-1", tmp_path / str(len(size)), on=["generated"], size=size)
    reproduce("bal-table-1", tmp_path / "quick", on=["generated"], size={"features": 6}, quick=True)
    of = "generated lists: 500 queries, {} features, 20 documents"
    assert said == [of.format(20), of.format(6), sources()["quick"]["title"]]


@pytest.fixture(scope="module")
def papers_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few lists that look like Yahoo! and like Istella-S, sparse and unscaled."""
    folder, rng = tmp_path_factory.mktemp("papers"), np.random.default_rng(0)
    files = {"yahoo": ("set1.train.txt", "set1.valid.txt", "set1.test.txt"), "istella": LETOR}
    for (name, parts), width in zip(files.items(), (700, 220), strict=True):
        (folder / name).mkdir()
        for part in parts:
            lines = []
            for document in range(60):
                chosen = sorted({1, width, *rng.integers(1, width + 1, 30).tolist()})
                values = " ".join(f"{feature}:{rng.random() * 100:.4f}" for feature in chosen)
                lines.append(f"{(document * 7) % 5} qid:{1 + document // 6} {values}")
            (folder / name / part).write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vectorization-table-2", "lbd-table-4", "two-tower-table-3"])
def test_published_settings_run_on_the_papers_data(
    name: str, papers_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.pages.page.write_drawn", lambda *_: None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="every page of this log has a click")  # as published
        done = reproduce(name, tmp_path / "out", data=[papers_data], seeds=1, pages=100, steps=2, jobs=1)
    assert list(done.page.failed) == []
    assert {row["data"] for row in done.records} == {"yahoo", "istella"}
    for row in done.records:
        if row["paper"] is not None and row["paper_data"] == row["data"]:
            assert row["difference"] == pytest.approx(row["measured"] - row["paper"])


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_an_embedding_space_is_drawn_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"on": ["generated"], "quick": True}
    first = reproduce("vectorization-figure-5", tmp_path / "out", **asked)  # type: ignore[arg-type]
    assert len(first.page.sections) == 3
    assert all(len(section.figures) == 2 for section in first.page.sections[1:])
    rows = pq.read_table(tmp_path / "out" / "numbers.parquet").to_pylist()
    assert {row["method"] for row in rows} == {
        "base vector",
        "principal direction",
        *(f"position {k}" for k in range(1, len(rows) // 2 - 1)),
    }
    monkeypatch.setattr("unskew.pages.page.write_drawn", lambda *_: None)
    monkeypatch.setattr("unskew_reproductions.embedding.learn", None)  # must not be called again
    again = reproduce("vectorization-figure-5", tmp_path / "out", **asked)  # type: ignore[arg-type]
    assert again.records == first.records


@pytest.mark.usefixtures("tiny")
def test_the_time_of_ranking_is_taken_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.pages.page.write_drawn", lambda *_: None)
    done = reproduce("vectorization-table-3", tmp_path / "out", on=["generated"], quick=True)
    found = {row["method"]: row for row in done.records}
    assert found["ratio"]["paper"] == pytest.approx(1.214, abs=0.001)
    assert found["ratio"]["measured"] > 0
    assert [found[name]["paper"] for name in ("vectorization", "scalar")] == [0.136, 0.112]
    assert "the paper prints 21.4 % more" in done.page.sections[1].text


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="is not ours"):
        reproduce("vectorization-table-1", tmp_path, on=["generated"], quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_recipe_with_an_unknown_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"title": "t", "reference": "r", "says": "s", "metrics": ["ndcg@10"], "claim": []}
    monkeypatch.setattr("unskew_reproductions.recipe._read", lambda name: about)
    with pytest.raises(ConfigError, match="Did you mean claims"):
        recipe_named("lbd-eta")
    assert "claims" in Recipe.model_fields


def test_sizes_may_be_others() -> None:
    recipe, (made,) = recipe_named("lbd-eta"), choose_sources(["generated"], [], Path())
    asked = How(Path(), changes={"seeds": 3, "pages": 500, "steps": 40}).asked(recipe, made)
    assert (asked.seeds, asked.file.pages, asked.file.training["steps"]) == ((0, 1, 2), 500, 40)
    assert asked.file.training["validate_on"] == "labels"
    page = reproduction_page(recipe, [made], Tried([], []), quick=False, changes={"seeds": 3, "steps": 40})
    assert "3 seeds, 40 steps" in page.notes[0]
    assert CHOSEN in page.notes
    pages = recipe_named("bal-table-1")
    page = reproduction_page(pages, [made], Tried([], []), quick=False, changes={"seeds": 1})
    assert "1 seed." in page.notes[0]
    assert CHOSEN not in page.notes
    assert any("held-out clicks" in note for note in page.notes)


def test_generated_lists_may_be_smaller() -> None:
    from unskew_reproductions.data import resized

    (made,) = choose_sources(["generated"], [], Path())
    smaller = resized(made, {"queries": 50, "features": 6})
    assert "50 queries, 6 features, 24 documents" in smaller.title
    recipe = recipe_named("vectorization-table-1")
    content = compare_content(recipe, recipe.panels[0], "generated", smaller.data, quick=False)
    assert content["data"]["synthetic"] == {"queries": 50, "features": 6, "documents": 24}
    assert resized(made, {}) == made
    with pytest.raises(ConfigError, match=r"generated\.queries"):
        resized(made, {"queries": 1})


def test_the_package_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "unskew_reproductions", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(EVERY)
