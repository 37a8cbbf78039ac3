"""Causal discovery: graphs and rules, columns that are not what they seem, known worlds, samples, the command."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import unskew
from unskew.diagnosis.causal.discovery import (
    Discovery,
    Pool,
    TieredTests,
    discover,
    library,
    read_edges,
    sample_table,
    with_frequencies,
)
from unskew.diagnosis.causal.graph import CausalGraph, Edge, graph_of
from unskew.diagnosis.causal.variables import order_scores, variables_of
from unskew.errors import ConfigError, DataError
from unskew.logs.log import write_log
from unskew.pages.documents.inspections import causes_page, graph_figure
from unskew.pages.page import write_page
from unskew.simulation import WholePage, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.engine.engine import Engine
from unskew.terminal.main import app
from unskew.types import Array, Log

pytest.importorskip("causallearn", reason="causal-learn is not installed")

NAMES = ("relevance", "position", "serp_media", "click")


def world(size: int = 400, seed: int = 0) -> dict[str, Array]:
    """relevance -> position -> click <- relevance, and a column that has nothing to do with them."""
    rng = np.random.default_rng(seed)
    relevance = rng.normal(size=size)
    position = np.clip(np.rint(3 - 1.5 * relevance + rng.normal(size=size)), 1, 6)
    chance = 1 / (1 + np.exp(-(1.2 * relevance - 1.2 * (position - 3))))
    return {
        "click": (rng.random(size) < chance).astype(int),
        "serp_other": rng.normal(size=size),
        "position": position,
        "relevance": relevance,
    }


def found(columns: dict[str, Array], **options: Any) -> CausalGraph:
    extra = np.zeros(len(columns["click"]), bool)
    return discover(Pool.of(columns, extra), Discovery(**({"sample": 300} | options)))


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(queries=100, features=8, documents=12, seed=3)
    return simulate(lists, WholePage(), pages=1_000, seed=1, truth=True)


# ---- graphs ----


def test_a_forbidden_edge_cannot_be_made() -> None:
    for edge in (
        ("click", "position"),
        ("position", "relevance"),
        ("click", "relevance"),
        ("position", "position"),
    ):
        with pytest.raises(ConfigError, match="forbidden"):
            graph_of(NAMES, [edge])
    with pytest.raises(ConfigError, match="needs a direction"):
        CausalGraph(NAMES, (Edge("relevance", "click"), Edge("relevance", "position", directed=False)))
    with pytest.raises(ConfigError, match="relevance -> click is required"):
        CausalGraph(NAMES, ())
    with pytest.raises(ConfigError, match="serp_x, which is not among"):
        graph_of(NAMES, [("serp_x", "click")])
    with pytest.raises(ConfigError, match="causes itself"):
        CausalGraph(
            ("serp_a", "serp_b", "serp_c"),
            (Edge("serp_a", "serp_b"), Edge("serp_b", "serp_c"), Edge("serp_c", "serp_a")),
        )


def test_parents_and_what_is_confounded() -> None:
    graph = graph_of(NAMES, [("relevance", "position"), ("position", "click"), ("serp_media", "click")])
    assert graph.parents("click") == ("relevance", "position", "serp_media")
    assert graph.confounded() == ("position",)


def test_open_directions_go_by_order_and_never_in_a_circle() -> None:
    names = ("serp_a", "serp_b", "serp_c")
    graph = CausalGraph(names, (Edge("serp_c", "serp_b", directed=False), Edge("serp_a", "serp_b")))
    assert graph.parents("serp_c") == ("serp_b",)
    graph = CausalGraph(
        names, (Edge("serp_a", "serp_c", directed=False), Edge("serp_c", "serp_b"), Edge("serp_b", "serp_a"))
    )
    assert graph.parents("serp_a") == ("serp_b", "serp_c")  # a before c would close a circle


def test_marks_become_edges_and_tiers_win() -> None:
    marks = np.zeros((4, 4), int)
    marks[0, 1], marks[1, 0] = 1, -1  # position -> relevance, as no test may say
    marks[1, 2] = marks[2, 1] = 1  # a conflict
    marks[1, 3] = marks[3, 1] = -1  # left open, but tiers know
    edges = read_edges(marks, NAMES, {frozenset(("position", "click")): 0.01})
    assert list(map(str, edges)) == ["relevance -> position", "position -- serp_media", "position -> click"]
    assert edges[2].p == 0.01


def test_json_and_dot() -> None:
    edges = (Edge("relevance", "click"), Edge("position", "serp_media", directed=False, frequency=0.25))
    graph = CausalGraph(NAMES, edges, ("a note",), {"test": "kci"})
    assert CausalGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    assert '"position" -> "serp_media" [dir=none, label="0.25"];' in graph.dot()
    assert '"relevance" -> "click";' in graph.dot()
    with pytest.raises(DataError, match="not a causal graph"):
        CausalGraph.from_dict({"variables": []})


def test_order_scores_solve_their_equations() -> None:
    scores = order_scores(5, prior=0.5)
    for i, own in enumerate(scores):
        pull = sum(np.sign(i - j) / (1 + np.exp(np.sign(i - j) * (own - scores[j]))) for j in range(5) if j != i)
        assert pull == pytest.approx(0.5 * own, abs=1e-9)
    assert (np.diff(scores) > 0).all()
    assert np.abs(order_scores(100)).max() < 100


# ---- columns ----


def test_columns_of_every_kind() -> None:
    made = variables_of(world() | {"serp_kind": np.array(["a", "b"] * 200), "serp_on": np.arange(400) % 3 == 0})
    assert made.names == ("relevance", "serp_other", "position", "serp_kind", "serp_on", "click")
    assert made.values["serp_kind"].shape == (400, 2)
    assert abs(made.values["position"].mean()) < 1e-9
    assert made.codes["serp_other"].max() == 3
    assert not made.notes


@pytest.mark.parametrize("test", ["kci", "rcit", "gsq"])
def test_bad_columns_are_named_and_break_nothing(test: str) -> None:
    columns, rng = world(), np.random.default_rng(1)
    columns |= {
        "serp_constant": np.ones(400),
        "serp_clicked": np.where(columns["click"] == 1, "yes", "no"),
        "serp_twin": 3 - 2 * columns["serp_other"],
        "serp_site": np.array([f"site{n}" for n in rng.integers(200, size=400)]),
        "serp_gaps": np.where(rng.random(400) < 0.05, np.nan, rng.normal(size=400)),
        "serp_empty": np.where(rng.random(400) < 0.8, None, "x"),
    }
    graph = found(columns, test=test, sample=200)
    notes = "; ".join(graph.notes)
    for said in (
        "serp_constant has one value",
        "serp_clicked follows from the click",
        "serp_twin repeats serp_other",
        "categories: all but the commonest 19",
        "impressions lack a value",
        "serp_empty is missing in",
    ):
        assert said in notes
    assert graph.variables == ("relevance", "serp_other", "position", "serp_site", "serp_gaps", "click")


@pytest.mark.slow
def test_fastkci_takes_categories_and_gives_the_same_graph_again() -> None:
    """The slowest of the tests, on few impressions."""
    columns = {name: column for name, column in world().items() if name in ("relevance", "click")}
    columns["serp_site"] = np.array([f"site{n}" for n in np.random.default_rng(1).integers(200, size=400)])
    first, again = (found(columns, test="fastkci", sample=50, seed=3) for _ in range(2))
    assert first == again
    assert first.variables == ("relevance", "serp_site", "click")


def test_a_log_that_tells_nothing() -> None:
    for clicks in (np.zeros(400), np.ones(400)):
        with pytest.raises(DataError, match="every impression is clicked, or none is"):
            found(world() | {"click": clicks})
    with pytest.raises(DataError, match="from 20 impressions"):
        found({name: column[:20] for name, column in world().items()})


def test_a_test_that_cannot_be_computed_leaves_its_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> float:
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(library().test, "_p_value", broken)
    graph = found(world())
    assert len(graph.edges) == 6
    assert "could not be tested: taken as dependent" in graph.notes[0]


def test_rare_categories_are_taken_as_one() -> None:
    sites = np.concatenate([np.repeat(np.arange(19), 18), np.arange(19, 77)])  # 19 common ones, 58 seen once
    columns = {name: column[: len(sites)] for name, column in world().items()}
    made = variables_of(columns | {"serp_site": np.array([f"s{site:02d}" for site in sites])})
    assert sorted(np.bincount(made.codes["serp_site"]).tolist()) == [18] * 19 + [58]


def test_tiers_decide_what_is_tested() -> None:
    """Which pairs are asked for at all, of which sample, and that no pair is asked for once it is parted."""
    made = variables_of(world())
    tests = TieredTests((made, made), Discovery(test="gsq"))
    r, other, position, click = (made.names.index(n) for n in ("relevance", "serp_other", "position", "click"))
    calls: list[tuple[str, set[int], tuple[int, ...]]] = []

    def asked(sample: str, p: float) -> Any:
        return lambda x, y, given: calls.append((sample, {x, y}, given)) or p

    tests._of_page, tests._of_click = asked("page", 0.01), asked("click", 0.2)
    assert tests.p_value(r, click, ()) == 0.0
    assert tests.p_value(r, position, (click,)) == 0.0
    assert calls == []
    assert tests.p_value(r, position, (other,)) == 0.01
    assert tests.p_value(position, r, (other,)) == 0.01  # known by now
    assert tests.p_value(other, click, ()) == 0.2
    assert tests.p_value(other, click, (position,)) == 0.0  # parted
    assert calls == [("page", {r, position}, (other,)), ("click", {other, click}, ())]


def test_samples_of_a_pool() -> None:
    """All impressions as they are, and as many of which half are clicked; clicks that were added are in one."""
    click = np.concatenate([np.arange(400) % 10 == 0, np.ones(200, bool)]).astype(int)
    extra = np.arange(600) >= 400
    pool = Pool.of({"click": click, "relevance": np.random.default_rng(0).normal(size=600)}, extra)
    every, half = pool.samples(200, np.random.default_rng(0))
    assert not extra[every.rows].any()
    assert click[every.rows].mean() == pytest.approx(0.1, abs=0.08)
    assert (len(every), len(half), click[half.rows].sum()) == (200, 200, 100)
    assert len(set(half.rows.tolist())) == 200


def test_frequencies_by_hand() -> None:
    """An edge with a direction counts where it has it, one without wherever it is."""
    names = ("serp_a", "serp_b", "serp_c")
    edges = (Edge("serp_a", "serp_b"), Edge("serp_b", "serp_c", directed=False))
    found = [
        CausalGraph(names, (Edge("serp_a", "serp_b"), Edge("serp_c", "serp_b"))),
        CausalGraph(names, (Edge("serp_b", "serp_a"),)),
        CausalGraph(names, ()),
        CausalGraph(names, (Edge("serp_a", "serp_b", directed=False), Edge("serp_b", "serp_c"))),
    ]
    assert [edge.frequency for edge in with_frequencies(edges, found)] == [0.25, 0.5]


# ---- discovery ----


def test_a_known_world_is_found() -> None:
    graph = found(world())
    assert graph.parents("click") == ("relevance", "position")
    assert graph.has("relevance", "position")
    assert graph.confounded() == ("position",)
    assert "serp_other" not in {end for edge in graph.edges for end in edge.pair}


def test_kernels_give_the_p_values_of_causal_learn() -> None:
    from causallearn.utils.KCI.KCI import KCI_CInd, KCI_UInd

    rng = np.random.default_rng(2)
    z = np.column_stack([rng.normal(size=150), rng.integers(4, size=150)])
    x, y, kind = (
        z[:, :1] + rng.normal(size=(150, 1)),
        rng.normal(size=(150, 1)),
        np.eye(3)[rng.integers(3, size=150)],
    )
    for one, other in ((x, y), (x, y + 0.2 * x), (kind, x), (x, (x + y > 0).astype(float))):
        test = library().test([one, other, z], "kci")
        assert test(0, 1, (2,)) == pytest.approx(KCI_CInd().compute_pvalue(one, other, z)[0], abs=1e-3)
        assert test(0, 1, ()) == pytest.approx(KCI_UInd().compute_pvalue(one, other)[0], abs=1e-3)


def test_a_mediator_takes_the_edge_away() -> None:
    rng, columns = np.random.default_rng(4), world()
    columns["serp_other"] = columns["position"] + rng.normal(size=400)  # follows rank, and nobody clicks for it
    graph = found(columns, sample=400)
    assert "serp_other" not in graph.parents("click")
    assert {"position", "serp_other"} in [edge.pair for edge in graph.edges]


@pytest.mark.parametrize("test", ["rcit", "gsq"])
def test_the_same_seed_gives_the_same_graph(test: str) -> None:
    state = np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    first, again = (found(world(), test=test, seed=3) for _ in range(2))
    assert first == again
    assert np.random.get_state()[1].tolist() == state  # type: ignore[union-attr]


def test_repetitions_say_how_often() -> None:
    graph = found(world(800), repeats=4, sample=200)
    by_name = {str(edge): edge.frequency for edge in graph.edges}
    assert by_name["relevance -> click"] == 1.0
    assert by_name["position -> click"] is not None
    assert by_name["position -> click"] >= 0.75
    assert graph.facts["repeats"] == 4


def test_a_search_cut_short_leaves_causes_too_many_and_never_none() -> None:
    """No test made is the full graph; every further one may only take edges away."""
    edges = []
    for tests in (0, 1, 3, 8, None):
        graph = found(world(), tests=tests, test="gsq")
        edges.append({edge.pair for edge in graph.edges})
        assert graph.facts["tests"] <= (100 if tests is None else tests)
        assert any("edges that were left stay" in note for note in graph.notes) == (tests in (0, 1, 3))
    assert len(edges[0]) == 6
    assert all(later <= before for before, later in itertools.pairwise(edges))
    assert edges[-1] == edges[3] < edges[0]
    with pytest.raises(ConfigError, match="kci takes 5000 impressions at most"):
        found(world(), sample=5001, test="kci")


def test_kernels_are_asked_where_counts_part_numbers_that_were_cut() -> None:
    """In the second quarter of a number, which counts take as one, clicks turn from side to side."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=4000)
    low, high = np.quantile(size, [0.25, 0.5])
    within = (size - low) / (high - low)
    chance = 0.5 + 0.45 * np.where((within > 0) & (within < 1), np.sin(2 * np.pi * within), 0.0)
    columns = {"serp_size": size, "serp_kind": np.array(list("ab") * 2000), "click": rng.random(4000) < chance}
    counts, both = (found(columns, test=test, sample=4000) for test in ("gsq", "both"))
    assert counts.parents("click") == ()
    assert both.parents("click") == ("serp_size",)
    made = variables_of(columns)
    tests = TieredTests((made, made), Discovery(test="both"))
    assert tests._cut == {made.names.index("serp_size")}
    assert len(tests._kernels[0].variables[0]) == 1000


