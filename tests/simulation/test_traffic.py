"""The simulated search engine: its rates are those it states, and its screens tell what was examined."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import unskew.simulation.search_engine as traffic_module
from unskew.errors import ConfigError, DataError
from unskew.logs.log import write_log
from unskew.logs.reader import read_log
from unskew.simulation import RandomLogger, Traffic, TrustBias
from unskew.simulation.synthetic import make_lists
from unskew.types import Lists, Log


@pytest.fixture(scope="module")
def log() -> Log:
    return Traffic(pages=40_000, days=60, seed=1).draw(make_lists(300, documents=(6, 20), seed=1))


def rate(log: Log, values: np.ndarray, rank: int, where: np.ndarray | bool = True) -> float:
    return float(values[(log.position == rank) & where].mean())


def test_clicks_are_alpha_times_relevance_plus_beta(log: Log) -> None:
    alpha, beta = traffic_module.SCREEN.affine(10)
    gamma = log.columns["true_relevance"]
    for rank in (1, 2, 5, 10):
        for low, high in ((0.0, 0.1), (0.1, 1.1)):
            some = (gamma >= low) & (gamma < high)
            expected = alpha[rank - 1] * rate(log, gamma, rank, some) + beta[rank - 1]
            assert rate(log, log.click, rank, some) == pytest.approx(expected, abs=0.012)


def test_examination_is_theta_whatever_is_shown_and_varies_by_page(log: Log) -> None:
    examined, theta = log.columns["true_examined"], traffic_module.SCREEN.examination(10)
    relevant = log.columns["true_relevance"] > 0.1
    for rank in (1, 4, 9, 10):
        assert rate(log, examined, rank, relevant) == pytest.approx(theta[rank - 1], abs=0.015)
        assert rate(log, examined, rank, ~relevant) == pytest.approx(theta[rank - 1], abs=0.015)
    assert not log.click[~examined].any()
    # a click further down says that what is above it was read
    first = log.offsets[:-1][log.sizes == 10]
    third, below = first + 2, np.add.reduceat(log.click, np.stack([first + 3, first + 10]).T.ravel()[:-1])[::2]
    assert examined[third][below > 0].mean() > 0.9 > 0.75 > examined[third][below == 0].mean()


def test_display_times_tell_what_was_examined(log: Log) -> None:
    seconds, examined = log.columns["display_time"], log.columns["true_examined"]
    known = ~np.isnan(seconds)
    assert known.mean() == pytest.approx(0.7, abs=0.01)
    assert len(np.unique(known[log.offsets[0] : log.offsets[1]])) == 1
    assert (seconds[known & examined] > 5).mean() == pytest.approx(0.82, abs=0.01)
    assert (seconds[known & ~examined] < 1).mean() == pytest.approx(0.82, abs=0.01)
    assert (seconds[known & examined] < 1).mean() == pytest.approx(0.03, abs=0.005)
    dwell = log.columns["dwell_time"]
    assert np.array_equal(~np.isnan(dwell), log.click == 1)


def test_queries_have_a_long_tail_and_pages_a_time(log: Log) -> None:
    counts = np.sort(np.bincount(log.query, minlength=300))[::-1]
    shares = (1 / np.arange(1, 301)) / (1 / np.arange(1, 301)).sum()
    assert counts[0] / len(log) == pytest.approx(shares[0], rel=0.05)
    assert counts[150:].sum() / len(log) == pytest.approx(shares[150:].sum(), rel=0.05)
    times = log.columns["timestamp"]
    assert (np.diff(times) >= np.timedelta64(0)).all()
    assert times[0] >= np.datetime64(date(2024, 1, 1))
    assert np.datetime64("2024-02-29") < times[-1] < np.datetime64("2024-03-01")
    hours = np.bincount(times.astype("datetime64[h]").astype(int) % 24, minlength=24)
    assert hours[14:16].sum() / hours[2:4].sum() == pytest.approx(3, rel=0.15)


def test_the_random_slice_is_marked_and_random(log: Log) -> None:
    assert log.randomized is not None
    marked = np.add.reduceat(log.randomized.astype(int), log.offsets[:-1])
    assert (marked == log.sizes).mean() == pytest.approx(0.02, abs=0.004)
    only_top = (marked == 1) & (log.sizes > 1)
    assert only_top.mean() == pytest.approx(0.02, abs=0.004)
    assert log.randomized[log.offsets[:-1][only_top]].all()
    gamma = log.columns["true_relevance"][log.offsets[:-1]]
    plain = marked == 0
    assert gamma[plain].mean() > gamma[only_top].mean(), "the logging ranker is better than chance"


def test_shuffled_pages_are_in_any_order() -> None:
    """On pages that are marked throughout every document is first equally often, however well it is ranked."""
    lists = make_lists(1, documents=(5, 5), seed=0)
    made = Traffic(pages=4_000, shuffled=1.0, jitter=0.1, logger=RandomLogger()).draw(lists)
    assert made.randomized is not None
    assert made.randomized.all()
    first = np.bincount(made.row[made.offsets[:-1]], minlength=5)
    assert np.abs(first - 800).max() < 5 * np.sqrt(800 * 0.8)


def test_orders_change_from_page_to_page_only_with_jitter() -> None:
    lists = make_lists(5, documents=(8, 8), seed=0)
    for jitter, several in ((0.0, False), (1.0, True)):
        made = Traffic(pages=300, jitter=jitter, shuffled=0.0, random_top=0.0, logger=RandomLogger()).draw(lists)
        top = {int(query): set(made.row[made.offsets[:-1][made.query == query]]) for query in set(made.query)}
        assert all((len(documents) > 1) == several for documents in top.values())


def test_the_same_seed_gives_the_same_log_however_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, asked = make_lists(20, documents=(2, 12), seed=3), Traffic(pages=500, days=3.5, seed=7)
    whole = asked.draw(lists)
    monkeypatch.setattr(traffic_module, "DRAWN_CELLS", 120)
    cut = asked.draw(lists)
    assert np.array_equal(whole.row, cut.row)
    assert np.array_equal(whole.click, cut.click)
    for name, column in whole.columns.items():
        assert np.array_equal(column, cut.columns[name], equal_nan=column.dtype.kind == "f"), name


def test_it_is_written_as_impressions(tmp_path: Path) -> None:
    lists = make_lists(20, documents=(2, 12), seed=3)
    made = Traffic(pages=50, days=2).draw(lists)
    write_log(made, tmp_path / "log.parquet")
    kinds = {field.name: str(field.type) for field in pq.read_schema(tmp_path / "log.parquet")}
    assert {"timestamp", "display_time", "dwell_time", "randomized", "true_examined"} <= set(kinds)
    back = read_log(tmp_path / "log.parquet", lists)
    assert np.array_equal(back.columns["timestamp"], made.columns["timestamp"])
    assert np.array_equal(back.row, made.row)


def test_edges_and_errors() -> None:
    lists = make_lists(3, seed=0)
    assert len(Traffic(pages=0).draw(lists)) == 0
    with pytest.raises(ConfigError, match="timed"):
        Traffic(pages=1, timed=2.0)
    empty = Lists(np.zeros((0, 1), np.float32), np.array([0, 0]), np.zeros(0, np.int16), np.array([1]))
    with pytest.raises(DataError, match="no query has a document"):
        Traffic(pages=1).draw(empty)
    certain = TrustBias(curve=(1.0,), relevant=(1.0,), irrelevant=(0.0,))
    made = Traffic(pages=200, trust=certain).draw(lists)
    assert made.columns["true_examined"].all()
