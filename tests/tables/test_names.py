"""Names are data: columns, files, folders, labels and texts with quotes, SQL, HTML, globs, `..` and line ends.

One file walks every place where a name enters: the engine, folders and paths, lists, reports, the console.
None of them changes a query, a page or a path, and what comes out is called what went in.
"""

from __future__ import annotations

import html as entities
import io
import json
import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import unskew
from unskew.errors import ConfigError, DataError, RunError
from unskew.files import complete_file, complete_folder, write_json
from unskew.logs.counts.rankings import count_rankings
from unskew.logs.ingest.ingest import ingest_files
from unskew.pages.console import print_page
from unskew.pages.page import Page, Section, Table, markdown
from unskew.pages.web import html
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.parquet import parquet_files
from unskew.tables.reading.options import IngestOptions

HOSTILE = (
    """a'b"c`d""",
    "x'); DROP TABLE log; --",
    "\"; COPY (SELECT 1) TO '/tmp/owned' --",
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "one\ntwo",
    "*?[a-z]{b}",
    "..",
    "[bold red]not markup[/]",
    "$HOME ~ %s {0}",
    "\u202etxt.exe",
    "tab\tand;semicolon|pipe",
)
FILES = tuple(name for name in HOSTILE if "/" not in name and name != "..")
"""Those that a file may be called."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with connect("duckdb", threads=1) as opened:
        yield opened


def log_of(extra: dict[str, object] | None = None, rows: int = 4) -> pa.Table:
    """A log of one page."""
    columns: dict[str, object] = {
        "page_id": ["p"] * rows,
        "query_id": ["q"] * rows,
        "doc_id": [str(at) for at in range(rows)],
        "position": pa.array(range(1, rows + 1), pa.int32()),
        "click": pa.array([0] * rows, pa.int8()),
    }
    return pa.table(columns | (extra or {}))


# ------------------------------------------------------------------------------------------- engine


@pytest.mark.parametrize("name", HOSTILE)
def test_columns_of_any_name_pass_the_engine(engine: Engine, tmp_path: Path, name: str) -> None:
    column = f"serp_{name}"
    pq.write_table(log_of({column: [name] * 4}), tmp_path / "in.parquet")
    table = engine.read_parquet(tmp_path / "in.parquet")
    kept = engine.keep(table.filter(table[column] == name).mutate(**{f"{name}2": table[column]}))
    engine.write_parquet(kept, tmp_path / "out")
    found = pq.read_table(tmp_path / "out")
    assert found.column_names == [*log_of().column_names, column, f"{name}2"]
    assert found[column].to_pylist() == [name] * 4


@pytest.mark.parametrize("name", HOSTILE)
def test_ids_and_columns_of_any_name_are_ingested_and_counted(engine: Engine, tmp_path: Path, name: str) -> None:
    column = f"serp_{name}"
    table = log_of({column: [name] * 4}).set_column(1, "query_id", pa.array([name] * 4))
    pq.write_table(table, tmp_path / "in.parquet")
    made = ingest_files(tmp_path / "in.parquet", tmp_path / "log", engine, IngestOptions())
    assert made.impressions == 4
    read = pq.read_table(tmp_path / "log" / "impressions")
    assert read["query_id"].to_pylist() == [name] * 4
    assert column in read.column_names
    counted = count_rankings(engine, engine.read_parquet(tmp_path / "log" / "impressions"))
    assert engine.to_arrow(counted.slots)["query_id"].to_pylist() == [name] * 4


def test_nothing_was_written_by_a_name() -> None:
    assert not Path("/tmp/owned").exists()


# ------------------------------------------------------------------------------------------- paths


@pytest.mark.parametrize("name", FILES)
def test_files_and_folders_of_any_name(engine: Engine, tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    pq.write_table(log_of(), place / f"{name}.parquet")
    pq.write_table(log_of(rows=2), tmp_path / "other.parquet")  # what a glob would find too
    assert engine.count(engine.read_parquet(place)) == 4
    assert engine.count(engine.read_parquet(place / f"{name}.parquet")) == 4
    engine.write_parquet(engine.read_parquet(place), tmp_path / f"{name}.out")
    assert [Path(path).parent.name for path in parquet_files(tmp_path / f"{name}.out")] == [f"{name}.out"]
    with complete_folder(tmp_path / f"{name}.done") as working, complete_file(working / f"{name}.json") as ready:
        write_json(ready, {name: name})
    assert json.loads((tmp_path / f"{name}.done" / f"{name}.json").read_text()) == {name: name}
    expected = {name, "other.parquet", f"{name}.out", f"{name}.done"}
    assert {path.name for path in tmp_path.iterdir()} == expected


def test_a_backslash_is_refused_where_duckdb_writes(engine: Engine, tmp_path: Path) -> None:
    pq.write_table(log_of(), tmp_path / "a\\b.parquet")
    table = engine.read_parquet(tmp_path / "a\\b.parquet")
    assert engine.count(table) == 4
    with pytest.raises(ConfigError, match="DuckDB takes a backslash in a name for a slash"):
        engine.write_parquet(table, tmp_path / "a\\b")
    assert [path.name for path in tmp_path.iterdir()] == ["a\\b.parquet"]


@pytest.mark.parametrize("name", FILES)
def test_runs_and_lists_of_any_name(tmp_path: Path, name: str) -> None:
    lists = unskew.make_lists(queries=20, features=6, documents=6, seed=0)
    unskew.write_letor(lists, tmp_path / f"{name}.txt")
    read = unskew.read_letor(tmp_path / f"{name}.txt", cache=tmp_path / f"{name}.cache")
    log = unskew.simulate(read, unskew.behaviours.PositionBias(), pages=30, seed=0, logger="random")
    unskew.write_log(log, tmp_path / f"{name}.parquet")
    again = unskew.read_log(tmp_path / f"{name}.parquet", read)
    unskew.learn(again, "naive", ranker="linear", steps=1, validate_on="nothing", out=tmp_path / name)
    assert unskew.load(tmp_path / name).score(read).shape == (len(read.features),)
    with pytest.raises(RunError) as told:
        unskew.learn(again, "naive", ranker="linear", steps=1, validate_on="nothing", out=tmp_path / name)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize("name", FILES)
def test_errors_are_one_line_and_name_the_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as told:
        unskew.read_letor(tmp_path / f"{name}.txt", cache=False)
    assert len(str(told.value).splitlines()) == 1
    assert name.split("\n")[0] in str(told.value)


def test_a_log_in_a_folder_above_is_meant_and_no_pattern(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pq.write_table(log_of(), tmp_path / "log.parquet")
    assert engine.count(engine.read_parquet(tmp_path / "a" / ".." / "log.parquet")) == 4
    with pytest.raises(DataError, match=r"\*\.parquet"):
        engine.read_parquet(tmp_path / "*.parquet")


# ------------------------------------------------------------------------------------------- reports


class Tags(HTMLParser):
    """The tags and attributes of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(name: str) -> Page:
    """A page on which the name stands everywhere."""
    table = Table((name, "b"), [(name, "1"), ("c", name)], name)
    return Page(name, name, [Section(name, name, [table])], [name], [name])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_has_the_same_tags_whatever_names_it_shows(name: str) -> None:
    plain, shown = Tags(), Tags()
    plain.feed(html(page_of("plain")))
    shown.feed(html(page_of(name)))
    assert shown.tags == plain.tags
    assert " ".join(name.split()) in " ".join(shown.text.split())
    assert "<script>alert" not in html(page_of(name)).replace(entities.escape(name), "")


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_has_a_line_for_each_row(name: str) -> None:
    def rows(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("|")]

    assert len(rows(markdown(page_of(name)))) == len(rows(markdown(page_of("plain"))))


