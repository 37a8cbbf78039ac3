"""Columns under the user's names: taken for ours wherever a log is read, guessed at, and named in errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import Column, ConfigError, DataError
from unskew.names import Names, guess_columns
from unskew.terminal.main import app

OURS_TO_THEIRS = {"page_id": "view", "query_id": "term", "doc_id": "sku", "position": "rank", "click": "clicked"}
RENAMED = [word for ours, theirs in OURS_TO_THEIRS.items() for word in ("--column", f"{ours}={theirs}")]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 20 pages of 3 results under other names; a column called position says something else."""
    path, rows = tmp_path_factory.mktemp("theirs") / "log.parquet", range(60)
    table = {
        "view": [row // 3 for row in rows],
        "term": [f"q{row // 6}" for row in rows],
        "sku": [f"d{row % 3}" for row in rows],
        "rank": [row % 3 + 1 for row in rows],
        "clicked": [int(row % 4 == 0) for row in rows],
        "position": ["top"] * 60,
        "when": [1_700_000_000_000 + 60_000 * (row // 3) for row in rows],
    }
    pq.write_table(pa.table(table), path)
    return path


@pytest.mark.parametrize(
    ("present", "found"),
    [
        (["query_id", "doc_id"], {}),
        (["Query ID", "itemId", "POS"], {"query_id": "Query ID", "doc_id": "itemId", "position": "POS"}),
        (["rank", "position"], {}),
        (["visitor", "session"], {"user_id": "visitor", "visit_id": "session"}),
        (["price", "brand"], {}),
    ],
)
def test_guesses(present: list[str], found: dict[str, str]) -> None:
    assert guess_columns(present) == found


def test_errors_name_theirs_once_and_leave_other_words_alone() -> None:
    what = ("a ", Column("position"), " below 1; positions count from 1")
    with pytest.raises(DataError) as told, Names.of({"position": "rank", "click": "hit"}).told():
        raise DataError(what, path="position/log.parquet")
    assert str(told.value) == "position/log.parquet: a rank (position) below 1; positions count from 1"


def test_counts_of_a_log_under_their_names(theirs: Path, tmp_path: Path) -> None:
    made = unskew.counts(theirs, tmp_path / "out", columns=OURS_TO_THEIRS)
    assert (made.impressions, made.clicks) == (60, 15)


def test_the_command_line_takes_their_names(theirs: Path, tmp_path: Path) -> None:
    words = ["counts", str(theirs), "--out", str(tmp_path / "out"), "--json", *RENAMED]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_log_in_memory_under_their_names(theirs: Path, tmp_path: Path) -> None:
    lines = [
        f"0 qid:q{query} 1:{document}.5 # docid = d{document}\n" for query in range(10) for document in range(3)
    ]
    (tmp_path / "lists.txt").write_text("".join(lines))
    lists = unskew.read_letor(tmp_path / "lists.txt", doc_ids=True)
    log = unskew.read_log(theirs, lists, columns=OURS_TO_THEIRS)
    assert (len(log), int(log.click.sum()), log.position[:3].tolist()) == (20, 15, [1, 2, 3])
    assert "when" in log.columns
    assert "position" not in log.columns
    with pytest.raises(DataError, match=r"there is no column 'ranks' for position. Did you mean rank\?"):
        unskew.read_log(theirs, lists, columns={"position": "ranks"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--column", "position"], "position: write it like position=rank"),
        (["--column", "position=rank", "--column", "position=place"], "position: named twice"),
    ],
)
def test_column_pairs_that_cannot_be_meant(theirs: Path, tmp_path: Path, words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["counts", str(theirs), "--out", str(tmp_path / "out"), *words])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_an_unknown_name_of_ours(theirs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown column 'postion'\. Did you mean position"):
        unskew.counts(theirs, tmp_path / "out", columns={"postion": "rank"})


def test_a_run_reads_log_and_features_under_their_names(theirs: Path, tmp_path: Path) -> None:
    rows = [(f"q{query}", f"d{document}") for query in range(10) for document in range(3)]
    features = {"term": [query for query, _ in rows], "sku": [doc for _, doc in rows], "price": list(range(30))}
    pq.write_table(pa.table(features), tmp_path / "features.parquet")
    words = [
        "learn",
        str(theirs),
        "--features",
        str(tmp_path / "features.parquet"),
        "--out",
        str(tmp_path / "run"),
    ]
    words += ["--ranker", "linear", "--method", "pal", "--steps", "3", "--quiet", *RENAMED]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    words = ["impute", str(tmp_path / "run"), "--lists", str(tmp_path / "features.parquet")]
    words += ["--out", str(tmp_path / "relevance.parquet"), "--json", *RENAMED[2:6]]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    pacsv.write_csv(pq.read_table(theirs), tmp_path / "raw.csv")
    words = ["measure", str(tmp_path / "run"), "--lists", str(tmp_path / "features.parquet")]
    told = CliRunner().invoke(app, [*words, "--log", str(tmp_path / "raw.csv"), *RENAMED])
    assert "raw.csv: a raw log; ingest it first: unskew ingest" in str(told.exception)
    assert pq.read_table(tmp_path / "relevance.parquet").column_names == ["query_id", "doc_id", "relevance"]
    wrong = OURS_TO_THEIRS | {"click": "clicks"}
    with pytest.raises(DataError, match=r"there is no column 'clicks' for click\. Did you mean clicked"):
        unskew.learn(theirs, features=tmp_path / "features.parquet", columns=wrong, out=tmp_path / "other")
