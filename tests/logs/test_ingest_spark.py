"""Ingest on a local Spark gives what it gives on DuckDB."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.shop_log import NAMES, shop_log
from unskew.logs.ingest.ingest import ingest_files
from unskew.tables.engine.engine import Engine
from unskew.tables.reading.options import IngestOptions

LOG = b"""page_id,query_id,doc_id,position,click,timestamp,user_id,serp_w
p1,q1,a,0,1,2024-01-01T10:00:00.123456789+02:00,u1,1
p1,q1,b,1,0,2024-07-01 10:00,u1,2
p1,q1,b,1,0,2024-07-01 10:00,u1,2
p2,q1,a,0,no,1700000000123,u1,1
p2,q1,b,1.0,yes,1700000000123456789,u1,2
p3,q1,a,0,1,2024-01-01,u2,1
p3,q1,b,1,1,2024-01-01,u2,2
p3,q1,c,2,1,2024-01-01,u2,3
p4,q1,a,0,0,2024-01-01,u2,1
p4,q1,c,3,0,2024-01-01,u2,3
p5,q1,a,0,0,yesterday,u2,1
p6,q2,a,0,0,,u2,1
p6,q3,b,1,0,,u2,1
p7,q3,a,0,0,,u2,1
p7,q3,b,0,0,,u2,1
p8,q3,a,x,0,,u2,1
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spark"])  # beside the other tests on Spark
def test_both_engines_give_the_same(name: str, duckdb: Engine, spark: Engine, tmp_path: Path) -> None:
    """Text with broken rows, clicks by document and by place that have to be joined, and pages to be found."""
    (tmp_path / "log.csv").write_bytes(LOG)
    shop = [{key: row[key] for key in row if key not in ("truth", "clicked")} for row in shop_log(people=6)]
    clicks = [{**row, "epoch_ms": row["epoch_ms"] + 5_000} for row in shop[::17]]
    for file, rows in (("shop.parquet", shop), ("clicks.parquet", clicks)):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / file)
    options = IngestOptions.model_validate({"max_rejected": 0.5, "time": {"zone": "Europe/Berlin"}})
    ubi = str(Path(__file__).resolve().parents[1] / "samples" / "ubi" / "[eq]*.ndjson")
    made = {
        engine.name: [
            ingest_files(tmp_path / "log.csv", tmp_path / engine.name / "log", engine, options),
            ingest_files(ubi, tmp_path / engine.name / "ubi", engine, kind="ubi"),
            ingest_files(
                tmp_path / "shop.parquet",
                tmp_path / engine.name / "shop",
                engine,
                IngestOptions(columns=NAMES),
                clicks=[tmp_path / "clicks.parquet"],
            ),
        ]
        for engine in (duckdb, spark)
    }
    assert made["spark"] == made["duckdb"]
    log, clicked, found = made["duckdb"]
    assert (log.pages, log.rejected.rows, clicked.clicks) == (2, 2, 3)
    assert found.clicks >= 0.9 * len(clicks)
    for part, keys in (
        ("log/impressions", ["page_id", "position"]),
        ("log/rejected.parquet", ["row"]),
        ("ubi/impressions", ["page_id", "position"]),
        ("shop/impressions", ["page_id", "position"]),
    ):
        tables = [pq.read_table(tmp_path / name / part) for name in made]
        rows = [table.sort_by([(key, "ascending") for key in keys]).to_pylist() for table in tables]
        assert rows[0] == rows[1]