# ------------------------------------------------------------------------------------------- console


@pytest.mark.parametrize("name", HOSTILE)
def test_the_console_prints_names_as_they_are(name: str) -> None:
    said = io.StringIO()
    print_page(page_of(name), Console(file=said, width=400, color_system=None, force_terminal=False))
    assert " ".join(name.split()) in " ".join(said.getvalue().split())


@pytest.mark.parametrize("name", FILES)
def test_the_command_line_names_what_is_missing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from unskew.terminal import main

    monkeypatch.setattr("sys.argv", ["unskew", "ingest", str(tmp_path / name), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        main.main()
    said = capsys.readouterr().err
    assert left.value.code == 1
    assert said.startswith("unskew: ")
    assert len(said.splitlines()) == 1
    assert name.split("\n")[0] in said
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("name", HOSTILE)
def test_query_texts_and_titles_are_kept(tmp_path: Path, name: str) -> None:
    table = {
        "query_id": [1, 1],
        "doc_id": [1, 2],
        "query_text": [name] * 2,
        "title": [name] * 2,
        "abstract": ["", ""],
    }
    pq.write_table(pa.table(table), tmp_path / "texts.parquet")
    from unskew.tables.features.texts import read_texts

    lists = read_texts([tmp_path / "texts.parquet"])
    assert lists.texts is not None
    assert np.asarray(lists.texts.query).tolist() == [name]
    assert name.strip() in str(lists.texts.document[0])