def test_never_a_forbidden_edge_whatever_the_data(log: Log) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        columns = {name: rng.integers(3, size=200) for name in NAMES[:3]}
        columns["click"] = rng.integers(2, size=200)
        graph = found(columns, test="gsq", seed=seed, alpha=0.5)  # making the graph checks it
        assert graph.has("relevance", "click")


def test_worlds_with_a_known_page() -> None:
    lists = make_lists(queries=300, features=8, documents=12, seed=7)
    for page, expected in (
        (WholePage(sees=0.0, lure=(0.0, 0.4, 0.8)), {"relevance", "position", "serp_media"}),
        (WholePage(lure=(0.0,), severity=0.0, sees=2.0), {"relevance", "serp_height"}),
    ):
        graph = unskew.causes(
            simulate(lists, page, pages=3_000, seed=2, truth=True), relevance="true_relevance", sample=500
        )
        assert set(graph.parents("click")) == expected
        assert (
            graph.has("serp_media", "serp_height")
            or graph.has("serp_height", "serp_media")
            or any(edge.pair == {"serp_media", "serp_height"} for edge in graph.edges)
        )


# ---- samples ----


def test_samples_are_bounded_seeded_and_have_clicks(tmp_path: Path, log: Log, engine: Engine) -> None:
    write_log(log, tmp_path / "log.parquet")
    table = engine.read_parquet(tmp_path / "log.parquet")

    def draw(seed: int) -> tuple[Any, Array]:
        return sample_table(engine, table, ["serp_media"], 200, seed=seed, place="log")

    rows, extra = draw(0)
    again, _ = draw(0)
    other, _ = draw(1)
    assert rows.equals(again)
    assert not rows.equals(other)
    assert (~extra).sum() == 200
    click = rows["click"].to_numpy()
    assert click.sum() >= 100
    assert click[extra].all()
    keys = set(zip(rows["page_id"].to_pylist(), rows["position"].to_pylist(), strict=True))
    assert len(keys) == len(rows)


