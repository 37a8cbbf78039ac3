"""A/B and interleaved logs: hand values, scipy, recovery, peeking, teams, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import unskew
from tests.helpers.uncleaned import uncleaned
from unskew.errors import ConfigError, DataError
from unskew.measuring.experiments.effects import (
    Sums,
    Ways,
    always_valid_p,
    effect,
    page_share_mismatch,
    sequence_radius,
    sequential_units_needed,
    share_mismatch,
    units_needed,
)
from unskew.measuring.experiments.interleaving import sign_test, team_draft


def ab_table(lift: float = 0.0, *, users: int = 400, seed: int = 0, share: float = 0.5) -> pa.Table:
    """People with a taste for clicking of their own, each under one policy, 3 pages of 4 results."""
    rng = np.random.default_rng(seed)
    new = rng.random(users) < share
    rate = rng.beta(2, 6, users) + lift * new
    shape = users, 3, 4
    click = rng.random(shape) < rate[:, None, None] / np.arange(1, 5)
    user, page, rank = (axis.ravel() for axis in np.indices(shape))
    return pa.table(
        {
            "page_id": user * 3 + page,
            "query_id": page,
            "doc_id": rank,
            "position": rank + 1,
            "click": click.ravel().astype(np.int64),
            "user_id": user,
            "policy_id": np.where(new, "new", "old")[user],
            "spent": click.ravel() * 2.5,
        }
    )


def interleaved_table(better: float, *, pages: int = 600, seed: int = 0) -> pa.Table:
    """Pages of two rankers over 6 documents; `better` is how much more the second's favourites are clicked."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[object]] = {name: [] for name in ("page_id", "doc_id", "position", "click", "team")}
    worth = np.array([0.5, 0.45, 0.4, 0.35, 0.3, 0.25])
    for page in range(pages):
        documents = rng.permutation(6)
        good = documents[np.argsort(-worth[documents])]
        made = team_draft(list(documents), list(good) if better else list(documents), length=4, seed=rng)
        for place, (item, team) in enumerate(zip(made.items, made.teams, strict=True), start=1):
            chance = worth[item] / place
            line = (page, int(item), place, int(rng.random() < chance), "ab"[team])
            for name, value in zip(rows, line, strict=True):
                rows[name].append(value)
    return pa.table(rows | {"query_id": rows["page_id"], "visit_id": [page // 3 for page in rows["page_id"]]})


# ---- A/B ----


def test_one_page_each_is_welchs_test() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random(40), rng.random(30) + 0.2
    y, new = np.concatenate([a, b]), np.arange(70) >= 40
    made = [Sums(np.where(own, y, 0.0), own * 1.0, own * 1.0) for own in (new, ~new)]
    found = effect(("b", "a"), *made, Ways())
    test = stats.ttest_ind(b, a, equal_var=False)
    assert found.difference == pytest.approx(b.mean() - a.mean())
    assert found.p == pytest.approx(test.pvalue)
    assert found.interval == pytest.approx(tuple(test.confidence_interval()))
    assert found.always is None  # 70 people are too few


def test_clusters_of_many_pages_by_hand() -> None:
    new = Sums(np.array([3.0, 0, 5, 0]), np.array([4.0, 0, 6, 0]), np.array([4.0, 0, 6, 0]))
    old = Sums(np.array([0.0, 1, 0, 4]), np.array([0.0, 5, 0, 5]), np.array([0.0, 5, 0, 5]))
    found = effect(("new", "old"), new, old, Ways())
    # by hand: (y - m n) / sum n of each cluster, squared, times C / (C - 1) = 2
    first = 2 * (((3 - 0.8 * 4) / 10) ** 2 + ((5 - 0.8 * 6) / 10) ** 2)
    second = 2 * (((1 - 0.5 * 5) / 10) ** 2 + ((4 - 0.5 * 5) / 10) ** 2)
    assert found.difference == pytest.approx(0.3)
    assert found.smallest == pytest.approx(math.sqrt(first + second) * (1.959964 + 0.841621), rel=1e-5)
    assert found.lift == pytest.approx(0.6)


def test_people_who_saw_both_policies_cancel_out() -> None:
    taste = np.random.default_rng(2).random(300)
    ones = np.ones(300)
    both = effect(("b", "a"), Sums(taste + 0.01, ones, ones), Sums(taste, ones, ones), Ways())
    assert both.interval is None or both.interval[1] - both.interval[0] < 1e-9


def test_a_log_with_a_lift_is_found_better_and_one_without_is_not(tmp_path: Path) -> None:
    found = unskew.experiment(uncleaned(ab_table(0.3, users=800)), control="old")
    assert (found.verdict, found.kind, found.cluster) == ("better", "A/B", "user_id")
    pq.write_table(ab_table(), tmp_path / "log.parquet")
    same = unskew.experiment(tmp_path / "log.parquet", metric="ctr")
    assert same.verdict == "cannot tell"
    assert same.effects[0].always[0] < same.effects[0].interval[0] < 0 < same.effects[0].interval[1]


@pytest.mark.parametrize("metric", ["clicks", "ctr", "clicked", "first-click", "spent"])
def test_metrics_by_hand(metric: str) -> None:
    table = ab_table(users=120)
    found = unskew.experiment(uncleaned(table), metric=metric, control="old")
    click = table["click"].to_numpy().reshape(-1, 4)
    own = table["policy_id"].to_numpy().reshape(-1, 4)[:, 0] == "new"
    first = np.where(click.any(1), 1 / (click.argmax(1) + 1), 0.0)
    y = {"clicks": click.sum(1), "ctr": click.mean(1), "clicked": click.any(1), "first-click": first}
    values = y.get(metric, click.sum(1) * 2.5)
    assert found.effects[0].difference == pytest.approx(values[own].mean() - values[~own].mean())
    assert {arm.name: arm.pages for arm in found.arms} == {"new": own.sum(), "old": (~own).sum()}


def test_intervals_by_people_are_wider_than_by_pages() -> None:
    table = ab_table(users=600, seed=3)
    people, pages = (
        unskew.experiment(uncleaned(table), cluster=name).effects[0].interval for name in ("user_id", "page_id")
    )
    assert people[1] - people[0] > 1.1 * (pages[1] - pages[0])


def test_three_policies_share_the_level() -> None:
    table = ab_table(users=600, seed=4)
    names = np.array(["old", "new", "newer"])[table["user_id"].to_numpy() % 3]
    three = unskew.experiment(uncleaned(table.set_column(6, "policy_id", pa.array(names))), control="old")
    assert [each.policy for each in three.effects] == ["new", "newer"]
    assert any("Bonferroni" in note for note in three.notes)


def test_shares_that_are_off_withhold_the_verdict() -> None:
    off = unskew.experiment(uncleaned(ab_table(0.3, users=800, share=0.7)))
    assert not off.trusted
    assert off.verdict == "cannot tell"
    meant = unskew.experiment(uncleaned(ab_table(0.3, users=800, share=0.7)), shares={"new": 0.7, "old": 0.3})
    assert meant.trusted
    assert share_mismatch({"a": 60, "b": 40}, {"a": 1, "b": 1}) == pytest.approx(math.erfc(2 / math.sqrt(2)))


def test_shares_of_pages_by_cluster_are_calibrated() -> None:
    rng = np.random.default_rng(5)
    p = []
    for _ in range(300):
        total = rng.integers(1, 6, 200).astype(float)
        own = np.where(rng.random(200) < 0.5, total, 0.0)  # whole clusters go to one side
        p.append(page_share_mismatch({"a": own, "b": total - own}, {"a": 1, "b": 1}))
    assert 0.02 < np.mean(np.array(p) < 0.1) < 0.12  # two tests, Bonferroni: 0.05 to 0.1


# ---- looking every day ----


def test_looking_every_day_is_wrong_at_most_as_often_as_said() -> None:
    rng = np.random.default_rng(6)
    looks = np.arange(200, 6001, 100)
    values = rng.exponential(size=(400, looks[-1])) - 1.0  # skewed, mean 0
    count = np.arange(1, looks[-1] + 1)
    mean = np.cumsum(values, axis=1) / count
    deviation = np.sqrt(np.cumsum(values**2, axis=1) / count - mean**2)
    z = np.abs(mean[:, looks - 1] / deviation[:, looks - 1])
    radius = np.array([sequence_radius(int(t), planned=3000) for t in looks])
    always = (z > radius).any(1).mean()
    fixed = (z > 1.96 / np.sqrt(looks)).any(1).mean()
    assert always <= 0.05
    assert fixed > 0.15


def test_the_p_value_is_the_level_at_which_the_sequence_leaves_zero() -> None:
    radius = sequence_radius(5000)
    assert always_valid_p(radius, 1 / math.sqrt(5000), 5000) == pytest.approx(0.05)
    assert sequence_radius(10_000, planned=10_000) < sequence_radius(10_000, planned=200)


def test_sample_sizes() -> None:
    assert units_needed(1.0, 0.1) == math.ceil((1.959964 + 0.841621) ** 2 * 100)
    longer = sequential_units_needed(1.0, 0.1)
    assert 785 < longer < 4 * 785
    radius = sequence_radius(longer)
    assert radius + 0.841621 / math.sqrt(longer) == pytest.approx(0.1, rel=1e-3)


# ---- interleaving ----


def test_each_team_has_the_same_chance_of_each_pick() -> None:
    rng = np.random.default_rng(7)
    made = [team_draft("abcdef", "fedcba", seed=rng) for _ in range(3000)]
    first = np.array([each.teams for each in made])
    assert np.all(np.abs(first.mean(0) - 0.5) < 0.04)
    assert all(sorted(each.items) == list("abcdef") for each in made)
    assert np.all(first.reshape(3000, 3, 2).sum(2) == 1)  # one pick each per round


def test_a_team_that_runs_out_leaves_the_rest_to_the_other() -> None:
    made = team_draft("a", "abcd", seed=3)
    assert sorted(made.items) == list("abcd")
    assert team_draft("abc", "cba", length=2, seed=1).items == team_draft("abc", "cba", length=2, seed=1).items
    assert team_draft("", "", seed=0).items == ()


def test_identical_rankers_are_even_and_a_better_one_wins() -> None:
    even = unskew.experiment(uncleaned(interleaved_table(0.0)))
    assert even.kind == "interleaving"
    assert even.verdict == "cannot tell"
    assert abs(even.effects[0].difference) < 0.06
    better = unskew.experiment(uncleaned(interleaved_table(1.0)), planned=200)
    assert better.verdict == "better"
    assert (better.effects[0].policy, better.effects[0].control) == ("b", "a")
    assert better.sign is not None
    assert better.sign.p < 0.01
    worse = unskew.experiment(uncleaned(interleaved_table(1.0)), planned=200, control="b")
    assert worse.verdict == "worse"
    assert worse.effects[0].difference == pytest.approx(-better.effects[0].difference)


def test_the_sign_test_by_hand() -> None:
    told = sign_test(np.array([2, 1, 1, 1, 1, 1, -1, 0]))
    assert told.p == pytest.approx(stats.binomtest(6, 7).pvalue)
    assert (told.second, told.first, told.even) == (6, 1, 1)


# ---- what is refused ----


def test_what_is_no_experiment_is_refused_by_name() -> None:
    table = ab_table(users=20)
    with pytest.raises(DataError, match="all pages have the policy_id old"):
        unskew.experiment(uncleaned(table.set_column(6, "policy_id", pa.array(["old"] * len(table)))))
    with pytest.raises(DataError, match="missing columns: policy_id"):
        unskew.experiment(uncleaned(table.drop_columns(["policy_id"])))
    mixed = np.where(np.arange(len(table)) % 40 == 0, "x", table["policy_id"].to_numpy())
    with pytest.raises(DataError, match="changes within 6 of 60 pages"):
        unskew.experiment(uncleaned(table.set_column(6, "policy_id", pa.array(mixed))))
    with pytest.raises(DataError, match="changes within 6 of 60 pages"):
        unskew.experiment(uncleaned(table.set_column(6, "policy_id", pa.array(mixed))), kind="ab")
    with pytest.raises(ConfigError, match='metric="clics": neither'):
        unskew.experiment(uncleaned(table), metric="clics")
    with pytest.raises(ConfigError, match="Did you mean old"):
        unskew.experiment(uncleaned(table), control="odl")


def test_five_rows_and_no_clicks_have_no_verdict() -> None:
    few = unskew.experiment(uncleaned(small()))
    assert few.verdict == "cannot tell"
    assert few.effects[0].always is None
    silent = ab_table(users=200)
    silent = silent.set_column(4, "click", pa.array(np.zeros(len(silent), np.int64)))
    told = unskew.experiment(uncleaned(silent))
    assert told.verdict == "cannot tell"
    assert told.effects[0].lift is None


def small() -> pa.Table:
    """Five rows of two policies."""
    rows = {"page_id": [1, 1, 2, 3, 3], "position": [1, 2, 1, 1, 2], "click": [1, 0, 0, 0, 1]}
    return pa.table(rows | {"query_id": [1] * 5, "doc_id": [1, 2, 1, 1, 2], "policy_id": list("aabbb")})
