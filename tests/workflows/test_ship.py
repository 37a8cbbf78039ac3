"""May it ship? Bounds that hold, exposure by group, decisions with statuses, from Python and the shell."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import CANNOT_TELL, NO, ConfigError, DataError
from unskew.logs.log import write_log
from unskew.measuring import ClickEvidence, GainEstimate, LoggedPages
from unskew.measuring.shipping import (
    ExposureSums,
    RandomGains,
    Shipping,
    Watched,
    bernstein_bound,
    decided,
    familiarity_of,
)
from unskew.simulation import FeatureLogger, PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Lists, Log

LISTS = make_lists(queries=60, features=5, documents=(6, 8), seed=1)


def log(pages: int = 3000, shuffled: float = 0.5, seed: int = 0) -> Log:
    wrong = FeatureLogger(column=int(LISTS.confounder or 0))
    return simulate(LISTS, PositionBias(), pages=pages, seed=seed, cutoff=6, logger=wrong, randomized=shuffled)


def scores(lists: Lists, values: Array) -> pa.Table:
    ids = np.repeat(lists.query_ids, lists.sizes)
    return pa.table({"query_id": ids, "doc_id": lists.document_ids(), "score": np.asarray(values, float)})


GOOD, BAD = scores(LISTS, LISTS.labels), scores(LISTS, -LISTS.labels)


def pages(shuffled: Array | None = None) -> LoggedPages:
    """Two pages of three results, one of a visit each; the second is shuffled."""
    random = np.array([False] * 3 + [True] * 3) if shuffled is None else shuffled
    clicks, places = np.array([1.0, 0, 0, 0, 1, 1]), np.array([1, 2, 3, 1, 2, 3])
    return LoggedPages(
        np.array([0, 3, 6]), places, clicks, random, np.zeros(2, int), np.array([0, 1, 2, 2, 1, 0]), np.arange(2)
    )


# ---- bounds


def test_bernstein_is_that_of_maurer_and_pontil_and_holds_far_more_often_than_asked() -> None:
    values = np.array([0.2, -0.1, 0.4, 0.0])
    mean, log_term = 0.125, math.log(2 / 0.1)
    variance = sum((x - mean) ** 2 for x in values) / 3
    by_hand = mean - math.sqrt(2 * variance * log_term / 4) - 7 * 2 * log_term / (3 * 3)
    assert bernstein_bound(values, 2.0, 0.1) == pytest.approx(by_hand)
    rng = np.random.default_rng(0)
    missed = sum(bernstein_bound(rng.binomial(1, 0.1, 200).astype(float), 1.0, 0.05) > 0.1 for _ in range(500))
    assert missed / 500 <= 0.05
    assert bernstein_bound(values[:1], 2.0, 0.1) == -math.inf


def test_gains_of_random_slots_by_cluster() -> None:
    found = RandomGains()
    shown, turned = np.array([1, 2, 3] * 2), np.array([3, 2, 1] * 2)
    found.add(pages(), turned, shown)
    # clicks at 2 and 3, now at 2 and 1: 1 + 1 / log2 3 - (1 / 2 + 1 / log2 3)
    assert found.held.sums.tolist() == [[pytest.approx(0.5), pytest.approx(0.5 + 1 / math.log2(3)), 1.0]]
    assert found.most == pytest.approx(0.5)
    assert found.lower(0.05) == -math.inf  # one cluster
    none = RandomGains()
    none.add(pages(np.zeros(6, bool)), turned, shown)
    assert none.lower(0.05) is None


# ---- exposure


def test_exposure_by_group_is_what_places_are_worth() -> None:
    sums = ExposureSums()
    group = np.array(["a", "b", "b", "b", "b", "a"])
    sums.add(pages(), np.array([3, 2, 1] * 2), np.array([1, 2, 3] * 2), group)
    ladder = [1, 1 / math.log2(3), 0.5]
    total = 2 * sum(ladder)
    found = {each.group: each for each in sums.groups()}
    assert found["a"].other == pytest.approx((ladder[0] + ladder[2]) / total)
    assert found["a"].new == pytest.approx((ladder[2] + ladder[0]) / total)
    assert sum(each.new for each in found.values()) == pytest.approx(1)
    assert [each.group for each in sums.familiarity()] == ["new"]  # each was shown twice


def test_familiarity_cuts_impressions_into_thirds() -> None:
    assert familiarity_of(np.array([9.0, 30, 0, 30, 30])).tolist() == [3, 2, 2, 1, 0]


# ---- decisions


@pytest.mark.parametrize(
    ("ranking", "pages", "shuffled", "decision"),
    [(GOOD, 3000, 0.5, "ship"), (BAD, 3000, 0.5, "do not ship"), (GOOD, 80, 0.1, "cannot tell")],
    ids=["better", "worse", "few pages"],
)
def test_a_decision_has_the_right_sign(ranking: pa.Table, pages: int, shuffled: float, decision: str) -> None:
    found = unskew.ship(ranking, log(pages, shuffled))
    assert found.decision == decision
    assert found.status == {"ship": 0, "do not ship": NO, "cannot tell": CANNOT_TELL}[decision]
    assert found.sentence.startswith(decision.capitalize())
    assert {each.group for each in found.familiarity} <= {"head", "middle", "tail", "new"}


def evidence(*intervals: tuple[float, float]) -> ClickEvidence:
    """Better by estimates with these intervals, relative to 1, on different grounds."""
    ones = tuple(
        GainEstimate(name, "", "random", "", 1.0 + sum(ends) / 2, 1.0, sum(ends) / 2, ends)
        for name, ends in zip(("ips", "swaps"), intervals, strict=True)
    )
    return ClickEvidence(ones, "better", "Better.", "", ("ips", "swaps"), None, None)


def test_the_lowest_bound_of_all_estimates_decides_and_no_single_one_forbids() -> None:
    found = evidence((0.02, 0.06), (0.05, 0.3))

    def asked(at_least: float) -> Shipping:
        return decided(found, Watched(10), "new", "shown", risk=0.05, at_least=at_least, bound="auto")

    assert asked(0.0).bound == 0.02
    assert asked(0.01).decision == "ship"
    assert asked(0.03).decision == "cannot tell"
    assert asked(0.1).decision == "cannot tell"  # one says that it is less, the other that it may well be more
    assert asked(0.4).decision == "do not ship"


def test_the_bound_of_random_slots_has_the_risk_that_was_asked_for() -> None:
    watched, rng = Watched(10), np.random.default_rng(0)
    clicks = np.array([[0, 0, 1], [0, 1, 0]])[rng.integers(2, size=400)]
    many = LoggedPages(
        np.arange(401) * 3,
        np.tile([1, 2, 3], 400),
        clicks.ravel().astype(float),
        np.ones(1200, bool),
        np.zeros(400, int),
        np.tile(np.arange(3), 400),
        np.arange(400),
    )
    watched(many, np.tile([3, 2, 1], 400), np.tile([1, 2, 3], 400), None)
    found = decided(evidence((0.1, 0.2), (0.1, 0.2)), watched, "new", "shown", risk=0.1, at_least=0, bound="auto")
    gain, base = clicks @ [-0.5, 0, 0.5], clicks @ [1, 1 / math.log2(3), 0.5]
    # a page gains at most 1/2 or loses as much
    noise = math.sqrt(2 * gain.var(ddof=1) * math.log(2 / 0.1) / 400)
    lower = gain.mean() - noise - 7 * 1.0 * math.log(2 / 0.1) / (3 * 399)
    assert found.bernstein == pytest.approx(lower / base.mean())


def test_more_can_be_asked_for_than_there_is() -> None:
    one = log()
    bound = unskew.ship(GOOD, one, bound="bootstrap").bound
    assert bound is not None
    assert unskew.ship(GOOD, one, at_least=0.9 * bound, bound="bootstrap").decision == "ship"
    assert unskew.ship(GOOD, one, at_least=1.1 * bound, bound="bootstrap").decision == "cannot tell"
    assert unskew.ship(GOOD, one, at_least=10.0, bound="bootstrap").decision == "do not ship"
    assert unskew.ship(BAD, one, at_least=-0.9).decision == "do not ship"  # worse, however little is asked for


def test_bernstein_is_wider_and_a_smaller_risk_asks_for_more() -> None:
    one = log()
    narrow, wide = (unskew.ship(GOOD, one, bound=kind) for kind in ("bootstrap", "bernstein"))
    assert narrow.bound is not None
    assert wide.bound is not None
    assert wide.bound < narrow.bound
    assert (narrow.by, wide.by) == ("bootstrap", "bernstein")
    careful = unskew.ship(GOOD, one, bound="bootstrap", risk=0.001)
    assert careful.bound is not None
    assert careful.bound < narrow.bound
    assert careful.evidence.level == pytest.approx(0.998)  # the lower end alone is what may be wrong
    assert unskew.ship(GOOD, log(shuffled=0.0), bound="bernstein").by == "none"


def peopled(one: Log, few: Array, clicked: Array, users: int) -> Log:
    """A log of 300 people; pages [S] are of so many others, who click on some documents and on nothing else."""
    rng = np.random.default_rng(7)
    person = np.where(few, 1000 + rng.integers(users, size=len(few)), rng.integers(300, size=len(few)))
    click = np.where(np.repeat(few, one.sizes), np.isin(one.row, np.flatnonzero(clicked)), one.click)
    columns = {**one.columns, "user_id": np.repeat(person, one.sizes)}
    return replace(one, click=click.astype(one.click.dtype), columns=columns)


@pytest.mark.parametrize(("share", "users"), [(0.3, 1), (0.1, 4)], ids=["one user", "bots of a seller"])
@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "in files"])
def test_what_a_few_clicked_up_does_not_ship(tmp_path: Path, share: float, users: int, stored: bool) -> None:
    one, rng = log(), np.random.default_rng(5)
    sold = np.arange(len(LISTS.labels)) - np.repeat(LISTS.offsets[:-1], LISTS.sizes) == 3  # one of each query
    ranking = scores(LISTS, 5.0 * sold + rng.random(len(sold)))  # what they click on first, the rest by chance
    few = rng.random(len(one)) < share
    at: Any = peopled(one, few, sold, users)
    if stored:
        write_log(at, tmp_path / "log.parquet")
        at = tmp_path / "log.parquet"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each holds a large share
        found = unskew.ship(ranking, at)
    assert found.decision != "ship"
    assert found.evidence.heavy is not None
    assert (found.evidence.heavy.unit, found.evidence.heavy.count) == ("user", users)
    assert found.evidence.heavy.share > share
    assert unskew.ship(ranking, replace(peopled(one, few, sold, users), columns={})).decision == "ship"


def test_a_user_with_a_large_share_of_the_clicks_is_warned_of(tmp_path: Path) -> None:
    one = log()
    few = np.random.default_rng(5).random(len(one)) < 0.06
    with pytest.warns(UserWarning, match="one user holds 23% of all clicks"):
        found = unskew.ship(GOOD, peopled(one, few, LISTS.labels > 1, 1), out=tmp_path / "ship.html")
    assert (
        "Without the clicks of 1 user, the most and 23% of all, it holds." in (tmp_path / "ship.html").read_text()
    )
    assert found.decision == "ship"  # and so say all the others
    assert found.evidence.heavy is not None
    assert found.evidence.heavy.holds


def test_groups_come_from_the_log_its_features_or_nowhere(tmp_path: Path) -> None:
    one = log()
    path, kinds = tmp_path / "log.parquet", tmp_path / "kinds.parquet"
    write_log(one, path)
    pq.write_table(
        GOOD.drop_columns("score").append_column("kind", pa.array(np.where(LISTS.labels > 1, "good", "poor"))),
        kinds,
    )
    found = unskew.ship(GOOD, path, group="kind", features=[kinds], out=tmp_path / "ship.html")
    change = {each.group: each.change for each in found.groups}
    assert change["good"] > 0 > change["poor"]
    assert found.groups[0].group == "poor"
    assert "poor documents are seen" in found.sentence
    assert "Who is seen more" in (tmp_path / "ship.html").read_text()
    with pytest.raises(DataError, match="there is no column colour"):
        unskew.ship(GOOD, path, group="colour")


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"risk=: input should be less than 0\.5, not 0\.7"):
        unskew.ship(GOOD, log(50), risk=0.7)
    with pytest.raises(ConfigError, match=r"bound=: unknown name 'boot'\. Did you mean bootstrap"):
        unskew.ship(GOOD, log(50), bound="boot")  # type: ignore[arg-type]


def test_json_has_everything() -> None:
    told = json.loads(json.dumps(unskew.ship(GOOD, log()).to_dict()))
    assert {"decision", "status", "bound", "by", "evidence", "familiarity", "groups"} <= set(told)


def test_the_python_of_the_how_to_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "how_to" / "ship.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    for name, seed in (("log", 0), ("later", 1)):
        write_log(log(seed=seed), tmp_path / f"{name}.parquet")
    features = tmp_path / "products.parquet"
    pq.write_table(GOOD.drop_columns("score").append_column("x", pa.array(LISTS.features[:, 0])), features)
    monkeypatch.chdir(tmp_path)
    unskew.learn("log.parquet", features=features, method="naive", ranker="linear", steps=5, out="runs/new")
    found: dict[str, Any] = {}
    for block in blocks:
        names: dict[str, Any] = {}
        exec(compile(block, "ship.md", "exec"), names)  # our own documentation
        found[type(names["found"]).__name__] = names["found"]
    assert found["Shipping"].decision in ("ship", "do not ship", "cannot tell")
    assert found["Drift"].propensities in ("hold", "cannot tell")
