"""`unskew diagnose` from end to end: a log in a file, a page and JSON; mistakes on the way."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from tests.helpers.uncleaned import uncleaned
from unskew.errors import UnskewError
from unskew.examination import Examination
from unskew.logs.log import write_log
from unskew.pages.documents.diagnosis import HEADINGS
from unskew.terminal.main import app
from unskew.workflows.inspections.report import report


@pytest.fixture(scope="module")
def log() -> unskew.Log:
    lists = unskew.make_lists(queries=15, documents=12, features=5, seed=0)
    return unskew.simulate(lists, "position", pages=3000, randomized=0.5, seed=0)


@pytest.fixture(scope="module")
def place(log: unskew.Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    write_log(log, path)
    return path


@pytest.fixture(scope="module")
def written(place: Path) -> tuple[Path, Path, Any]:
    """A page, its JSON and how the command ended."""
    page, numbers = place.with_name("page.html"), place.with_name("numbers.json")
    weights = place.with_name("propensities.csv")
    words = ["diagnose", place, "--out", page, "--json", numbers, "--propensities", weights]
    return page, numbers, CliRunner().invoke(app, list(map(str, words)))


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_one_command_writes_the_page_and_its_numbers(written: tuple[Path, Path, Any]) -> None:
    page, numbers, ended = written
    assert ended.exit_code == 0, ended.output
    assert f"Open {page}." in ended.stderr
    told = json.loads(numbers.read_text(), parse_constant=refuse)
    parts = {"log", "curves", "evidence", "matrix", "trust", "factors", "co_clicks"}
    assert parts | {"models", "ordering", "verdicts", "conclusion", "swap_plan", "version"} <= set(told)
    assert (told["log"]["pages"], told["models"]) == (3000, None)
    text = page.read_text(encoding="utf-8")
    assert all(f">{HEADINGS[part]}</h2>" in text for part in parts)
    assert f"{told['log']['impressions']:,}" in text


def test_the_terminal_tells_the_top_of_the_page_alone(written: tuple[Path, Path, Any]) -> None:
    shown = written[2].stdout
    assert "Who is looked at" in shown
    assert "Position: present. By shuffled pages, rank" in shown
    assert re.search(r"This log is biased \(position.*\), and it can be repaired", shown)
    assert HEADINGS["matrix"] not in shown
    assert len(shown.splitlines()) < 40


def test_a_log_in_memory_tells_the_same_as_its_file(log: unskew.Log, written: tuple[Path, Path, Any]) -> None:
    told = json.loads(written[1].read_text())
    again = json.loads(json.dumps(unskew.diagnose(log).to_dict()))
    assert again["evidence"]["chosen"] == told["evidence"]["chosen"] == "shuffled"
    for part in (again, told):
        part["seen"] = part["evidence"]["curves"]["shuffled"]["examination"]
    assert again["seen"] == pytest.approx(told["seen"])
    assert again["log"]["clicks"] == told["log"]["clicks"] == int(log.click.sum())


def test_a_folder_holds_all_and_can_be_reported(place: Path) -> None:
    folder = place.with_name("diagnosis")
    found = unskew.diagnose(place, out=folder)
    assert json.loads((folder / "diagnosis.json").read_text())["log"] == found.to_dict()["log"]
    assert "What is wrong" in (folder / "report.html").read_text(encoding="utf-8")
    assert "What is wrong" in report([folder]).sections[0].heading
    assert (
        Examination.read(folder / "propensities.csv").at(1)
        == Examination.read(folder / "propensities.json").at(1)
        == 1
    )
    with pytest.raises(UnskewError, match="diagnosis"):
        unskew.diagnose(place, out=folder)


def test_propensities_are_those_of_the_chosen_curve(place: Path, written: tuple[Path, Path, Any]) -> None:
    told = json.loads(written[1].read_text())["evidence"]
    seen = Examination.read(place.with_name("propensities.csv")).values
    assert seen.tolist() == pytest.approx(told["curves"][told["chosen"]]["examination"], rel=1e-4)


def test_the_json_alone_can_be_reported(written: tuple[Path, Path, Any], tmp_path: Path) -> None:
    page = report([written[1]])
    assert "Verdicts" in [section.heading for section in page.sections]
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UnskewError, match="no diagnosis of ours"):
        report([tmp_path / "other.json"])


def test_two_diagnoses_in_one_report_are_told_apart(written: tuple[Path, Path, Any], tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(written[1].read_bytes())
    page = report([written[1], other])
    opened = [section.heading for section in page.sections if "What is wrong" in section.heading]
    assert opened == [
        f"What is wrong with this log, and can it be repaired? ({each})" for each in (written[1], other)
    ]
    assert "repaired?." not in page.lead
    assert page.terms_heading == "Words on this page"


def test_files_are_overwritten_by_force_alone(tmp_path: Path) -> None:
    tiny = pa.table({"page_id": [1], "query_id": [1], "doc_id": [1], "position": [1], "click": [0]})
    files = {"out": tmp_path / "page.html", "json": tmp_path / "numbers.json"}
    for path in files.values():
        path.write_text("before")
    with pytest.raises(UnskewError, match=r"page\.html"):
        unskew.diagnose(tiny, **files)
    unskew.diagnose(tiny, **files, force=True)
    assert "before" not in [path.read_text(encoding="utf-8") for path in files.values()]


def test_mistakes_are_told_without_a_traceback(place: Path, tmp_path: Path) -> None:
    raw = tmp_path / "log.csv"
    raw.write_text("page_id,query_id,doc_id,position,click\n1,a,x,1,0\n1,a,y,2,1\n")
    with pytest.raises(UnskewError, match="unskew ingest"):
        unskew.diagnose(raw)
    with pytest.raises(UnskewError, match="a diagnosis, not a log"):
        unskew.diagnose(place.with_name("diagnosis"))
    with pytest.raises(UnskewError, match=r"doc_id.*says what was shown"):
        unskew.diagnose(place, segments=["doc_id"])
    with pytest.raises(UnskewError, match="devise"):
        unskew.diagnose(place, segments=["devise"])
    with pytest.raises(UnskewError, match=r"ends in \.json or \.csv"):
        unskew.diagnose(place, propensities=tmp_path / "weights.txt")
    with pytest.raises(UnskewError, match="nowhere"):
        unskew.diagnose(tmp_path / "nowhere")


def rows_of(pages: int, shown: int, *, document: Any, click: Any, query: Any = lambda page: page % 20) -> Any:
    """A log of so many pages of as many results; functions say which document, whether clicked, and for whom."""
    page, position = np.repeat(np.arange(pages), shown), np.tile(np.arange(1, shown + 1), pages)
    columns = {"page_id": page, "query_id": query(page), "doc_id": document(page, position), "position": position}
    return pa.table({**columns, "click": np.asarray(click(page, position)).astype(int)})


def now_and_then(page: Any, rank: Any) -> Any:
    return (page * 7 + rank * 3) % (5 * rank) == 0


POOR = {
    "one row": (rows_of(1, 1, document=lambda p, k: p, click=lambda p, k: 0 * p), "one rank only"),
    "one position": (rows_of(50, 1, document=lambda p, k: p % 7, click=lambda p, k: p % 2), "one rank only"),
    "one document a query": (
        rows_of(50, 1, document=lambda p, k: p % 20, click=lambda p, k: p % 2),
        "one rank only",
    ),
    "ten rows": (
        rows_of(5, 2, document=lambda p, k: k, click=lambda p, k: k == 1, query=lambda page: page),
        "no document was shown at two ranks for one query",
    ),
    "no swaps": (
        rows_of(200, 5, document=lambda p, k: k, click=now_and_then),
        "no document was shown at two ranks for one query",
    ),
    "no clicks": (
        rows_of(200, 5, document=lambda p, k: (p + p // 20 + k) % 5, click=lambda p, k: 0 * p),
        "0 clicks",
    ),
}


@pytest.mark.parametrize("name", POOR)
def test_logs_that_tell_little_get_reasons_in_the_place_of_numbers(name: str, tmp_path: Path) -> None:
    table, reason = POOR[name]
    pq.write_table(table, tmp_path / "log.parquet")
    words = ["diagnose", tmp_path / "log.parquet", "--out", tmp_path / "out"]
    ended = CliRunner().invoke(app, list(map(str, words)))
    assert ended.exit_code == 0, ended.output
    found = json.loads((tmp_path / "out" / "diagnosis.json").read_text(), parse_constant=refuse)
    assert all(found[part]["reason"] for part in ("matrix", "trust", "co_clicks", "evidence"))
    assert {each["state"] for each in found["verdicts"]} == {"cannot tell"}
    assert found["conclusion"]["recoverable"] != "yes"
    assert reason in " ".join(each["evidence"] for each in found["verdicts"])
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "cannot tell" in text
    assert not re.search(r">(nan|inf)<", text)
    assert not (tmp_path / "out" / "propensities.json").exists()


def test_a_log_in_which_everything_is_clicked_is_not_biased_by_rank(tmp_path: Path) -> None:
    table = rows_of(400, 5, document=lambda p, k: (p + p // 20 + k) % 5, click=lambda p, k: 0 * p + 1)
    found = unskew.diagnose(uncleaned(table)).to_dict()
    assert found["verdicts"][0]["state"] != "present"
    assert json.dumps(found, allow_nan=False)


def test_a_column_with_three_rows_of_a_value_is_not_judged() -> None:
    table = rows_of(400, 5, document=lambda p, k: (p + p // 20 + k) % 5, click=now_and_then)
    rare = np.where(np.arange(len(table)) < 3, "rare", "usual")
    numbers = np.random.default_rng(0).random(len(table))
    for name, column in (("serp_kind", rare), ("serp_width", numbers)):
        told = unskew.diagnose(uncleaned(table.append_column(name, pa.array(column)).slice(0, 500))).to_dict()
        page = next(each for each in told["verdicts"] if each["key"] == "page")
        assert page["state"] == "cannot tell"
        assert f"fewer than two values of {name} have 100 clicks" in page["evidence"]
