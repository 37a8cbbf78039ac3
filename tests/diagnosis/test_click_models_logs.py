"""Click models on logs: known parameters found again, files and tables read alike, models saved and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from tests.helpers.uncleaned import uncleaned
from unskew.diagnosis.click_models import CLICK_MODELS, ClickPages, FittedClickModel
from unskew.diagnosis.click_models.comparison import paired
from unskew.diagnosis.click_models.pages import grouped, same_rows
from unskew.errors import ConfigError, DataError, RunError
from unskew.logs.log import log_tables
from unskew.simulation import Behaviour
from unskew.terminal.main import app
from unskew.types import Log
from unskew_reproductions.behaviours import DynamicBayesian

models = unskew.click_models
NAMES = (*CLICK_MODELS, "pbm+rctr")


@pytest.fixture(scope="module")
def lists() -> unskew.Lists:
    return unskew.make_lists(queries=30, documents=12, features=4, seed=3)


@pytest.fixture(scope="module")
def shuffled(lists: unskew.Lists) -> Log:
    """Many pages of few queries, all shuffled: every document at every rank."""
    return unskew.simulate(lists, "position", pages=20_000, seed=3, randomized=1.0, cutoff=6)


@pytest.fixture(scope="module")
def small(lists: unskew.Lists) -> Log:
    return unskew.simulate(lists, "user_browsing", pages=1500, seed=4, randomized=0.5, cutoff=6)


@pytest.fixture(scope="module")
def table(small: Log) -> pa.Table:
    return next(log_tables(small, 10**6))


# ----------------------------------------------------------------------------------------- recovery


def known(name: str, shuffled: Log) -> FittedClickModel:
    """A model whose parameters were made up."""
    fitted = models.fit(shuffled, name)
    rng = np.random.default_rng(1)
    made: dict[str, Any] = {}
    for kind, values in fitted.parameters.items():
        made[kind] = rng.uniform(0.1, 0.9, values.shape)
        if kind.endswith("examination"):
            made[kind][0] = 1 - 1e-6  # the scale of examination is seen nowhere else
    if name == "dbn":
        made["continuation"] = np.array([0.85])
    if "share" in made:
        made["share"] = np.array([0.6, 0.4])
    return replace(fitted, parameters=made)


@pytest.mark.parametrize("name", NAMES)
def test_drawn_pages_give_the_parameters_back(name: str, shuffled: Log) -> None:
    truth = known(name, shuffled)
    drawn = truth.sample(shuffled, seed=2)
    assert isinstance(drawn, Log)
    assert np.array_equal(drawn.row, shuffled.row)
    assert np.array_equal(truth.sample(shuffled, seed=2).click, drawn.click)
    found = models.fit(drawn, name)
    assert found.log_likelihood(drawn) >= truth.log_likelihood(drawn)
    chance = [model.click_probability(shuffled) for model in (truth, found)]
    assert float(np.abs(chance[1] - chance[0]).mean()) < 0.03
    if "share" in truth.parameters:
        assert found.parameters["share"] == pytest.approx(truth.parameters["share"], abs=0.1)
        return
    for kind, values in truth.parameters.items():
        got, want = (
            made[kind][: len(values) - 1 if kind in truth.model.of_pairs else 6]
            for made in (found.parameters, truth.parameters)
        )
        if name == "pbm":  # only products are seen
            scale = found.parameters["examination"][0]
            got = got / scale if kind == "examination" else got * scale
        if name != "ubm" or kind == "attractiveness":
            assert float(np.abs(got - want).mean()) < (0.12 if kind == "satisfaction" else 0.05), kind


@pytest.mark.parametrize("strength", [3.0, 20.0])
def test_how_much_satisfaction_differs_is_found_and_intervals_cover(strength: float, lists: unskew.Lists) -> None:
    """Satisfaction is hidden, so its spread is told by scores; two standard errors hold 95 in 100."""
    log = unskew.simulate(lists, "position", pages=8000, seed=8, randomized=1.0, cutoff=8)
    fitted, rng = models.fit(log, "dbn"), np.random.default_rng(8)
    size = len(fitted.pairs) + 1
    truth = {
        "attractiveness": rng.beta(2, 5, size),
        "satisfaction": rng.beta(0.4 * strength, 0.6 * strength, size),
        "continuation": np.array([0.9]),
    }
    found = models.fit(replace(fitted, parameters=truth).sample(log, seed=8), "dbn")
    mean, learned = found.assumed["satisfaction"]
    assert mean == pytest.approx(0.4, abs=0.07)
    assert strength / 2 < learned < 2.5 * strength
    error = found.evidence["standard_error"]
    relevance = found.parameters["attractiveness"] * found.parameters["satisfaction"]
    off = np.abs(relevance - truth["attractiveness"] * truth["satisfaction"])[:-1] / error[:-1]
    assert 0.9 < float((off < 1.96).mean()) <= 1.0


def test_examination_of_a_simulated_log_is_found(shuffled: Log) -> None:
    curve = np.asarray(unskew.behaviours.PositionBias().curve[:6])
    found = models.fit(shuffled, "pbm").examination()
    assert found is not None
    assert found[:6] == pytest.approx(curve / curve[0], rel=0.1)
    assert models.fit(shuffled, "dbn").examination() is None


@pytest.mark.parametrize(
    ("behaviour", "best"),
    [
        ("cascade", {"cascade", "dcm", "sdbn", "dbn", "ccm", "ubm"}),
        ("user_browsing", {"ubm"}),
        (DynamicBayesian(), {"ccm", "dbn"}),
    ],
)
def test_held_out_clicks_tell_how_pages_were_read(
    behaviour: Behaviour | str, best: set[str], lists: unskew.Lists
) -> None:
    log = unskew.simulate(lists, behaviour, pages=8000, seed=5, randomized=0.5)
    found = models.fit_and_compare(log, ["dctr", "pbm", "cascade", "dcm", "sdbn", "dbn", "ubm", "ccm"])
    assert found.best in best
    assert "dctr" not in found.level


def test_attraction_and_continuation_of_a_simulated_log_are_found(lists: unskew.Lists) -> None:
    """The dynamic Bayesian behaviour goes on with 0.9 and is satisfied with 0.7 times its attraction."""
    log = unskew.simulate(lists, DynamicBayesian(), pages=20_000, seed=6, randomized=1.0, truth=True)
    found = models.fit(log, "dbn")
    assert found.parameters["continuation"][0] == pytest.approx(0.9, abs=0.02)
    rows = np.unique(log.row)
    truth = np.zeros(len(lists.features))
    truth[log.row] = log.columns["true_relevance"]
    error = found.parameters["attractiveness"][:-1] - truth[rows]
    assert float(np.abs(error).mean()) < 0.03


def test_relevance_ranks_better_than_click_rate_where_ranks_are_biased(lists: unskew.Lists) -> None:
    log = unskew.simulate(lists, "position", pages=12_000, seed=7, randomized=0.1, truth=True)
    rows = np.unique(log.row)
    truth = np.zeros(len(lists.features))
    truth[log.row] = log.columns["true_relevance"]
    agreement = {}
    for name in ("dctr", "pbm"):
        fitted = models.fit(log, name)
        scores = fitted.model.relevance(fitted.parameters)
        assert scores is not None
        agreement[name] = float(np.corrcoef(scores[:-1], truth[rows])[0, 1])
    assert agreement["pbm"] > agreement["dctr"] + 0.05


# ------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("kind", ["table", "file", "renamed", "shuffled rows"])
def test_a_log_reads_alike_from_everywhere(kind: str, small: Log, table: pa.Table, tmp_path: Path) -> None:
    options: dict[str, Any] = {"threads": 1}
    source: Any = table
    if kind == "renamed":
        source, options["columns"] = table.rename_columns({"position": "place"}), {"position": "place"}
    if kind == "shuffled rows":
        source = table.take(np.random.default_rng(0).permutation(len(table)))
    if kind in ("file", "renamed"):
        pq.write_table(source, tmp_path / "log.parquet")
        source = tmp_path / "log.parquet"
    pages = models.read_pages(source, **options)
    assert pages.total == len(small)
    assert len(pages) < len(small)
    here, there = models.fit(small, "ubm").relevance(), models.fit(pages, "ubm").relevance()
    keys = [("query_id", "ascending"), ("doc_id", "ascending")]
    one, other = here.sort_by(keys), there.sort_by(keys)
    assert one["doc_id"].to_pylist() == other["doc_id"].to_pylist()
    for name in ("relevance", "standard_error", "impressions", "clicks", "examined"):
        assert one[name].to_numpy() == pytest.approx(other[name].to_numpy(), rel=1e-6)


def test_labels_are_never_read(table: pa.Table) -> None:
    wrong = table.append_column("label", pa.array(["no number"] * len(table)))
    assert models.read_pages(uncleaned(wrong), threads=1).total > 0


def test_pages_with_gaps_and_of_different_lengths(table: pa.Table) -> None:
    """Ranks are those that were shown, whatever is missing between them."""
    some = table.filter(pa.array(np.random.default_rng(0).random(len(table)) < 0.7))
    pages = models.read_pages(uncleaned(some), threads=1)
    assert pages.where.sum(1).min() < pages.where.sum(1).max()
    for name in NAMES:
        model = models.fit(pages, name)
        assert np.isfinite(model.log_likelihood(pages)), name
        assert np.diff(model.trace).min() >= -1e-9 * abs(model.trace[-1])


def test_rows_are_told_apart_and_grouped(shuffled: Log) -> None:
    pages = models.read_pages(shuffled)
    first, number = same_rows(pages)
    assert np.array_equal(pages.pair[first[number]], pages.pair)
    assert len(np.unique(pages.pair, axis=0)) == len(first)
    codes = np.array([10**12, 5, 10**12])
    assert [part.tolist() for part in grouped(codes)] == [[5, 10**12], [1, 0, 1]]


def test_weights_are_no_clicks(small: Log) -> None:
    with pytest.raises(DataError, match="click models take clicks"):
        models.fit(replace(small, click=small.click.astype(np.float32), feedback="price"))


# ------------------------------------------------------------------------- judging, saving, comparing


def test_judgments_are_best_first_and_only_of_what_was_shown(small: Log) -> None:
    fitted = models.fit(small, "dbn")
    judged = fitted.relevance()
    assert len(judged) == len(np.unique(small.row))
    query, relevance = judged["query_id"].to_numpy(), judged["relevance"].to_numpy()
    assert np.all((np.diff(relevance) <= 0) | (query[1:] != query[:-1]))
    product = judged["attractiveness"].to_numpy() * judged["satisfaction"].to_numpy()
    assert relevance == pytest.approx(product)
    assert judged["clicks"].to_numpy().sum() == small.click.sum()
    assert judged["examined"].to_numpy().sum() < judged["impressions"].to_numpy().sum()
    with pytest.raises(ConfigError, match="rctr tells no documents apart"):
        models.fit(small, "rctr").relevance()


def test_a_pair_that_was_never_shown_is_as_the_prior_says(small: Log, shuffled: Log) -> None:
    half = models.fit(small.take(np.arange(40)), "pbm")
    chance = half.click_probability(shuffled)
    assert len(chance) == len(shuffled.row)
    theta, mean = half.parameters["examination"], half.parameters["attractiveness"][-1]
    assert mean < half.parameters["attractiveness"][:-1].mean()  # it stands below the last rank
    strange = ~np.isin(shuffled.row, small.take(np.arange(40)).row)
    assert strange.any()
    assert chance[strange] == pytest.approx(theta[shuffled.position[strange] - 1] * mean)


@pytest.mark.parametrize("name", ["rctr", "dbn", "pbm+rctr"])
def test_models_are_saved_and_read_back(name: str, small: Log, table: pa.Table, tmp_path: Path) -> None:
    fitted = models.fit(small, name)
    models.save_model(fitted, tmp_path / "model")
    again = models.load_model(tmp_path / "model")
    assert again.model == fitted.model
    assert again.log_likelihood(table) == pytest.approx(fitted.log_likelihood(small))
    assert again.trace == fitted.trace
    assert again.assumed == fitted.assumed
    if name != "rctr":
        assert again.relevance().equals(fitted.relevance())
    with pytest.raises(RunError, match="exists"):
        models.save_model(fitted, tmp_path / "model")
    models.save_model(fitted, tmp_path / "model", force=True)
    (tmp_path / "model" / "model.json").write_text("{}")
    with pytest.raises(DataError, match="not a click model"):
        models.load_model(tmp_path / "model")


def test_comparison_tells_how_sure_it_is(small: Log, lists: unskew.Lists) -> None:
    held = unskew.simulate(lists, "user_browsing", pages=500, seed=9, randomized=0.5, cutoff=8)
    found = models.fit_and_compare(small, ["rcm", "pbm", "ubm", models.UBM(ranks=1)], held_out=held)
    names = [row.name for row in found.models]
    assert names[0] == found.best == "ubm"
    assert set(names) == {"rcm", "pbm", "ubm", "ubm 2"}
    assert found.held_out == 500
    assert found.unseen == int(np.isin(held.row, small.row, invert=True).sum()) > 0
    worst = found.models[-1]
    assert worst.name == "rcm"
    assert worst.standard_error is not None
    assert worst.behind > 2 * worst.standard_error
    assert worst.parameters == 1
    best = found.fitted["ubm"]
    assert found.models[0].conditional_perplexity == pytest.approx(
        best.perplexity(held, given_clicks=True).overall
    )
    assert found.models[0].perplexity_by_rank.keys() == set(range(1, 9))
    assert found.models[0].log_likelihood == pytest.approx(best.log_likelihood(held))
    assert found.to_dict()["models"][0]["name"] == "ubm"


def test_the_standard_error_is_that_of_clusters() -> None:
    """By hand: differences 1, 1 and 4 of queries with 2 pages and 1; mean 2, residuals -2 and 2."""
    mean, error = paired(np.array([1.0, 1.0, 4.0]), np.ones(3), np.array([5, 5, 8]))
    assert mean == pytest.approx(2.0)
    assert error == pytest.approx((2 * 8) ** 0.5 / 3)
    assert paired(np.ones(3), np.ones(3), np.zeros(3, int)) == (1.0, None)


def pages_of(rows: list[tuple[int, str, str, int, int]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(("page_id", "query_id", "doc_id", "position", "click"), columns, strict=True)))


def test_logs_that_tell_little_say_so() -> None:
    one_rank = pages_of([(page, f"q{page % 2}", f"d{page % 3}", 1, page % 2) for page in range(40)])
    found = models.fit_and_compare(uncleaned(one_rank), ["dctr", "pbm"], held_out=0.3)
    assert any("one rank" in note for note in found.notes)
    fixed = pages_of([(page, "q", f"d{k}", k, int(page % 3 == k)) for page in range(30) for k in (1, 2)])
    found = models.fit_and_compare(uncleaned(fixed), ["dctr", "pbm", "dbn"], held_out=0.3)
    assert any("at two ranks" in note for note in found.notes)
    assert any("one query" in note for note in found.notes)
    assert all(row.standard_error is None for row in found.models)
    assert all(np.isfinite(row.log_likelihood) for row in found.models)
    assert found.level == [row.name for row in found.models]


def test_wrong_wishes_are_told(small: Log) -> None:
    with pytest.raises(ConfigError, match="Did you mean pbm"):
        models.fit(small, "pbn")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        models.fit_and_compare(small, ["pbm"], held_out=1.5)
    with pytest.raises(ConfigError, match="takes a list"):
        models.fit_and_compare(small, "pbm")
    with pytest.raises(DataError, match="too few"):
        models.fit_and_compare(small.take(np.arange(1)), ["pbm"], held_out=0.2)
    with pytest.raises(ConfigError, match=r"PBM\.rank: unknown key"):
        models.PBM(rank=3)


def test_the_command_writes_the_best_model_and_its_judgments(table: pa.Table, tmp_path: Path) -> None:
    log, out = tmp_path / "log.parquet", tmp_path / "out"
    pq.write_table(table, log)
    words = ["compare-click-models", str(log), "--model", "rctr", "--model", "ubm", "--threads", "1"]
    ended = CliRunner().invoke(app, [*words, "--out", str(out), "--json"])
    assert ended.exit_code == 0, ended.exception
    told = json.loads(ended.stdout)
    assert told["best"] == "ubm"
    assert json.loads((out / "comparison.json").read_text())["models"] == told["models"]
    judged = pacsv.read_csv(out / "judgments.csv")
    model = models.load_model(out / "model")
    assert model.pages == len(table.group_by("page_id").aggregate([]))  # the whole log, not four fifths
    assert judged["relevance"].to_pylist() == pytest.approx(model.relevance()["relevance"].to_pylist())
    assert "ubm explains" in (out / "report.html").read_text()
    again = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert isinstance(again.exception, RunError)
    shown = CliRunner().invoke(app, [*words, "--held-out", str(log)])
    assert "rctr" in shown.stdout


def test_halves_are_a_split_of_the_pages(table: pa.Table) -> None:
    pages = models.read_pages(uncleaned(table), threads=1)
    rest, held = pages.halves(0.25, seed=1)
    assert isinstance(rest, ClickPages)
    assert rest.total + held.total == pages.total
    assert held.total == pytest.approx(0.25 * pages.total, rel=0.1)
