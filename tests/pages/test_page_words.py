"""What pages say: the best of a column or why there is none, what was simulated, methods in a line, commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from unskew.learning.methods import LEARNERS
from unskew.logs.log import simulated_by, write_log
from unskew.measuring import SeedSummary
from unskew.options.logs import SimulateArguments, TrafficArguments
from unskew.pages.numbers import Value, command_line, metric_title, with_best
from unskew.pages.origins import GENERATED, behaviour_words, log_origin, simulated_on
from unskew.pages.page import BEST, Table
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.studies.terms import method_term
from unskew.workflows.twins.simulate import simulate_to, traffic_to
from unskew_reproductions.behaviours import ClickMatrix

TABLE = Table(
    ("method", "nDCG@10", "ARP"), [["naive", "", ""], ["dla", "", ""], ["ipw", "", ""], ["labeled", "", ""]]
)


def marked(*columns: list[Value | None], lowest: tuple[int, ...] = ()) -> Table:
    return with_best(TABLE, dict(enumerate(columns, start=1)), among="methods", spread="sd", lowest=lowest)


# ------------------------------------------------------------------------------------------- the best of a column


def test_the_highest_is_marked_where_it_is_ahead_by_more_than_the_spread() -> None:
    table = marked([Value(0.5, 0.01), Value(0.7, 0.02), Value(0.6, 0.09), None])
    assert table.marks == {(1, 1): BEST}
    assert table.legend == "★ highest of its column among methods."


def test_numbers_within_the_spread_are_not_told_apart() -> None:
    table = marked([Value(0.5, 0.01), Value(0.7, 0.02), Value(0.685, 0.001), None])
    assert table.marks == {(1, 1): "≈", (2, 1): "≈"}
    assert table.legend == "≈ within the spread of the best (sd): none of these is marked."
    level = marked([Value(0.5, 0.2), Value(0.6, 0.1), Value(0.55), None])
    assert level.marks == {}
    assert level.legend == "nDCG@10: all of methods lie within the spread of the best (sd), none is marked."


def test_the_lowest_is_the_best_where_less_is_better() -> None:
    table = marked([None] * 4, [Value(9.0), Value(7.0), Value(8.0), None], lowest=(2,))
    assert table.marks == {(1, 2): BEST}
    assert "lowest of its column" in table.legend
    both = marked([Value(1.0), Value(2.0), None, None], [Value(9.0), Value(7.0), None, None], lowest=(2,))
    assert both.legend == "★ best of its column among methods."


def test_a_number_alone_or_missing_is_not_marked() -> None:
    assert marked([Value(0.5), None, None, None]).marks == {}
    assert marked([Value(0.5), Value(float("nan")), None, None]).marks == {}
    assert marked([None] * 4).legend == ""
    assert Value.of(SeedSummary(0.5, float("nan"), 1)) == Value(0.5, 0.0)


# ------------------------------------------------------------------------------------------- simulated or real


def test_the_kind_of_a_behaviour_is_told_and_not_its_label() -> None:
    assert behaviour_words(PositionBias(severity=0.5)) == "position bias, severity 0.5"
    assert behaviour_words(ClickMatrix()) == "click matrix"
    assert behaviour_words(type("Mine", (ClickMatrix,), {"called": ""})()) == "Mine"
    twice = simulated_on([PositionBias(), PositionBias()], ["the real lists of MQ2008", GENERATED])
    assert twice.startswith(
        "Clicks simulated (position bias, severity 1) on the real lists of MQ2008 and on generated"
    )
    assert twice.endswith("no real user was involved.")


def test_a_simulated_log_says_so_in_its_file(tmp_path: Path) -> None:
    small = {"lists": ["synthetic"], "pages": 50, "queries": 20, "features": 4, "documents": 5}
    simulate_to(SimulateArguments(out=tmp_path / "a.parquet", **small))
    traffic_to(TrafficArguments(out=tmp_path / "b.parquet", **small))
    assert simulated_by(tmp_path / "a.parquet") == "position bias, severity 1"
    assert simulated_by(tmp_path / "b.parquet") == "a search engine with trust bias"
    assert log_origin(tmp_path / "a.parquet").startswith("A simulated log, ")
    log = simulate(make_lists(20, 4, 5, seed=0), pages=50, seed=0)
    write_log(log, tmp_path / "c.parquet")
    told = log_origin(tmp_path / "c.parquet")
    assert told.endswith("c.parquet: nothing in its files says that it was simulated.")
    (tmp_path / "parts").mkdir()
    true = {"true_examination": np.ones(len(log.row))}
    write_log(type(log)(**vars(log) | {"columns": true}), tmp_path / "parts" / "d.parquet")
    assert simulated_by(tmp_path / "parts") == "it has a column true_examination"
    (tmp_path / "text.parquet").write_text("no Parquet")
    assert simulated_by(tmp_path / "text.parquet") is simulated_by(tmp_path / "nowhere") is None


# ------------------------------------------------------------------------------------------- methods and commands


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_every_method_has_a_line_and_a_paper(name: str) -> None:
    found = method_term(name, name)
    assert 15 < len(found.says) < 120
    assert found.says.endswith(".")
    assert found.paper[0].isupper()
    assert "\n" not in found.paper
    assert method_term("mine", name).says == f"{name}: {found.says}"
    assert method_term("mine", name, "a = 1").says == f"{name} with a = 1: {found.says}"


def test_a_command_is_read_back_as_it_was_meant() -> None:
    unset = {"jobs": None, "force": False, "data": []}
    text = command_line("reproduce", "a b", on=["x", "y"], seeds=3, quick=True, **unset)
    assert shlex.split(text) == [
        "unskew",
        "reproduce",
        "a b",
        *["--on", "x", "--on", "y", "--seeds", "3", "--quick"],
    ]


def test_metrics_are_written_in_one_way() -> None:
    found = [metric_title(name) for name in ("ndcg@5", "err@1", "dcg@10", "arp", "arp_legacy", "mine")]
    assert found == ["nDCG@5", "ERR@1", "DCG@10", "ARP", "ARP over slots", "mine"]
