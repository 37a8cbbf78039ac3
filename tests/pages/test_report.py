"""Pages kept and read again, several joined into one, and the command that does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from typer.testing import CliRunner

from unskew.errors import ConfigError, DataError, RunError, UnskewError
from unskew.pages.page import BEST, Answer, Figure, Page, Section, Table, Term, markdown, write_page
from unskew.pages.page_files import SAVED, joined, page_of, read_page
from unskew.pages.web import html
from unskew.terminal.main import app
from unskew.workflows.inspections.report import page_at, report


def chart() -> Any:
    points = [{"x": 1, "y": 2, "says": "phone, rank 1: 2"}]
    dots = alt.Chart({"values": points}).mark_point().encode(x="x:Q", y="y:Q", description="says:N")
    return alt.layer(dots, dots.mark_line()).properties(title="A chart", description="One point.")


def page(title: str = "One", **changes: Any) -> Page:
    table = Table(("a", "n"), [["x", "1"], ["y", "2"]], marks={(1, 1): BEST}, legend="★ is best.")
    cards = [Answer("position bias", "present", "Rank 1 is seen twice as often.", "Weigh clicks.")]
    figure = Figure(chart(), ["* chart"], series=["phone", "desk"])
    content: dict[str, Any] = {
        "sections": [Section("First", "Some text.", [table], [figure], answers=cards)],
        "notes": ["know this"],
        "terms": [Term("dla", "Learns both.", "A paper.")],
        "command": "unskew demo",
    }
    return Page(title, "The answer.", **content | changes)


def run_folder(place: Path) -> Path:
    place.mkdir()
    validation = {"best": 0.5, "step": 10, "on": "labels"}
    (place / "run.json").write_text(json.dumps({"status": "finished"}))
    (place / "metrics.json").write_text(json.dumps({"validation": validation, "curves": []}))
    return place


def test_a_page_that_was_kept_shows_the_same() -> None:
    kept = json.loads(page().to_json())
    again = page_of(kept)
    assert markdown(again) == markdown(page())
    assert html(again) == html(page())
    assert json.loads(again.to_json()) == kept


def test_pages_are_joined_with_their_answers_and_each_note_and_term_once() -> None:
    both = joined([page("One"), page("Two", failed=["it broke"])], "Both", "unskew report a b")
    assert [section.heading for section in both.sections] == ["One", "First", "Two", "First"]
    assert both.sections[0].text == "The answer.\n\nMade by unskew demo"
    assert (both.notes, both.failed) == (["know this"], ["Two: it broke"])
    assert [term.name for term in both.terms] == ["dla"]
    assert both.lead == "2 pages in one: One and Two."


def test_a_run_and_a_page_in_one_file(tmp_path: Path) -> None:
    run, other = run_folder(tmp_path / "run"), tmp_path / "other"
    other.mkdir()
    write_page(page("Other"), other)
    made = report([run, other], out=tmp_path / "page.html", title="Mine")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"finished: {run}" in text
    assert "validation: nDCG@10 0.5000 at step 10" in text
    assert "<h2 id='s3'>Other</h2>" in text
    assert made.title == "Mine"
    with pytest.raises(UnskewError, match=r"page\.html"):
        report([run], out=tmp_path / "page.html")
    report([run], out=tmp_path / "page.html", force=True)
    assert "Other" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_cannot_be_reported_is_told(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match=r"nothing that can be reported.*folder of learn"):
        page_at(tmp_path / "nothing")
    (tmp_path / "nothing" / SAVED).write_text('{"title": "x"}')
    with pytest.raises(DataError, match="no page of ours"):
        read_page(tmp_path / "nothing" / SAVED)
    with pytest.raises(UnskewError, match="nowhere"):
        page_at(tmp_path / "nowhere")
    run = run_folder(tmp_path / "run")
    (run / "metrics.json").unlink()
    with pytest.raises(RunError, match="has not ended"):
        page_at(run)
    with pytest.raises(ConfigError, match="nothing to report"):
        report([])


def test_the_command_writes_a_page_and_says_where(tmp_path: Path) -> None:
    run, out = run_folder(tmp_path / "run"), tmp_path / "page.html"
    ended = CliRunner().invoke(app, ["report", str(run), "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    assert f"Open {out}." in ended.stderr
    assert "nDCG@10 0.5000" in ended.stdout


def test_cards_say_their_state_in_words_and_series_get_switches() -> None:
    text = html(page())
    assert "<article class='card present'><h3>position bias</h3><p class='state'>present</p>" in text
    assert "<p class='advice'>Weigh clicks.</p>" in text
    assert "<figure data-series='[&#34;phone&#34;, &#34;desk&#34;]'>" in text
    assert "- position bias: present. Rank 1 is seen twice as often. Weigh clicks." in markdown(page())
