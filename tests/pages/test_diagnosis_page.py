"""The page of a diagnosis: what it means on top, every number below, those of the JSON, drawn in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from browser import Browser, browser, installed

import unskew
from unskew.diagnosis.click_models.comparison import ClickModelComparison, ComparedModel
from unskew.diagnosis.curves.trust import TrustFit
from unskew.diagnosis.diagnosis import Diagnosis
from unskew.diagnosis.evidence.links import RankGraph, RankLink, Swap, SwapPlan
from unskew.diagnosis.verdicts.advice import NextStep
from unskew.logs.log import log_tables
from unskew.pages.colours import COOL
from unskew.pages.documents.diagnosis import diagnosis_page
from unskew.pages.documents.diagnosis_parts import HEADINGS, spans
from unskew.pages.documents.inspections import click_models_page
from unskew.pages.figures import (
    MOST_LINES,
    curves_figure,
    matrix_figure,
    points_of,
)
from unskew.pages.numbers import detail_tables, said
from unskew.pages.page import Page, markdown
from unskew.pages.svg import inline_svg
from unskew.pages.web import html

needs_browser = pytest.mark.skipif(installed() is None, reason="no chromium on PATH; pages are not opened")
PAGES = 2500


@pytest.fixture(scope="module")
def diagnosed() -> Diagnosis:
    """A diagnosis of a small simulated log with a device, features and labels."""
    lists = unskew.make_lists(queries=40, documents=8, features=5, seed=0)
    log = unskew.simulate(lists, "position", pages=PAGES, randomized=0.5, seed=0)
    table = pa.concat_tables(log_tables(log, 10**6))
    table = table.filter(pc.less_equal(table["position"], 6))
    device = np.where(np.random.default_rng(0).random(PAGES) < 0.5, "phone", "desk")[table["page_id"].to_numpy()]
    table = table.append_column("serp_device", pa.array(device))
    table = table.append_column("serp_name", pa.array([f"n{number}" for number in table["page_id"].to_pylist()]))
    with pytest.warns(UserWarning, match="left out"):  # pages that were clicked throughout
        return unskew.diagnose(table, features=lists, labels=lists, threads=1)


@pytest.fixture(scope="module")
def found(diagnosed: Diagnosis) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(diagnosed.to_json())
    return made


@pytest.fixture(scope="module")
def page(diagnosed: Diagnosis) -> Page:
    return diagnosis_page(diagnosed, "A log.", "unskew diagnose log")


@pytest.fixture(scope="module")
def text(page: Page) -> str:
    return html(page)


def test_first_what_it_means_then_what_to_do_then_the_evidence(page: Page, found: dict[str, Any]) -> None:
    headings = [section.heading for section in page.sections]
    assert headings[:4] == ["What to do next", "Verdicts", "Who is looked at", "Methods, and what they assume"]
    assert headings[4:] == list(HEADINGS.values())
    why, first = found["conclusion"]["why"], found["conclusion"]["next"][0]["text"]
    assert re.match(r"This log is biased \(position.*\), and it can be repaired: ", page.lead)
    assert page.lead.endswith(f": {why}. Next: {first}.")
    assert page.sections[0].text.lower().startswith(f"1. {first}.".lower())
    assert [answer.state for answer in page.sections[1].answers] == [each["state"] for each in found["verdicts"]]
    assert re.match(r"Rank 6 is looked at 0\.\d\d \(0\.\d\d to 0\.\d\d\) times as often", page.sections[2].text)
    assert "Column serp_name was left out: it has 2,499 values, and 50 is the most." in page.notes
    assert {"examination", "swap", "shuffled page"} <= {term.name for term in page.terms}


@pytest.mark.parametrize(
    ("states", "recoverable", "lead"),
    [
        (["absent"], "yes", "No bias was found in this log, and its clicks tell relevance: because."),
        (["cannot tell"], "no", "Whether this log is biased cannot be told for sure, and its clicks alone cannot"),
        (
            ["present"],
            "cannot tell",
            "This log is biased (position), and whether it can be repaired cannot be told",
        ),
    ],
)
def test_the_answer_is_a_sentence(diagnosed: Diagnosis, states: list[str], recoverable: Any, lead: str) -> None:
    verdicts = tuple(replace(diagnosed.verdicts[0], state=state) for state in states)  # type: ignore[arg-type]
    conclusion = replace(diagnosed.conclusion, recoverable=recoverable, why="because")
    assert diagnosis_page(replace(diagnosed, verdicts=verdicts, conclusion=conclusion)).lead.startswith(lead)


def test_names_of_columns_are_left_as_they_are(diagnosed: Diagnosis) -> None:
    first, second, *_ = diagnosed.verdicts
    verdicts = replace(first, evidence="serp_device phone gets more"), replace(second, evidence="documents differ")
    answers = diagnosis_page(replace(diagnosed, verdicts=verdicts)).sections[1].answers
    assert [answer.text for answer in answers[:2]] == ["serp_device phone gets more.", "Documents differ."]


def test_a_log_that_tells_nothing_says_why(diagnosed: Diagnosis) -> None:
    evidence = replace(diagnosed.evidence, chosen=None, reason="the log has one rank only")
    trust = TrustFit(0, 9, (), (), (), (), (), (), None, None, reason="no slot was filled at random")
    said_there = markdown(diagnosis_page(replace(diagnosed, evidence=evidence, trust=trust)))
    assert "This log cannot tell: the log has one rank only." in said_there
    assert "This log cannot tell: no slot was filled at random." in said_there
    assert "Trust: cannot tell; no slot was filled at random." in said_there


NUMBER = r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]\d+)?(?!\w)"


def numbers_in(value: Any, key: str = "") -> Iterator[str]:
    """Every number of a JSON document, as pages write it."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from numbers_in(each, name)
            yield from numbers_in(each, key)
            yield from re.findall(NUMBER, name)
    elif isinstance(value, list):
        for each in value:
            yield from numbers_in(each, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from (said(value, key), said(value), said(value, "p"))
    elif isinstance(value, str):
        yield from re.findall(NUMBER, value)


def strange(texts: list[str], found: dict[str, Any]) -> set[str]:
    """Numbers of texts that the JSON does not have, but for ranks and counts of what is shown."""
    known = set(numbers_in(found)) | {str(number) for number in range(200)} | {"0.0001"}
    return {number for each in texts for number in re.findall(NUMBER, each) if number not in known}


def test_numbers_of_the_page_are_those_of_the_json(page: Page, found: dict[str, Any]) -> None:
    cells = [
        " ".join((table.title, table.legend, *(cell for row in table.rows for cell in row)))
        for section in page.sections
        for table in section.tables
    ]
    assert len(cells) > 25
    assert strange(cells, found) == set()
    assert strange(["0.12345"], found) == {"0.12345"}
    shown = set(re.findall(NUMBER, markdown(page)))
    for part in ("curves", "matrix", "trust", "factors", "co_clicks", "judged"):
        told = {said(value) for value in _floats(found[part])}
        assert len(told & shown) > 0.8 * len(told) > 0, part


def _floats(value: Any) -> Iterator[float]:
    """Numbers with a point, but for tiny and large ones, which may be written otherwise."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _floats(each)
    if isinstance(value, float) and 0.01 <= value < 10:
        yield value


def test_no_chance_is_nought_and_nothing_is_no_number(text: str) -> None:
    shown = re.sub(r"<script\b.*?</script>|<style\b.*?</style>", "", text, flags=re.DOTALL)
    assert not re.search(r"p = 0(\.0+)?\b(?!\.\d)", shown)
    assert not re.search(r"\b(nan|inf|infinity|none|undefined)\b", re.sub(r"<[^>]+>", " ", shown), re.IGNORECASE)


def test_swaps_are_one_table(diagnosed: Diagnosis) -> None:
    swaps = tuple(Swap(ranks, 1200, 2400, 0.03, 0.1) for ranks in ((6, 7), (7, 8)))
    graph = replace(diagnosed.evidence.graph, plan=SwapPlan(0.1, swaps, 2400, 1.0, None))
    page = diagnosis_page(replace(diagnosed, evidence=replace(diagnosed.evidence, graph=graph)))
    tables = next(s for s in page.sections if s.heading == HEADINGS["graph"]).tables
    (plan,) = (table for table in tables if table.title == "swap plan")
    assert [row[0] for row in plan.rows] == ["6 and 7", "7 and 8"]
    assert "2,400 pages in all" in plan.legend


def test_ranks_in_a_row_are_told_by_their_ends() -> None:
    assert spans([1, 3, 4, 5, 9, 10]) == "1, 3 to 5, 9 to 10"


def test_every_kind_of_value_has_a_cell() -> None:
    tables = detail_tables(
        {
            "a": 1,
            "b": [0.1, 0.2, 0.3],
            "c": [{"d": "e", "f": None}, {"d": "h", "f": None}],
            "g": {"h": {"i": 2}},
            "j": [],
        }
    )
    assert [table.rows for table in tables] == [
        [["a", "1"], ["j", "–"]],
        [["1", "0.1000"], ["2", "0.2000"], ["3", "0.3000"]],
        [["e", "–"], ["h", "–"]],
        [["h", "2"]],
    ]


def test_ranks_without_a_value_are_left_out_and_weak_links_named(diagnosed: Diagnosis) -> None:
    assert points_of([1.0, None], None) == [(1, 1.0, None, None)]
    links = (RankLink((1, 2), 7, 90, 9.5), RankLink((1, 3), 3, 20, 1.5))
    graph = RankGraph(3, 10, 110, 1.0, ((1, 2, 3),), links, ((1, 3),), None)
    page = diagnosis_page(replace(diagnosed, evidence=replace(diagnosed.evidence, graph=graph)))
    shown = next(s for s in page.sections if s.heading == HEADINGS["graph"])
    assert ["ranks with a neighbour that they are badly compared with", "1, 3"] in shown.tables[0].rows
    drawn = inline_svg(shown.figures[0].spec, "wide", "f", 540)
    found = dict(re.findall(r'aria-label="(rank \d, rank \d): [^>]*fill="(#\w+)"', drawn))
    assert set(found) == {"rank 1, rank 2", "rank 2, rank 1", "rank 1, rank 3", "rank 3, rank 1"}
    order = [colour.light for colour in COOL]
    assert order.index(found["rank 1, rank 2"]) > order.index(found["rank 1, rank 3"])  # it stands out more


def test_chance_does_not_stand_out_in_a_heat_map() -> None:
    def fills(least: float) -> set[str]:
        chart = matrix_figure("t", ["low", "high"], [1, 2], [[0.001, -0.001], [0.0, 0.002]], least=least).spec
        return set(re.findall(r'role="graphics-symbol"[^>]*fill="(#\w+)"', inline_svg(chart, "wide", "f", 540)))

    assert len(fills(0.1)) == 1 < len(fills(0.0))


def test_lines_whose_colour_comes_again_are_dashed_and_too_many_are_not_drawn() -> None:
    curves = {f"c{at}": points_of([1.0, at / 20]) for at in range(MOST_LINES + 1)}
    figure = curves_figure("Many", curves, "value")
    assert "the first 12 of 13" in figure.chart.title
    drawn = inline_svg(figure.spec, "wide", "f", 540)
    lines = set(
        re.findall(r'<path aria-label="(c\d+), rank[^>]*stroke="([^"]+)"[^>]*stroke-dasharray="([^"]+)"', drawn)
    )
    assert len({line[0] for line in lines}) == len({line[1:] for line in lines}) == MOST_LINES


# ------------------------------------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, text: str) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Iterator[Browser]:
    profile = tmp_path_factory.mktemp("profile")
    with browser(profile / "chromium") as opened:
        opened.open(place, width=1280)
        yield opened
    shutil.rmtree(profile, ignore_errors=True)


@needs_browser
def test_every_figure_is_drawn_and_described_and_the_console_is_silent(tab: Browser, page: Page) -> None:
    drawn = tab.run(
        "[...document.querySelectorAll('figure')].map((figure) => [...figure.querySelectorAll('svg')]"
        ".filter((svg) => svg.getClientRects().length && svg.querySelector('[role=graphics-symbol]')).length)"
    )
    assert drawn == [1] * len(page.figures)
    assert len(drawn) >= 10
    described = tab.run("[...document.querySelectorAll('figure svg')].map((svg) => svg.ariaLabel)")
    assert all(len(each) > 30 for each in described)
    assert tab.problems == []
    assert tab.run("document.querySelectorAll('.card').length") == 5


@needs_browser
def test_what_a_reader_sees_are_numbers_of_the_json(tab: Browser, found: dict[str, Any]) -> None:
    cells = tab.run("[...document.querySelectorAll('main td, main tbody th')].map((cell) => cell.textContent)")
    labels = tab.run("[...document.querySelectorAll('.chart svg.wide [aria-label]')].map((m) => m.ariaLabel)")
    marks = [each for each in labels if ", rank " in each]
    assert len(cells) > 400
    assert len(marks) > 100
    assert strange(cells + marks, found) == set()
    curve = found["evidence"]["curves"][found["evidence"]["chosen"]]
    assert len(curve["examination"]) == 6
    for rank, value in enumerate(curve["examination"], start=1):
        assert any(each.startswith(f"{curve['found_by']}, rank {rank}: {said(value)}") for each in marks)


SEEN = """[...document.querySelectorAll('svg.wide [aria-label^="phone, "]')]
  .filter((mark) => mark.getClientRects().length).length"""


def middle(tab: Browser, name: str) -> dict[str, float]:
    """Where a part is, once it is in view."""
    tab.run(f"{name}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    x, y = tab.run(
        f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({name}.getBoundingClientRect())"
    )
    return {"x": x, "y": y}


@needs_browser
def test_a_segment_is_switched_off_and_on_by_pointer_and_keyboard(tab: Browser) -> None:
    buttons = "[...document.querySelectorAll('.switches button')]"
    tab.run(f"window.phone = {buttons}.find((button) => button.textContent === 'phone')")
    before = tab.run(SEEN)
    assert before > 3
    at = middle(tab, "phone")
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, **at, button="left", clickCount=1)
    assert tab.run("phone.ariaPressed") == "false"
    assert tab.run(SEEN) < before
    tab.run("phone.focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", text=" ", windowsVirtualKeyCode=32)
    assert (tab.run("phone.ariaPressed"), tab.run(SEEN)) == ("true", before)


@needs_browser
def test_a_mark_tells_its_number_beside_the_pointer(tab: Browser, found: dict[str, Any]) -> None:
    marks = "[...document.querySelectorAll('svg.wide path[aria-roledescription=point]')]"
    tab.run(f"window.mark = {marks}.find((mark) => mark.ariaLabel.startsWith('all, rank 2: '))")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", **middle(tab, "mark"))
    told = tab.run("document.querySelector('#tip').textContent")
    assert told.startswith(f"all, rank 2: {said(found['curves']['rates']['rate'][1])}")


CONTRAST = """(() => {
  const shade = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (part) => {
    for (let at = part; at; at = at.parentElement) {
      const found = shade(getComputedStyle(at).backgroundColor);
      if ((found[3] ?? 1) === 1) return found;
    }
  };
  const wordy = (part) => [...part.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  const texts = [...document.querySelectorAll('body *')].filter((p) => p.getClientRects().length && wordy(p));
  return texts.map((part) => {
    const style = getComputedStyle(part), ink = shade(part.closest('svg') ? style.fill : style.color);
    const [low, high] = [light(ink), light(ground(part))].sort((a, b) => a - b);
    return [(high + 0.05) / (low + 0.05), part.tagName + ' ' + part.textContent.trim().slice(0, 40)];
  }).filter(([ratio]) => ratio < 4.5);
})()"""


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(320, True), (768, False), (1280, True)])
def test_a_page_fits_its_screen_and_can_be_read(tab: Browser, place: Path, width: int, dark: bool) -> None:
    tab.open(place, width=width, dark=dark)
    assert tab.run("document.documentElement.scrollWidth") <= width
    tab.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run(CONTRAST) == []


@needs_browser
def test_long_tables_are_folded_on_a_screen_and_open_on_paper(tab: Browser, place: Path) -> None:
    tables = "[...document.querySelectorAll('details .table')]"
    seen = f"{tables}.map((each) => each.checkVisibility({{contentVisibilityAuto: true}}))"
    tab.open(place, width=720)
    assert set(tab.run("[...document.querySelectorAll('details')].map((each) => each.open)")) == {False}
    tab.open(place, width=720, media="print")
    tab.run("dispatchEvent(new Event('beforeprint'))")
    assert set(tab.run(seen)) == {True}
    assert tab.run("document.documentElement.scrollWidth") <= 720
    tab.run("dispatchEvent(new Event('afterprint'))")
    assert set(tab.run("[...document.querySelectorAll('details')].map((each) => each.open)")) == {False}


def test_words_of_the_log_are_escaped_and_the_file_is_small(diagnosed: Diagnosis, text: str) -> None:
    first = replace(diagnosed.verdicts[0], advice=NextStep("shuffle <more> pages"))
    whole = diagnosis_page(replace(diagnosed, verdicts=(first,)))
    assert "Shuffle &lt;more&gt; pages." in html(replace(whole, sections=whole.sections[:2]))
    assert len(text) < 5_000_000
    assert not re.search(r"(src|href)='http", text)


def test_lists_of_other_lengths_are_cells_rather_than_a_matrix() -> None:
    (table,) = detail_tables({"components": [[1, 2, 3], [4]]})
    assert table.rows == [["1", "1, 2, 3"], ["2", "4"]]
    (square,) = detail_tables({"matrix": [[1, 2, 3], [4, 5, 6]]})
    assert square.rows == [["1", "1", "2", "3"], ["2", "4", "5", "6"]]


def test_ten_click_models_can_be_told_apart() -> None:
    names = ["pbm", "ubm", "dbn", "sdbn", "dcm", "ccm", "dctr", "rctr", "cascade", "rcm", "pbm+rctr"]
    plain = {"log_likelihood": -2.0, "behind": 0.0, "standard_error": None, "perplexity": 1.1, "parameters": 3}
    plain |= {"conditional_perplexity": 1.1, "rounds": 6, "seconds": 0.1, "converged": True}
    models = [
        ComparedModel(
            name=name,
            perplexity_by_rank={},
            conditional_perplexity_by_rank={1: 1.5 + at / 10, 2: 1.2},
            **plain,  # type: ignore[arg-type]
        )
        for at, name in enumerate(names)
    ]
    page = click_models_page(ClickModelComparison(models, 90, 10, 100, 3, []))
    assert [len(figure.series) for figure in page.figures] == [5, len(names)]
    drawn = inline_svg(page.figures[1].spec, "wide", "f", 540)
    found = r'<path aria-label="([a-z+]+), rank[^>]*stroke="([^"]+)"[^>]*stroke-dasharray="([^"]+)"'
    lines = set(re.findall(found, drawn))
    assert {line[0] for line in lines} == set(names)
    assert len({line[1:] for line in lines}) == len(names)
    assert set(names) - {"pbm+rctr"} <= {term.name for term in page.terms}
