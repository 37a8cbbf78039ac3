"""Click rates by rank and segment, depth, skips and order, by hand; propensities in files that methods read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.curves.rates import FEWEST_PAGES, curves, rank_rates
from unskew.diagnosis.evidence.evidence import Evidence, evidence
from unskew.diagnosis.evidence.links import RankGraph
from unskew.diagnosis.evidence.sums import Coverage
from unskew.errors import DataError
from unskew.examination import Examination
from unskew.tables.engine.engine import Engine

PATTERNS = ([1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0])
"""Clicks of pages: 40, 20, 20 and 20 of 100."""
SHOWN = (40, 20, 20, 20)
RANKLENS = (
    ".2485 .2356 .2244 .2110 .2046 .2049 .2010 .2044 .1929 .1964 .1972 .1885 "
    ".1844 .1814 .1827 .1817 .1823 .1814 .1748 .1819 .1781 .1826 .1828 .2032"
)
"""Click rates that come with the data."""


def log_of_patterns() -> dict[str, Any]:
    clicks = [pattern for pattern, times in zip(PATTERNS, SHOWN, strict=True) for _ in range(times)]
    pages = len(clicks)
    return {
        "page_id": np.repeat(np.arange(pages), 3),
        "query_id": np.repeat(np.arange(pages) % 30, 3),
        "doc_id": np.tile([7, 8, 9], pages),
        "position": np.tile([1, 2, 3], pages),
        "click": np.ravel(clicks),
        "device": np.repeat(np.where(np.arange(pages) < 97, "desk", "tv"), 3),
    }


def test_pages_are_told_by_hand(engine: Engine) -> None:
    found = curves(open_tables(log_of_patterns(), segments=["device"], engine=engine))
    assert found.rates.rate == pytest.approx((0.4, 0.4, 0.2))
    assert found.rates.clicks == (40, 40, 20)
    assert found.no_click.value == pytest.approx(0.2)
    assert found.last_click == (40, 20, 20)
    assert found.click_depth.value == pytest.approx((40 * 1 + 20 * 2 + 20 * 3) / 80)
    assert found.skip_above == pytest.approx((1.0, 0.0, None))  # below 1: 40 pages, none clicked 1
    assert found.order.value == pytest.approx((40 * 1.0 + 20 * 0.5 + 20 * 0.0) / 80)
    (device,) = found.segments
    assert device.rates["tv"] is None
    assert device.reason["tv"] == "3 pages with 0 clicks; 50 and 10 are the fewest"
    assert found.effective_queries == pytest.approx(100**2 / (10 * 4**2 + 20 * 3**2))
    told = json.loads(json.dumps(found.to_dict()))
    assert told["rates"]["pages"] == [100, 100, 100]


def test_pages_that_hang_together_count_for_less() -> None:
    """Queries whose pages are all clicked or all not: as many independent pages as there are queries."""
    pages, clicks = np.full((100, 1), 50.0), np.tile([0.0, 50.0], 50)[:, None]
    together = rank_rates(pages, clicks)
    assert together.effective_pages[0] == pytest.approx(99.0)
    alone = rank_rates(pages, np.random.default_rng(0).binomial(50, 0.5, (100, 1)).astype(float))
    assert alone.effective_pages[0] == pytest.approx(5000, rel=0.3)
    assert rank_rates(np.full((1, 1), FEWEST_PAGES - 1.0), np.ones((1, 1))).rate == (None,)


def test_pages_that_begin_further_down_tell_no_skips() -> None:
    table = log_of_patterns()
    table["position"] = np.where(table["page_id"] < 50, table["position"] + 3, table["position"])
    with open_tables(table) as tables:
        found = curves(tables)
    assert set(found.skip_above) == {None}
    assert found.order.value == pytest.approx(50 / 80)
    with open_tables(log_of_patterns() | {"click": np.zeros(300, int)}) as tables:
        nothing = curves(tables).no_click
    assert (nothing.value, nothing.interval, nothing.reason) == (1.0, None, "no interval: all queries are alike")


# ---- propensities ----


def told(*values: float | None) -> Evidence:
    low, high = (tuple(None if value is None else value * by for value in values) for by in (0.9, 1.1))
    reason = tuple("too few clicks" if value is None else None for value in values)
    curve = Examination(values, "swaps", low, high, reason, (), 100)
    chosen, why = ("swaps", None) if curve.known > 1 else (None, "too few clicks")
    graph = RankGraph(len(values), 0, 0, 1.0, (), (), (), None)
    return Evidence({"swaps": curve}, chosen, None, why, (), Coverage((), ()), graph)


def test_files_end_before_the_first_gap_and_methods_read_them(tmp_path: Path) -> None:
    found = told(1.0, 0.5, None, 0.2).usable(clicks=(100, 50, 9, 9))
    for suffix in (".json", ".csv"):
        found.write(tmp_path / f"propensities{suffix}")
        assert Examination.read(tmp_path / f"propensities{suffix}").theta == (1.0, 0.5)
    content = json.loads((tmp_path / "propensities.json").read_text())
    assert (content["lower"][1], content["upper"][1]) == pytest.approx((0.45, 0.55))
    assert "ranks 3 to 4 are left out. Rank 3: too few clicks" in content["note"]
    assert content["effective_clicks"] == pytest.approx((100 + 100) ** 2 / (100 + 200))
    assert (tmp_path / "propensities.csv").read_text().splitlines()[2] == "2,0.5,2,0.45,0.55"
    assert Examination.from_dict(content) == found


def test_a_log_that_tells_nothing_is_refused_with_the_reason() -> None:
    with pytest.raises(DataError, match="tells no examination: too few clicks"):
        told(1.0, None).usable()


# ---- real clicks ----


def ranklens(folder: Path) -> dict[str, Any]:
    """Impressions of all lists; nobody typed a query."""
    shown, clicked = {}, set()
    with gzip.open(folder / "ranklens" / "events.jsonl.gz", "rt", encoding="utf-8") as lines:
        for event in map(json.loads, lines):
            if event["event"] == "ranking":
                shown[event["id"]] = [item["id"] for item in event["items"]]
            elif event["event"] == "interaction":
                clicked.add((event["ranking"], event["item"]))
    rows = [
        (page, item, rank, (page, item) in clicked) for page in shown for rank, item in enumerate(shown[page], 1)
    ]
    columns = dict(zip(("page_id", "doc_id", "position", "click"), zip(*rows, strict=True), strict=True))
    return {name: list(values) for name, values in columns.items()} | {"query_id": [0] * len(rows)}


def test_real_clicks_on_shuffled_lists(data_folder: Path) -> None:
    table = ranklens(data_folder)
    rates = np.array([float(rate) for rate in RANKLENS.split()])
    with open_tables(table | {"randomized": [True] * len(table["click"])}, threads=1) as tables:
        rate, found = curves(tables).rates.rate, evidence(tables)
    assert np.round(np.array(rate, float), 4).tolist() == rates.tolist()
    assert found.curves["shuffled"].theta == pytest.approx(rates / rates[0], abs=0.002)
    for method in ("shuffled", "swaps"):
        spans = found.curves[method].interval
        covered = [
            span and span[0] <= value <= span[1] for span, value in zip(spans, rates / rates[0], strict=True)
        ]
        assert np.mean([bool(each) for each in covered]) > 0.9, method
    told = {(each.first, each.second): each.p for each in found.agreement}
    assert (told["shuffled", "swaps"] or 0) > 0.01
