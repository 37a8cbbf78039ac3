"""Ids that came as floats, as pandas writes whole numbers where one is missing: read as such, or refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import DataError

PAGES, SHOWN = 40, 10
BIG = 2**60


def day(first: int, start: int = 0) -> pd.DataFrame:
    """Pages from one on, of documents that are numbers from `start` on."""
    rows = range(first * SHOWN, (first + PAGES) * SHOWN)
    return pd.DataFrame(
        {
            "page_id": [f"p{row // SHOWN}" for row in rows],
            "query_id": [row // SHOWN % 7 for row in rows],
            "doc_id": [start + row // SHOWN % 7 * SHOWN + row % SHOWN for row in rows],
            "position": [row % SHOWN + 1 for row in rows],
            "click": [int(row % 9 == 0) for row in rows],
        }
    )


def as_floats(table: pd.DataFrame) -> pd.DataFrame:
    """The same with one id missing, which makes floats of the others."""
    changed = table.astype({"doc_id": "float64"})
    changed.loc[3, "doc_id"] = None
    return changed


def documents(folder: Path) -> list[Any]:
    """Every id of the ingested log, once."""
    table = pq.read_table(folder / "impressions")
    return sorted(set(table["doc_id"].to_pylist()))


@pytest.mark.parametrize("others", ["int64", "string"])
def test_days_of_whole_numbers_or_text_and_of_floats_have_the_same_documents(tmp_path: Path, others: str) -> None:
    logs = tmp_path / "days"
    logs.mkdir()
    day(0).astype({"doc_id": others}).to_parquet(logs / "monday.parquet")
    as_floats(day(PAGES)).to_parquet(logs / "tuesday.parquet")
    found = unskew.ingest(logs, out=tmp_path / "log")
    wanted = [str(each) for each in range(70)] if others == "string" else list(range(70))
    assert documents(tmp_path / "log") == sorted(wanted)
    assert found.rejected.reasons == {"missing_doc_id": 1}
    assert any("doc_id came as floats" in note for note in found.notes)


def test_a_log_of_floats_alone_has_whole_numbers(tmp_path: Path) -> None:
    as_floats(day(0)).to_parquet(tmp_path / "log.parquet")
    unskew.ingest(tmp_path / "log.parquet", out=tmp_path / "log")
    assert documents(tmp_path / "log") == list(range(70))


@pytest.mark.parametrize("start", [BIG, 0.5])
def test_floats_that_are_no_ids_are_refused_wherever_they_are(tmp_path: Path, start: float) -> None:
    table = day(0)
    table["doc_id"] = table["doc_id"].astype("float64") + start
    table.to_parquet(tmp_path / "log.parquet")
    for verb in (
        lambda: unskew.ingest(tmp_path / "log.parquet", out=tmp_path / "log"),
        lambda: unskew.diagnose(tmp_path / "log.parquet"),
        lambda: unskew.diagnose(table),
        lambda: unskew.split(tmp_path / "log.parquet", out=tmp_path / "parts"),
    ):
        with pytest.raises(DataError, match="doc_id is written as floats such as"):
            verb()
    assert not (tmp_path / "log").exists()


def test_whole_numbers_that_no_float_can_hold_stay_what_they_are(tmp_path: Path) -> None:
    logs = tmp_path / "days"
    logs.mkdir()
    day(0, BIG).to_parquet(logs / "monday.parquet")
    as_floats(day(PAGES)).to_parquet(logs / "tuesday.parquet")
    unskew.ingest(logs, out=tmp_path / "log")
    assert documents(tmp_path / "log") == [*range(70), *range(BIG, BIG + 70)]


def test_features_of_a_frame_with_float_ids_are_joined() -> None:
    shown = as_floats(day(0))
    features = as_floats(day(0)).dropna().drop_duplicates("doc_id")[["doc_id"]].assign(x=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one row is left out, and nothing ever moves
        log = unskew.log_from_table(shown, features=features)
    assert len(log.lists.features) == 70


def test_a_log_in_memory_of_unequal_files_is_read_alike(tmp_path: Path) -> None:
    logs = tmp_path / "days"
    logs.mkdir()
    day(0).to_parquet(logs / "monday.parquet")
    as_floats(day(PAGES)).dropna().to_parquet(logs / "tuesday.parquet")
    features = pa.table({"doc_id": list(range(70)), "x": [1.0] * 70})
    pq.write_table(features, tmp_path / "items.parquet")
    lists = unskew.read_features(tmp_path / "items.parquet", candidates=logs)
    assert len(unskew.read_log(logs, lists).row) == 2 * PAGES * SHOWN - 1