# ---- the command ----


def test_the_command_writes_a_graph_and_a_report(tmp_path: Path, log: Log) -> None:
    write_log(log, tmp_path / "log.parquet")
    words = ["causes", str(tmp_path / "log.parquet"), "--relevance", "true_relevance", "--sample", "200"]
    ended = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "found"), "--json"])
    assert ended.exit_code == 0, ended.output
    written = json.loads((tmp_path / "found" / "graph.json").read_text())
    assert json.loads(ended.stdout) == written
    assert CausalGraph.from_dict(written).has("relevance", "click")
    names = sorted(path.name for path in (tmp_path / "found").iterdir())
    assert names == ["figure.svg", "graph.dot", "graph.json", "page.json", "report.html", "table.md"]
    ended = CliRunner().invoke(app, words)
    assert "clicks depend on" in ended.stdout


def test_a_run_can_stand_for_relevance(tmp_path: Path, log: Log) -> None:
    run = unskew.learn(log, "naive", ranker="linear", steps=30)
    run.save(tmp_path / "run")
    write_log(log, tmp_path / "log.parquet")
    unskew.write_letor(log.lists, tmp_path / "lists.txt")
    graph = unskew.causes(
        tmp_path / "log.parquet",
        run=tmp_path / "run",
        features=[str(tmp_path / "lists.txt")],
        sample=200,
        factors=[],
    )
    assert graph.variables == ("relevance", "position", "click")
    assert graph.has("relevance", "position")


