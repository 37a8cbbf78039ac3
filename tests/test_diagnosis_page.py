"""The page of a diagnosis: verdicts on top, every number below, the same as in the JSON, drawn in a browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Browser, browser, installed

from unskew.reporting.details import detail_tables, said
from unskew.reporting.diagnosis import HEADINGS, diagnosis_page
from unskew.reporting.diagnosis_figures import links_figure, matrix_figure, points_of
from unskew.reporting.figures import inline_svg
from unskew.reporting.page import Page, markdown
from unskew.reporting.web import html

needs_browser = pytest.mark.skipif(installed() is None, reason="no chromium on PATH; pages are not opened")


def curve(method: str, values: list[float | None]) -> dict[str, Any]:
    spread = [None if value is None else [value - 0.05, value + 0.05] for value in values]
    spread[0] = [1.0, 1.0]
    return {
        "method": method,
        "found_by": f"{method} of documents",
        "examination": values,
        "interval": spread,
        "reason": [None if value is not None else "no document ties it to rank 1" for value in values],
        "pooled": [],
        "clicks": 1234,
    }


def found() -> dict[str, Any]:
    """A diagnosis in the shape of its JSON."""
    curves = {"shuffled": curve("shuffled", [1.0, 0.612, 0.407]), "pivot": curve("pivot", [1.0, 0.633, None])}
    by_device = {"phone": curve("all_pairs", [1.0, 0.511, 0.3]), "desk": curve("all_pairs", [1.0, 0.711, 0.5])}
    context = {
        "segment": "device",
        "curves": by_device,
        "p": {"phone": 0.012, "desk": 0.012},
        "reason": {"phone": None, "desk": None},
        "one_curve": False,
    }
    return {
        "log": {"impressions": 40_321, "clicks": 5_432, "pages": 4_033},
        "interventions": {
            "chosen": "shuffled",
            "reason": None,
            "curves": curves,
            "agreement": [{"first": "shuffled", "second": "pivot", "p": 0.4321, "ratio": 0.9672, "reason": None}],
            "coverage": {"documents": [[50, 7, 3], [7, 40, 9], [3, 9, 30]]},
            "contexts": [context],
        },
        "matrix": {
            "levels": ["low", "high"],
            "ranks": [1, 2, 3],
            "rates": [[0.21, 0.11, 0.06], [0.61, 0.31, 0.16]],
            "singular_values": [0.7313, 0.0123],
            "p": 0.5432,
            "reason": None,
        },
        "trust": {"informative": [], "reason": "random slots have 12 clicks"},
        "factors": {
            "factors": [
                {
                    "name": "serp_video",
                    "values": ["no", "yes"],
                    "effect": [1.0, 1.4142],
                    "p": 0.00001,
                    "reason": None,
                }
            ]
        },
        "identifiability": {
            "links": [
                {"ranks": [1, 2], "pairs": 7, "clicks": 90, "information": 9.5},
                {"ranks": [1, 3], "pairs": 3, "clicks": 20, "information": 1.5},
            ],
            "drawn": 2,
            "weak": [[1, 3]],
            "components": [[1, 2, 3]],
            "reason": None,
        },
        "models": None,
        "verdicts": [
            {
                "name": "position bias",
                "state": "present",
                "evidence": "Rank 3 is seen 0.41 times as often as rank 1.",
                "advice": "Learn with ipw.",
            },
            {
                "name": "trust bias",
                "state": "cannot tell",
                "evidence": "12 clicks.",
                "advice": "Shuffle <more> pages.",
            },
            {"name": "page bias", "state": "absent", "evidence": "p = 0.5.", "advice": ""},
        ],
        "conclusion": {
            "recoverable": "yes",
            "why": "every rank is linked",
            "methods": [{"methods": ["ipw"], "holds": None, "why": "one curve"}],
        },
        "advice": ["Use propensities.json with ipw.", "Shuffle 2,000 pages."],
        "version": "0",
    }


@pytest.fixture(scope="module")
def page() -> Page:
    return diagnosis_page(found(), "A log.", "unskew diagnose log")


@pytest.fixture(scope="module")
def text(page: Page) -> str:
    return html(page)


def test_verdicts_come_first_then_the_curve_and_what_to_do(page: Page) -> None:
    headings = [section.heading for section in page.sections]
    assert headings[:3] == ["Verdicts", "Who is looked at", "What to do next"]
    assert page.lead == (
        "Present: position bias. Absent: page bias. Cannot tell: trust bias. "
        "Can relevance be recovered? Yes: every rank is linked."
    )
    assert page.sections[2].tables[0].rows == [["ipw", "cannot tell", "one curve"]]
    assert page.sections[2].text.splitlines()[0] == "1. Use propensities.json with ipw."
    assert [answer.state for answer in page.sections[0].answers] == ["present", "cannot tell", "absent"]
    assert page.sections[1].text == (
        "Rank 3 is looked at 0.41 (0.36 to 0.46) times as often as rank 1, by shuffled of documents."
    )
    assert page.notes == ["Trust: cannot tell; random slots have 12 clicks."]


def test_names_of_columns_are_left_as_they_are() -> None:
    told = found()
    told["log"]["segments"] = ["device"]
    told["verdicts"][0]["evidence"] = "device phone gets more"
    told["verdicts"][1]["evidence"] = "documents differ"
    answers = diagnosis_page(told).sections[0].answers
    assert [answer.text for answer in answers[:2]] == ["device phone gets more.", "Documents differ."]


def test_a_log_that_tells_nothing_says_why() -> None:
    poor = found()
    poor["interventions"] |= {"chosen": None, "reason": "the log shows one position only"}
    page = diagnosis_page(poor)
    assert "This log cannot tell: the log shows one position only." in markdown(page)


def numbers_in(value: Any) -> Iterator[str]:
    """Every number of a JSON document, as pages write it."""
    if isinstance(value, dict):
        for each in value.values():
            yield from numbers_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from numbers_in(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield said(value)


def test_numbers_of_the_page_are_those_of_the_json(page: Page) -> None:
    told = found()
    del told["version"]
    shown = set(re.findall(r"[\d,]*\d(?:\.\d+)?(?:e-\d+)?", markdown(page)))
    missing = {number for number in numbers_in(told) if number not in shown} - {"1.00e-05"}
    assert missing == set()
    assert "< 0.0001" in markdown(page)
    cells = {
        cell
        for section in page.sections
        for table in section.tables
        for row in table.rows
        for word in row[1:]
        for cell in re.findall(r"\d+\.\d{4}", word)
    }
    assert cells - {"0.0001"} <= set(numbers_in(told))


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


def test_ranks_without_a_value_are_left_out_and_weak_links_named() -> None:
    assert points_of([1.0, None], None) == [(1, 1.0, None, None)]
    chart = json.dumps(links_figure(found()["identifiability"]).chart.to_dict())
    assert "ranks 1 and 3, 3 documents at both, 20 clicks, weak" in chart
    assert "ranks 1 and 2, 7 documents at both, 90 clicks, weak" not in chart


def test_a_well_known_link_is_drawn_thicker() -> None:
    drawn = inline_svg(links_figure(found()["identifiability"]).chart, "wide", "f", 540)
    widths = {
        link: float(width)
        for link, width in re.findall(r'aria-label="(ranks 1 and \d)[^>]*stroke-width="([\d.]+)"', drawn)
    }
    assert widths["ranks 1 and 2"] > 1.5 * widths["ranks 1 and 3"]


def test_chance_does_not_stand_out_in_a_heat_map() -> None:
    def fills(least: float) -> set[str]:
        chart = matrix_figure("t", ["low", "high"], [1, 2], [[0.001, -0.001], [0.0, 0.002]], least=least).chart
        return set(re.findall(r'role="graphics-symbol"[^>]*fill="(#\w+)"', inline_svg(chart, "wide", "f", 540)))

    assert len(fills(0.1)) == 1 < len(fills(0.0))


# ------------------------------------------------------------------------------------------- in the browser


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory, text: str) -> Iterator[Browser]:
    profile = tmp_path_factory.mktemp("profile")
    (profile / "page.html").write_text(text, encoding="utf-8")
    with browser(profile / "chromium") as opened:
        opened.open(profile / "page.html", width=400, dark=True)
        assert opened.run("document.documentElement.scrollWidth") <= 400
        opened.open(profile / "page.html", width=1280)
        yield opened
    shutil.rmtree(profile, ignore_errors=True)


@needs_browser
def test_every_figure_is_drawn_and_the_console_is_silent(tab: Browser, page: Page) -> None:
    drawn = tab.run(
        "[...document.querySelectorAll('figure')].map((figure) => [...figure.querySelectorAll('svg')]"
        ".filter((svg) => svg.getClientRects().length && svg.querySelector('[role=graphics-symbol]')).length)"
    )
    assert drawn == [1] * len(page.figures) == [1] * 5
    assert tab.problems == []
    assert tab.run("document.querySelectorAll('.card').length") == 3
    assert tab.run("document.querySelectorAll('h2').length") >= 3 + len(found().keys() & HEADINGS.keys())


@needs_browser
def test_marks_say_the_numbers_of_the_json(tab: Browser) -> None:
    labels = tab.run("[...document.querySelectorAll('.chart svg.wide [aria-label]')].map((m) => m.ariaLabel)")
    for rank, value in enumerate(found()["interventions"]["curves"]["shuffled"]["examination"], start=1):
        assert any(each.startswith(f"shuffled, rank {rank}: {said(value)}") for each in labels)
    assert "high, rank 2: 0.3100" in labels


@needs_browser
def test_a_segment_can_be_switched_off_and_on_again(tab: Browser) -> None:
    tab.run(
        "window.phone = [...document.querySelectorAll('.switches button')].find((b) => b.textContent === 'phone')"
    )
    seen = (
        "[...document.querySelectorAll('svg.wide [aria-label^=\"phone, \"]')]"
        ".filter((mark) => mark.getClientRects().length).length"
    )
    before = tab.run(seen)
    assert before > 3
    tab.run("phone.click()")
    assert (tab.run(seen), tab.run("phone.ariaPressed")) == (0, "false")
    tab.run("phone.click()")
    assert (tab.run(seen), tab.run("phone.ariaPressed")) == (before, "true")


def test_words_of_the_log_are_escaped_and_the_file_is_small(text: str) -> None:
    assert "Shuffle &lt;more&gt; pages." in text
    assert len(text) < 1_000_000
    assert not re.search(r"(src|href)='http", text)


def test_lists_of_other_lengths_are_cells_rather_than_a_matrix() -> None:
    (table,) = detail_tables({"components": [[1, 2, 3], [4]]})
    assert table.rows == [["1", "1, 2, 3"], ["2", "4"]]
    (square,) = detail_tables({"matrix": [[1, 2, 3], [4, 5, 6]]})
    assert square.rows == [["1", "1", "2", "3"], ["2", "4", "5", "6"]]
