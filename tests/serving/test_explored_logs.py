"""Logs of every policy: ingest takes them, examination is found in them, and rankings are judged without bias."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import unskew
from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.evidence.evidence import measured
from unskew.measuring import GainEstimate, Judge, LoggedPages, places
from unskew.serving.explore import BoundedShuffle, PlackettLuce, Policy, SwapRanks, TeamDraft, TopOne, policy_from
from unskew.serving.service.impressions import ImpressionLog
from unskew.types import Log
from unskew_reproductions.experiments.visitors import Visitors

PAGES, RANKS = 800, 6
SECRET = b"0"
"""Of coins that fall evenly: errors of swaps add up along the ranks, so that one miss is often several."""
LISTS = unskew.make_lists(30, features=4, documents=(RANKS, RANKS), seed=0)
BEHAVIOUR = unskew.behaviours.PositionBias(noise=0.2)
EXAMINATION = np.array(BEHAVIOUR.curve[:RANKS]) / BEHAVIOUR.curve[0]
SERVED = LISTS.labels + np.random.default_rng(0).normal(0, 4, len(LISTS.labels))
OTHER = LISTS.labels + np.random.default_rng(1).normal(0, 0.3, len(LISTS.labels))
POLICIES: dict[str, Policy] = {
    "top_one": TopOne(share=0.8),
    "swaps": SwapRanks(swaps=[{"ranks": [rank, rank + 1], "share": 0.2} for rank in range(1, RANKS)]),
    "shuffle": BoundedShuffle(share=0.5),
    "shuffle capped": BoundedShuffle(cap=2),
    "plackett_luce": PlackettLuce(temperature=4.0),
    "team_draft": TeamDraft(first="old", second="new"),
}


def serve(log: ImpressionLog, name: str, visitors: Visitors) -> None:
    for number in range(PAGES):
        query, page = visitors.ask(), f"{name}-{number}"
        rows = visitors.candidates(query)
        orders = [np.argsort(-scores[rows], kind="stable") for scores in (SERVED, OTHER)]
        made = POLICIES[name].rank(orders[0], SERVED[rows], request_id=page, secret=SECRET, other=orders[1])
        log.shown(page, query, range(RANKS), made)
        for slot in np.flatnonzero(visitors.click(rows[made.order])):
            log.clicked(page, int(made.order[slot]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("explored")
    visitors = Visitors(LISTS, BEHAVIOUR, seed=0)
    with ImpressionLog(made / "served") as log:
        for name in POLICIES:
            serve(log, name, visitors)
    summary = unskew.ingest(made / "served", made / "log")
    assert not summary.rejected.rows
    return made / "log"


@pytest.fixture(scope="module")
def logs(place: Path) -> dict[str, Log]:
    log = unskew.read_log(place, LISTS)
    assert len(log) == PAGES * len(POLICIES)
    own = np.array([page.rpartition("-")[0] for page in log.columns["page_id"].astype(str)[log.offsets[:-1]]])
    return {name: log.take(own == name) for name in POLICIES}


def expected_clicks(scores: np.ndarray) -> float:
    """Of a page ordered by scores, by the definition of position bias."""
    good = BEHAVIOUR.noise + (1 - BEHAVIOUR.noise) * (2.0**LISTS.labels - 1) / (2.0**4 - 1)
    order = np.lexsort((-scores, np.repeat(np.arange(len(LISTS)), RANKS)))
    curve = np.array(BEHAVIOUR.curve[:RANKS])
    return float((good[order].reshape(-1, RANKS) * curve).sum(1).mean())


def judged(log: Log, new: np.ndarray, other: np.ndarray) -> GainEstimate:
    pages, judge = LoggedPages.from_log(log), Judge(metric="clicks")
    judge.add(pages, *(places(scores[log.row], pages) for scores in (new, other)))
    return judge.finish()["item-position"]


@pytest.mark.parametrize("name", POLICIES)
def test_the_known_examination_is_within_its_intervals(name: str, logs: dict[str, Log]) -> None:
    with open_tables(logs[name]) as tables:
        found = measured(tables)
    low, high = np.array([each or (0.0, np.inf) for each in found.interval]).T
    truth = EXAMINATION[: len(low)]
    assert len(truth) >= 4
    assert ((low <= truth) & (truth <= high)).sum() >= len(truth) - 1  # of intervals at 95 %


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "team_draft"])
def test_logged_chances_judge_the_served_order_without_bias(name: str, logs: dict[str, Log]) -> None:
    log, truth = logs[name], expected_clicks(SERVED)
    pages = LoggedPages.from_log(log)
    at_home = places(SERVED[log.row], pages) == log.position
    worth = np.add.reduceat(log.click * at_home / log.columns["propensity"], log.offsets[:-1])
    error = worth.std() / len(log) ** 0.5
    found = judged(log, SERVED, SERVED)
    assert found.new == pytest.approx(worth.mean())
    assert found.new == pytest.approx(truth, abs=3.5 * error)
    assert error < 0.1 * truth


def test_another_order_is_judged_where_chance_tries_it_and_else_not(logs: dict[str, Log]) -> None:
    found = {name: judged(log, OTHER, SERVED) for name, log in logs.items()}
    told = [name for name, each in found.items() if each.new is not None]
    assert told == ["shuffle", "plackett_luce"]  # others cannot put every result anywhere
    for name in told:
        assert found[name].new == pytest.approx(expected_clicks(OTHER), rel=0.3)
    assert "chance worth the name" in found["swaps"].reason


def test_an_interleaved_log_is_judged_as_an_experiment(place: Path, tmp_path: Path) -> None:
    rows = pq.read_table(place / "impressions")
    pq.write_table(
        rows.filter(pc.equal(rows["policy_id"], POLICIES["team_draft"].policy_id)), tmp_path / "a.parquet"
    )
    found = unskew.experiment(tmp_path / "a.parquet", control="old")
    assert (found.kind, found.verdict, found.trusted) == ("interleaving", "better", True)


def test_the_plan_of_a_diagnosis_is_served(logs: dict[str, Log], tmp_path: Path) -> None:
    found = unskew.diagnose(logs["team_draft"])
    (tmp_path / "report.json").write_text(json.dumps(found.to_dict()))
    policy = policy_from("swaps", swap_plan=tmp_path / "report.json")
    assert isinstance(policy, SwapRanks)
    assert [(list(swap.ranks), swap.share) for swap in policy.swaps] == [
        (swap["ranks"], swap["share"]) for swap in found.swap_plan
    ]
    assert all(high - low == 1 for low, high in (swap.ranks for swap in policy.swaps))
