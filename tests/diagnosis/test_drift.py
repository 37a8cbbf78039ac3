"""Two logs compared: no drift where there is none, changed curves and changed mixes told apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unskew
from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.drift import Drift, common_sums, curve_drift, drift, same_mix
from unskew.diagnosis.evidence.tables import BUCKETS
from unskew.errors import ConfigError
from unskew.logs.log import write_log
from unskew.simulation import PositionBias, ScoresLogger, logging_scores, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.engine.engine import Engine, connect
from unskew.types import Log

LISTS = make_lists(queries=120, features=5, documents=(6, 9), seed=1)
LOGGER = ScoresLogger(values=logging_scores(LISTS, "svm", 0))
SEEDS = 4


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with connect("duckdb", threads=1) as made:
        yield made


def log(seed: int, *, severity: float = 1.0, pages: int = 1500, shuffled: float = 0.1) -> Log:
    people = PositionBias(severity=severity)
    return simulate(LISTS, people, pages=pages, seed=seed, cutoff=6, logger=LOGGER, randomized=shuffled)


def states(found: Drift) -> dict[str, str]:
    return {each.name: each.state for each in found.findings}


def test_the_same_world_twice_has_not_drifted(engine: Engine) -> None:
    found = [drift(log(2 * seed), log(2 * seed + 1), engine=engine) for seed in range(SEEDS)]
    assert sum(bool(each.changed) for each in found) <= 1
    assert {each.propensities for each in found} <= {"hold", "cannot tell"}


def test_a_changed_curve_is_found_though_the_mix_holds(engine: Engine) -> None:
    found = drift(log(0, pages=3000), log(1, severity=0.4, pages=3000), engine=engine)
    assert found.propensities == "do not hold"
    assert (
        {"click curve", "clicks per page"}
        <= set(found.changed)
        <= {"click curve", "clicks per page", "examination"}
    )
    before, now = (PositionBias(severity=each).examination(6) for each in (1.0, 0.4))
    at_two = found["click curve"].numbers["ratio_by_rank"]["2"]  # type: ignore[index]
    assert at_two[1] < now[1] / now[0] / (before[1] / before[0]) < at_two[2]


def test_a_changed_mix_is_found_while_the_curve_holds(engine: Engine) -> None:
    old, new = log(0, pages=4000), log(1, pages=6000)
    rare = new.take(np.flatnonzero((new.query % 3 == 0) | (np.arange(len(new)) % 4 == 0)))
    found = drift(old, rare, engine=engine)
    assert states(found)["queries"] == "present"
    assert states(found)["click curve"] == "absent"
    assert found.propensities == "hold"
    assert "Changed: queries" in found.sentence


def test_the_mix_of_devices_is_compared_unasked(engine: Engine) -> None:
    logs = []
    for seed, phones in ((0, 0.3), (1, 0.6)):
        made = log(seed)
        rng = np.random.default_rng(seed)
        kinds = np.where(rng.random(len(made)) < phones, "phone", "desk")
        columns = {"serp_device": np.repeat(kinds, made.sizes), "serp_number": rng.random(len(made.row))}
        logs.append(replace(made, columns=columns))
    found = drift(*logs, engine=engine)
    assert found.changed == ("serp_device",)
    assert "serp_number" not in states(found)  # too many values for a mix
    assert found["serp_device"].numbers["divergence"] == pytest.approx(0.07, abs=0.03)  # type: ignore[index]


def test_new_queries_and_documents_are_found(engine: Engine) -> None:
    both = log(0, pages=4000)
    first = both.query < 80
    found = drift(both.take(first), both.take(~first), engine=engine)
    assert states(found)["queries"] == "present"
    assert states(found)["click curve"] == "cannot tell"
    assert found["queries"].numbers["new_share"] == 1  # type: ignore[index]
    assert "no queries in common" in found["queries"].text


def test_sums_over_what_both_show_are_those_of_mantel_and_haenszel(engine: Engine) -> None:
    logs = log(3, pages=200), log(4, pages=150)
    cells: list[dict[tuple[int, int, int], list[int]]] = [{}, {}]
    for each, into in zip(logs, cells, strict=True):
        page = np.repeat(each.query, each.sizes)
        for query, row, position, click in zip(page, each.row, each.position, each.click, strict=True):
            cell = into.setdefault((int(query), int(row), int(position)), [0, 0])
            cell[0] += 1
            cell[1] += int(click)
    over = under = 0.0
    for key in set(cells[0]) & set(cells[1]):
        if key[2] == 2:
            (n0, c0), (n1, c1) = cells[0][key], cells[1][key]
            over, under = over + c1 * n0 / (n0 + n1), under + c0 * n1 / (n0 + n1)
    up, down = common_sums(*(open_tables(each, engine=engine) for each in logs))
    assert up[:, 1].sum() == pytest.approx(over)
    assert down[:, 1].sum() == pytest.approx(under)


def test_a_level_that_changes_alike_at_every_rank_leaves_propensities_alone() -> None:
    down, up = np.random.default_rng(1).poisson(40, (2, BUCKETS, 6)).astype(float)
    assert curve_drift(2 * up, down).state == "absent"
    assert curve_drift(up * [1, 1, 1.2, 1, 1, 1], down).state == "present"


def test_divergence_and_the_test_of_one_mix() -> None:
    one, other = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    by_hand = 0.0
    for share in (one, other):
        by_hand += sum(p * math.log2(p / m) for p, m in zip(share, (0.375, 0.625), strict=True)) / 2
    old, new = ({"a": int(1000 * share[0]), "b": int(1000 * share[1])} for share in (one, other))
    assert same_mix(old, new)[1] == pytest.approx(by_hand)
    draws = np.random.default_rng(1).multinomial(2000, np.full(30, 1 / 30), size=(200, 2))
    found = [same_mix(*({str(v): int(n) for v, n in enumerate(each)} for each in pair)) for pair in draws]
    assert np.mean([each[0] < 0.05 for each in found]) == pytest.approx(0.05, abs=0.05)
    assert np.mean([each[1] for each in found]) == pytest.approx(found[0][2], rel=0.15)  # what chance gives


def test_logs_in_files_and_what_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_log(log(0), first)
    write_log(log(1), second)
    found = unskew.drift(first, second, out=tmp_path / "drift.html")
    assert not found.changed
    assert "still hold" in (tmp_path / "drift.html").read_text()
    with pytest.raises(ConfigError, match="twice: give the logs of two times"):
        unskew.drift(first, first)
    few = drift(log(0, pages=20), log(1))
    assert few.propensities == "cannot tell"
    assert "fewer than 50 pages" in few["queries"].text