def test_without_relevance_it_is_said(log: Log) -> None:
    graph = unskew.causes(log, factors=["serp_media"], sample=100)
    assert graph.variables == ("position", "serp_media", "click")
    assert "nothing stands for relevance" in graph.notes[-1]


def test_errors_name_what_was_given(tmp_path: Path, log: Log) -> None:
    with pytest.raises(DataError, match="missing columns: serp_colour; there are"):
        unskew.causes(log, factors=["serp_colour"])
    with pytest.raises(ConfigError, match="give run= with features="):
        unskew.causes(log, run="run")
    with pytest.raises(ConfigError, match="alpha"):
        unskew.causes(log, alpha=2.0)
    write_log(log, tmp_path / "log.parquet")
    with pytest.raises(DataError, match="serp_colour"):
        unskew.causes(tmp_path / "log.parquet", factors=["serp_colour"])


def test_pages_and_figures(tmp_path: Path) -> None:
    graph = graph_of(NAMES, [("relevance", "position"), ("position", "click")])
    page = causes_page(graph)
    assert page.lead.startswith("Besides relevance, clicks depend on position.")
    write_page(page, tmp_path)
    assert "relevance" in (tmp_path / "figure.svg").read_text()
    assert graph_figure(graph_of(("relevance", "click"), []), "one").to_dict()["title"] == "one"
