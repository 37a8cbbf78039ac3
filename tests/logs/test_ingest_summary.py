"""Warnings about logs that cannot teach what is asked of them: from the summary, and through the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import spelled
from unskew.logs.ingest.rules import PageFacts
from unskew.logs.ingest.summary import (
    IngestedLog,
    Moves,
    PageShares,
    PositionCount,
    RejectedRows,
    suspicion,
    warnings_of,
)
from unskew.tables.reading.options import IngestOptions
from unskew.terminal.main import app


def ranks(*clicks: int, shown: int = 1000) -> list[PositionCount]:
    return [PositionCount(k, shown, count, count / shown) for k, count in enumerate(clicks, 1)]


WHOLE = PageShares(0.0, 1.0, 0.0)
SOUND = IngestedLog(
    format="unskew impressions 1",
    impressions=3000,
    pages=1000,
    queries=50,
    documents=30,
    clicks=300,
    click_rate=0.1,
    pages_without_clicks=0.7,
    time=None,
    by_position=ranks(100, 100, 100),
    page_facts=WHOLE,
    moves=Moves(50, 100, 40),
    rows_read=3000,
    positions_from=1,
    positions_detected=True,
    pages_found=False,
    rules={},
    rejected=RejectedRows(0, 0.0, {}),
    ignored={},
    notes=[],
    columns=[],
    names={},
    sides={},
    source_columns={},
)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "no click": ({"clicks": 0}, "no click in this log"),
    "clicked rows only": ({"clicks": 3000}, "no impressions without clicks. Examination cannot be learned"),
    "one position": ({"by_position": ranks(300)}, "every result was shown at position 1"),
    "clicks at one": ({"by_position": ranks(0, 300, 0)}, "all clicks are at position 2 of 3"),
    "all of one": ({"by_position": ranks(100, 1000, 100)}, "at position 2 every result was clicked"),
    "one query": ({"queries": 1}, "one query only (search)"),
    "clicked pages only": ({"pages_without_clicks": 0.0}, "no page is without a click"),
    "rows": ({"page_facts": replace(WHOLE, with_one_row=0.6)}, "60% of the pages hold one row: serp"),
    "torn": (
        {"page_facts": replace(WHOLE, from_the_top=0.2)},
        "only 20% of the pages begin at the first",
    ),
    "missing": (
        {"page_facts": replace(WHOLE, with_one_row=0.6), "pages_found": True},
        "60% of the pages hold one row: results seem to be missing",
    ),
    "hours": (
        {"page_facts": replace(WHOLE, longer_than_hours=0.1)},
        "last for more than 2 hours: serp",
    ),
    "fixed": ({"moves": Moves(50, 100, 0)}, "no result ever moves"),
}
NAMES = IngestOptions(columns={"query_id": "search", "page_id": "serp"})


@pytest.mark.parametrize(("bots", "told"), [(3, True), (0, False)])
def test_clicks_of_a_few_on_a_few_results_are_told(tmp_path: Path, bots: int, told: bool) -> None:
    """Three users click on one result 100 times each, 100 others now and then on any."""
    rng = np.random.default_rng(0)
    user = np.concatenate([rng.integers(100, size=1000), 1000 + np.repeat(np.arange(bots), 100)])
    pages = len(user)
    click = rng.random((pages, 4)) < 0.3
    click[1000:] = [False, True, False, False]
    table = pa.table(
        {
            "page_id": np.repeat(np.arange(pages), 4),
            "query_id": np.where(np.repeat(user, 4) >= 1000, 0, np.repeat(rng.integers(20, size=pages), 4)),
            "doc_id": np.tile(np.arange(4), pages),
            "position": np.tile(np.arange(1, 5), pages),
            "click": click.ravel().astype(int),
            "user_id": np.repeat(user, 4),
        }
    )
    pq.write_table(table, tmp_path / "raw.parquet")
    made = unskew.ingest(tmp_path / "raw.parquet", tmp_path / "log")
    found = unskew.diagnose(tmp_path / "log")
    said = f"{bots} values of user_id have 2"
    assert any(each.startswith(said) for each in map(str, made.warnings)) == told
    assert (found.conclusion.next[0].text.startswith(said)) == told
    assert (found.few_clickers is None) == (not told)
    if found.few_clickers is not None:
        assert (found.few_clickers.people, found.few_clickers.results, found.few_clickers.on_these) == (3, 1, 1.0)


def test_a_sound_log_is_not_warned_of() -> None:
    assert warnings_of(SOUND, NAMES) == []


@pytest.mark.parametrize("name", CASES)
def test_a_log_that_cannot_teach_says_so(name: str) -> None:
    change, said = CASES[name]
    (warning,) = warnings_of(replace(SOUND, **change), NAMES)
    assert said in warning


def test_a_log_of_clicks_alone_is_not_taken_for_torn_pages() -> None:
    clicks = PageFacts(
        None, 0, 0, 40, pages=100, gaps=30, results=150, places=400, clicks=150, single=60, deepest=9
    )  # type: ignore[arg-type]
    assert "no impressions without clicks" in spelled(suspicion(clicks, 1, NAMES, by_person=True) or "")
    torn = replace(clicks, clicks=20)
    assert "serp names a row" in spelled(suspicion(torn, 1, NAMES, by_person=False) or "")
    assert suspicion(replace(torn, single=2, from_one=99), 1, NAMES, by_person=False) is None


def test_the_command_warns_on_standard_error_in_flags(tmp_path: Path) -> None:
    """A log of clicked rows, and one with an id for every row whose pages are longer than they look."""
    rows = [
        {
            "page_id": f"{at}-{k}",
            "query_id": f"q{at}",
            "doc_id": f"d{k}",
            "position": k,
            "click": int(k == at % 3 + 1),
        }
        for at in range(30)
        for k in (1, 2, 3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    pq.write_table(pa.Table.from_pylist([row for row in rows if row["click"]]), tmp_path / "clicked.parquet")
    said = {}
    for name in ("log", "clicked"):
        words = ["ingest", str(tmp_path / f"{name}.parquet"), "--out", str(tmp_path / name), "--threads", "1"]
        ended = CliRunner().invoke(app, words)
        assert ended.exit_code == 0
        assert "warning" in ended.output
        said[name] = ended.stderr
    assert "unskew: warning: every row is clicked: this log has no impressions without clicks" in said["clicked"]
    assert "100% of the pages hold one row" in said["log"]
    assert "--page-gap 30m" in said["log"]
