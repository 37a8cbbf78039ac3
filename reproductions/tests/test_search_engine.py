"""The doubly robust system as a recipe: gains by frequency by hand, what arms see, a small one run to its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import ttest_rel

import unskew
from unskew.errors import ConfigError
from unskew.simulation.search_engine import SCREEN
from unskew.tracking.features import FEATURES
from unskew.types import Array
from unskew_reproductions.data import choose_sources
from unskew_reproductions.gains import Measured, gain_section, gains, pooled_t_test
from unskew_reproductions.recipe import recipe_named, sources
from unskew_reproductions.reproduce import reproduce
from unskew_reproductions.search_engine import asked_engine, draw_world, traffic_of
from unskew_reproductions.trial import How

TABLES = ("adr-table-2", "adr-table-4")


def test_gains_are_of_means_and_over_seeds() -> None:
    found = gains([np.array([1.0, 3.0]), np.array([3.0])], [np.array([1.0, 1.0]), np.array([2.0])])
    assert (found.mean, found.seeds) == (pytest.approx(75.0), 2)  # 100 % and 50 %
    assert found.sd == pytest.approx(np.std([100, 50], ddof=1))
    assert np.isnan(gains([np.zeros(0)], [np.zeros(0)]).mean)


def test_p_is_never_below_that_of_the_seeds() -> None:
    rng = np.random.default_rng(0)
    base = [rng.random(200) for _ in range(4)]
    moved = [part + shift for part, shift in zip(base, (0.3, 0.1, -0.1, 0.2), strict=True)]
    test = pooled_t_test(moved, base)
    alone = ttest_rel([part.mean() for part in moved], [part.mean() for part in base]).pvalue
    assert test.p == pytest.approx(alone)
    assert alone > ttest_rel(np.concatenate(moved), np.concatenate(base)).pvalue
    assert test.difference == pytest.approx(0.125)


def measured(seeds: int = 3) -> Measured:
    """The affine arm is good on frequent queries, the imputation on rare ones, the combination on both."""
    rng = np.random.default_rng(1)
    values, searches = [], []
    for _ in range(seeds):
        often = np.repeat([5000, 100, 2], 40)
        noise = rng.normal(0, 0.1, len(often))

        def arm(high: float, mid: float, tail: float, noise: Array = noise) -> dict[str, Array]:
            each = np.repeat([high, mid, tail], 40) + noise + rng.normal(0, 0.01, len(noise))
            return dict.fromkeys(("dcg@4", "dcg@10", "err@10"), each)

        values.append(
            {
                "approximated affine": arm(10.0, 5.0, 2.0),
                "imputation": arm(5.0, 4.0, 4.0),
                "approximated_dr": arm(11.0, 6.0, 5.0),
                "approximated_dr, as published": arm(11.0, 5.0, 3.0),
            }
        )
        searches.append(often)
    return Measured(values, searches, ("approximated affine", "imputation"))


def test_a_table_of_gains_by_frequency() -> None:
    recipe = recipe_named("adr-table-4")
    source = choose_sources(["generated"], [], Path())[0]
    made = gain_section(recipe, source, measured())
    cells = {(r["panel"], r["method"], r["metric"]): r for r in made.records}
    high, tail = (cells[bucket, "approximated_dr", "dcg@4"] for bucket in ("high", "tail"))
    assert high["gain"] == pytest.approx(10.0, abs=0.5)
    assert tail["gain"] == pytest.approx(150.0, abs=5)
    assert (high["mark"], tail["paper_gain"]) == ("++", None)
    assert cells["tail", "imputation", "dcg@4"]["paper_gain"] == 23.34
    ended = {(one.text, one.result) for one in made.judged}
    assert ("approximated affine > imputation", "holds") in ended
    assert ("imputation > approximated affine", "holds") in ended
    assert ("approximated_dr, as published > imputation", "reversed") in ended  # in the tail
    assert "high: 40 queries, mid: 40 queries, tail: 40 queries" in made.section.text


@pytest.mark.parametrize("name", TABLES)
def test_recipes_ask_for_arms_that_there_are(name: str) -> None:
    recipe = recipe_named(name)
    asked = How(Path()).asked(recipe, choose_sources(["generated"], [], Path())[0])
    engine, labels = asked_engine(recipe), {arm.label for arm in asked.arms}
    assert {engine.base, *engine.sees, *(claim.first for claim in recipe.claims)} <= labels
    assert list(engine.buckets.values()) == sorted(engine.buckets.values(), reverse=True)
    assert min(engine.buckets.values()) == 0
    traffic = traffic_of(asked, engine, 3)
    assert (traffic.seed, traffic.pages, traffic.days) == (3, 400_000, 56.0)
    np.testing.assert_allclose(traffic.trust.affine(10), SCREEN.affine(10), atol=5e-4)
    for arm in asked.arms:
        for point in arm.points:
            assert point.training.validate_on == "clicks"


def test_other_recipes_have_no_search_engine() -> None:
    with pytest.raises(ConfigError, match=r"has a table \[search_engine\]"):
        asked_engine(recipe_named("bal-table-1"))


def test_a_world_is_tracked_first_and_learned_from_later(tmp_path: Path) -> None:
    lists = unskew.make_lists(60, features=5, documents=(12, 14), seed=0)
    traffic = unskew.Traffic(pages=3000, days=20, seed=0)
    engine = asked_engine(recipe_named("adr-table-4")).model_copy(update={"tracked": 10.0})
    world = draw_world(traffic, lists, engine, tmp_path)
    assert world.log.columns["timestamp"].min() >= np.datetime64("2024-01-11")
    assert world.searches.sum() + len(world.log) == 3000
    both, clicks = world.sees["both"].features, world.sees["clicks"].features
    np.testing.assert_array_equal(both[:, :5], lists.features)
    np.testing.assert_array_equal(both[:, 5:], clicks)
    shown = np.expm1(clicks[:, FEATURES.index("month_log_displays")])
    per_query = np.add.reduceat(shown, lists.offsets[:-1])
    np.testing.assert_allclose(per_query, 10 * world.searches, rtol=1e-4)  # ten results a page


@pytest.mark.slow
def test_a_table_is_run_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.pages.page.write_drawn", lambda *_: None)
    monkeypatch.setitem(sources()["quick"], "synthetic", {"queries": 60, "features": 5, "documents": 14})
    done = reproduce("adr-table-2", tmp_path / "out", on=["generated"], quick=True, seeds=1, pages=6000)
    assert done.page.failed == []
    rows = pq.read_table(tmp_path / "out" / "numbers.parquet").to_pylist()
    assert len(rows) == 12 * 10
    naive = [row for row in rows if row["method"] == "naive"]
    assert all(row["gain"] == 0 and row["measured"] > 0 for row in naive)
    assert "all queries: 60 queries" in (tmp_path / "out" / "table.md").read_text()
    assert len(done.judged) == 24
    few = reproduce("adr-table-2", tmp_path / "few", on=["generated"], quick=True, seeds=1, pages=60)
    assert any("seed 0" in told and "no click" in told for told in few.page.failed)  # the others have results
    assert "cannot be tested" in (tmp_path / "few" / "table.md").read_text()
