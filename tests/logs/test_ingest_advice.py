"""Further columns of a source: what they could be for, in every format, and what is warned of."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.logs.ingest.advice import column_advice, gives_away, parquet_sample
from unskew.logs.ingest.summary import column_warnings
from unskew.logs.ingest.text import TextStream
from unskew.pages.ingested import ADVICE
from unskew.tables.reading.options import IngestOptions

NAMES = {"page_id": "page_key", "position": "rank", "click": "clicked", "query_id": "q", "doc_id": "sku"}
EXPECTED = {
    "device": ("category", "page", "bias factor"),
    "price": ("number", "result", "bias factor"),
    "tile": ("number", "result", "bias factor"),
    "click_time": ("time", "result", "gives the click away"),
    "dwell": ("number", "result", "gives the click away"),
    "cart": ("number", "result", "gives the click away"),
    "outcome": ("category", "result", "gives the click away"),
    "request": ("id", "result", "names things"),
    "shop": ("constant", "page", "says nothing"),
    "nothing": ("empty", "page", "says nothing"),
    "served": ("time", "page", "not a factor"),
    "subtitle": ("text", "result", "not a factor"),
    "page_number": ("number", "page", "begins again"),
    "is_random": ("number", "page", "shuffled"),
}


def make_rows() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for page in range(150):
        for rank in range(10):
            clicked = int(rng.random() < 0.5 / (1 + rank))
            rows.append(
                {
                    "page_key": page,
                    "rank": rank,
                    "clicked": clicked,
                    "q": f"q{page % 7}",
                    "sku": f"s{rng.integers(50)}",
                    "device": ("phone", "desktop", "tablet")[page % 3],
                    "price": round(float(rng.lognormal()), 2),
                    "tile": int(rng.integers(4)),
                    "click_time": 1_717_000_000_000 + len(rows) if clicked else None,
                    "dwell": float(rng.integers(1, 90)) if clicked else 0.0,
                    "cart": int(clicked and rng.random() < 0.3),
                    "outcome": "visited" if clicked else ("seen", "passed")[int(rng.integers(2))],
                    "request": f"{rng.integers(2**60):x}",
                    "shop": "de",
                    "nothing": None,
                    "served": f"2024-05-01T10:{page % 60:02d}:00Z",
                    "subtitle": f"product {rng.integers(400)}",
                    "page_number": page % 3 + 1,
                    "is_random": int(page % 10 == 0),
                }
            )
    return rows


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return make_rows()


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_what_columns_could_be_for(rows: list[dict[str, Any]], tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = IngestOptions(columns=NAMES, keep=("dwell",))
    if kind == "parquet":
        sample = parquet_sample([path], options)
    else:
        sample = TextStream({path: kind}, options, tmp_path).sample
    found = column_advice(sample, options)
    assert {name: (each.kind, each.differs, each.advice) for name, each in found.items()} == EXPECTED
    assert found["device"].values == 3
    assert found["click_time"].missing == pytest.approx(1 - np.mean([row["clicked"] for row in rows]), abs=1e-4)
    assert {each.advice for each in found.values()} <= set(ADVICE)
    again, leak = sorted(column_warnings(found, options), reverse=True)
    assert again == (
        "rank begins again on every page_number: further results pass for first ones; count on with "
        'page_number="page_number"'
    )
    assert leak.startswith("dwell gives the click away")


def test_nothing_is_read_where_all_columns_are_ours(tmp_path: Path) -> None:
    pq.write_table(pa.table({"page_id": [1], "click": [0]}), tmp_path / "log.parquet")
    assert parquet_sample([tmp_path / "log.parquet"], IngestOptions()) is None
    assert column_advice(None, IngestOptions()) == {}


def test_ranks_that_go_on_do_not_begin_again(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    further = [{**row, "rank": row["rank"] + 10 * (row["page_number"] - 1)} for row in rows]
    pq.write_table(pa.Table.from_pylist(further), tmp_path / "log.parquet")
    options = IngestOptions(columns=NAMES)
    found = column_advice(parquet_sample([tmp_path / "log.parquet"], options), options)
    assert found["page_number"].advice == "bias factor"


@pytest.mark.parametrize(("share", "away"), [(0.5, False), (0.9, False), (1.0, True)])
def test_a_column_gives_the_click_away_by_how_well_it_ranks(share: float, away: bool) -> None:
    """Clicks predicted by a number that is right for a share of the rows and noise in the others."""
    rng = np.random.default_rng(1)
    clicked = rng.random(2000) < 0.2
    known = rng.random(2000) < share
    numbers = np.where(known, clicked + rng.random(2000) / 2, rng.random(2000) * 1.5)
    assert gives_away(np.arange(2000), numbers, clicked) is away


def test_a_rare_value_that_was_clicked_by_chance_is_no_leak() -> None:
    clicked = np.arange(1000) < 100
    codes = np.zeros(1000, np.int64)
    codes[:4] = 1
    assert not gives_away(codes, codes.astype(float), clicked)
    codes[:5] = 1
    assert gives_away(codes, codes.astype(float), clicked)
