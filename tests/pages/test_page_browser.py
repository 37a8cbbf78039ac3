"""Pages in a browser: one with all kinds of sections, on a phone, on a desk and on paper, light and dark."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from browser import Browser, browser, installed

from unskew.diagnosis.causal.graph import graph_of
from unskew.pages import colours
from unskew.pages.colours import FIGURES, PAGE, PAPER, Colour, ordered
from unskew.pages.documents.inspections import graph_figure
from unskew.pages.figures import curves_figure, dots_figure, points_of
from unskew.pages.numbers import Value, with_best
from unskew.pages.page import Figure, Page, Section, Table, Term, write_page
from unskew.pages.svg import inline_svg
from unskew_reproductions.figures import embedding_figure, sweep_figure

LONG = "a_method_with_a_very_long_name_that_somebody_chose"
NAMES = ["naive", "dla", "gradient_reversal", "lightgbm_position", LONG, "labeled", "random"]
needs_browser = pytest.mark.skipif(installed() is None, reason="no chromium on PATH; pages are not opened")


def whole_page() -> Page:
    """A page with every kind of figure, narrow and wide tables, text, code, notes and terms."""
    spread = [
        {"name": n, "mean": 0.5 + k / 50, "low": 0.48 + k / 50, "high": 0.52 + k / 50} for k, n in enumerate(NAMES)
    ]
    dots = [row | {"seeds": (row["low"], row["high"]), "mark": "++", "paper": 0.6} for row in spread]
    curves = {"true": [1.0, 0.6, 0.3], "dla": [1.0, 0.6, 0.4], LONG: [1.0, 0.7, 0.5]}
    line = [{"series": n, "x": k, "mean": 0.5, "low": 0.4, "high": 0.6} for n in NAMES for k in (1, 2, 4)]
    level = {"series": "affine", "x": None, "mean": 0.45, "low": 0.4, "high": 0.5}
    points = [{"x": k / 9 - 0.5, "y": 0.5 - k / 9, "grade": k % 5} for k in range(10)]
    rays = [{"position": k, "x": 0.3, "y": k / 10} for k in range(1, 11)]
    graph = graph_of(
        ["relevance", "position", "serp_max_height", "click"], [("relevance", "click"), ("position", "click")]
    )
    cells = [
        [name, *(f"0.{500 + 10 * row + column} ± 0.012" for column in range(9))] for row, name in enumerate(NAMES)
    ]
    wide = Table(
        ("method", *(f"metric {k}" for k in range(8)), "settings"), cells, "A wide table", text=("settings",)
    )
    wide = with_best(wide, {1: [Value(float(row[1][:5])) for row in cells]}, among="all", spread="none")
    drawn = [
        Figure(
            dots_figure(
                "A title that is longer than a phone is wide, as titles may be", dots, "nDCG@10, mean ± sd"
            )
        ),
        curves_figure("Seen", {name: points_of(curve) for name, curve in curves.items()}, "seen", true="true"),
        Figure(sweep_figure("Sweep", [*line, level], "dimension", "nDCG@10")),
        Figure(embedding_figure("Space", points, rays, (0.3, 0.4), 0.6), scales=False),
        Figure(graph_figure(graph), scales=False),
    ]
    return Page(
        "All that a page may have",
        "The answer.",
        [
            Section("Figures", "Some text.", figures=drawn),
            Section("Tables", tables=[wide, Table(("a", "n"), [["x", "1"]])]),
            Section("Letters", code=["unskew demo " + "--very-long-flag " * 12]),
        ],
        notes=["a note"],
        failed=["dla, seed 0: it broke"],
        origin="Clicks simulated (position bias) on generated lists; no real user was involved.",
        terms=[Term(name, f"What {name} does.", "Somebody et al., 2024.") for name in NAMES],
        command="unskew compare a/path/with/many/parts/" + "x" * 60 + ".toml",
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page on disk."""
    folder = tmp_path_factory.mktemp("page")
    write_page(whole_page(), folder)
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests."""
    profile = tmp_path_factory.mktemp("profile")
    with browser(profile) as opened:
        yield opened
    shutil.rmtree(profile, ignore_errors=True)


# ------------------------------------------------------------------------------------------- in the browser

BOXES = """[...document.querySelectorAll('figure svg')].filter((svg) => svg.getClientRects().length).map((svg) => {
  const ends = (part) => (({left, right}) => [left, right])(part.getBoundingClientRect());
  const drawn = [...svg.querySelectorAll('text, path, line')].filter((part) => part.getClientRects().length);
  const inside = drawn.map(ends);
  return {frame: ends(svg.closest('figure')), svg: ends(svg),
    parts: [Math.min(...inside.map((each) => each[0])), Math.max(...inside.map((each) => each[1]))]};
})"""
SMALLEST = """Math.min(...[...document.querySelectorAll('figure svg text')]
  .filter((text) => text.getClientRects().length).map((text) => text.getBoundingClientRect().height))"""


@needs_browser
@pytest.mark.parametrize("width", [320, 400, 768, 1280])
def test_nothing_is_cut_off_at_any_width(tab: Browser, written: Path, width: int) -> None:
    tab.open(written / "report.html", width=width)
    assert tab.run("document.documentElement.scrollWidth") <= width == tab.run("innerWidth")
    boxes: list[dict[str, Any]] = tab.run(BOXES)
    assert len(boxes) == 5  # every figure, in one of its widths
    for box in boxes:
        for low, high in (box["svg"], box["parts"]):
            assert box["frame"][0] - 2 <= low < high <= box["frame"][1] + 2
    small = tab.run(SMALLEST)
    assert small >= 9  # pixels: what is drawn can be read


@needs_browser
def test_a_wide_table_scrolls_in_its_box_and_keeps_its_names(tab: Browser, written: Path) -> None:
    tab.open(written / "report.html", width=400)
    found = tab.run("""(() => {
      const box = document.querySelector('.table'), name = box.querySelector('tbody th');
      const before = name.getBoundingClientRect().left;
      box.scrollLeft = 500;
      return [box.scrollWidth > box.clientWidth, before, name.getBoundingClientRect().left, box.scrollLeft,
        getComputedStyle(box).backgroundImage.includes('gradient'), box.tabIndex, name.scope];
    })()""")
    assert found == [True, found[1], found[1], 500, True, 0, "row"]


def rgb(colour: str) -> str:
    """A colour as a browser writes it."""
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


LOOK = """(() => {
  const style = (name, key) => getComputedStyle(document.querySelector(name))[key];
  const shown = [...document.querySelectorAll('figure svg')].filter((svg) => svg.getBoundingClientRect().width);
  const fills = shown.map((svg) => getComputedStyle(svg.querySelector('rect')).fill);
  const words = [...shown[0].querySelectorAll('text')].map((text) => getComputedStyle(text).fill);
  return [style('body', 'backgroundColor'), style('body', 'color'), [...new Set(fills)], [...new Set(words)]];
})()"""


@needs_browser
def test_the_colours_are_those_of_the_screen_and_paper_is_white(tab: Browser, written: Path) -> None:
    for dark, media in ((False, "screen"), (True, "screen"), (True, "print")):
        side = int(dark and media == "screen")
        tab.open(written / "report.html", width=1280, dark=dark, media=media)
        assert tab.run("matchMedia('(prefers-color-scheme: dark)').matches") == dark
        paper, ink, figures, words = tab.run(LOOK)
        assert (paper, ink, figures) == (rgb(PAPER[side]), rgb(colours.INK[side]), [rgb(PAPER[side])])
        assert set(words) <= {rgb(colour[side]) for colour in FIGURES}


@needs_browser
def test_paper_shows_all_of_a_table(tab: Browser, written: Path) -> None:
    tab.open(written / "report.html", width=720, media="print")  # A4 within its margins
    assert tab.run("document.documentElement.scrollWidth") <= 720
    assert tab.run("getComputedStyle(document.querySelector('.table')).overflowX") == "visible"


@needs_browser
def test_names_are_explained_to_pointer_and_keyboard(tab: Browser, written: Path) -> None:
    tab.open(written / "report.html", width=400)
    tab.run("document.querySelector('a.term[href=\"#m-dla\"]').focus()")
    card = "document.querySelector('#tip')"
    assert tab.run(f"{card}.textContent") == "What dla does."
    assert tab.run(f"{card}.getBoundingClientRect().left") >= 0
    assert tab.run(f"{card}.getBoundingClientRect().right") <= 400
    assert tab.run(f"{card}.hidden") is False
    tab.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert tab.run(f"{card}.hidden") is True
    mark = "document.querySelector('.narrow [role=graphics-symbol][aria-label^=\"dla 0\"]')"
    tab.run(f"{mark}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
    assert tab.run(f"{card}.textContent") == "dla 0.520 (0.500 to 0.540), paper 0.600"
    name = "[...document.querySelectorAll('.narrow .role-axis-label text')].find((at) => at.innerHTML == 'naive')"
    tab.run(f"{name}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
    assert tab.run(f"{card}.textContent") == "What naive does."
    assert tab.run(f"getComputedStyle({name}).pointerEvents") == "auto"
    assert tab.run("[...document.querySelectorAll('a')].every((a) => document.getElementById(a.hash.slice(1)))")
    headings = tab.run("[...document.querySelectorAll('h1, h2, h3')].map((each) => each.tagName).join(' ')")
    assert re.fullmatch(r"H1( H2)+", headings)


@needs_browser
def test_pages_write_nothing_to_the_console_and_ask_for_nothing(tab: Browser, written: Path) -> None:
    tab.open(written / "report.html", width=1280)
    assert tab.problems == []


# ------------------------------------------------------------------------------------------- without one


def test_every_figure_is_drawn_and_described_without_a_script(written: Path) -> None:
    page = (written / "report.html").read_text(encoding="utf-8")
    still = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
    drawn = re.findall(r"<svg class='(\w+)'[^>]* role='img' aria-label='([^']+)'>", still)
    assert [kind for kind, _ in drawn] == ["wide", "narrow"] * 3 + ["wide"] * 2
    assert all(len(described) > 30 for _, described in drawn)
    assert "dla 0.520 (0.500 to 0.540), paper 0.600" in drawn[0][1]
    ids = re.findall(r"\bid=['\"]([^'\"]+)", page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)
    assert "http" not in still


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_contrast_is_what_wcag_asks_for_at_level_aa(side: int) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    words: list[Colour] = [colours.INK, colours.SOFT, colours.LINK, colours.FAILED]
    words += [colours.MUTED, colours.NAIVE, *colours.SERIES]  # values are written in the colour of their mark
    for colour in words:
        assert contrast(colour[side], PAPER[side]) >= 4.5, colour
    for ground in (colours.TINT, colours.CODE):
        assert contrast(colours.INK[side], ground[side]) >= 4.5
        assert contrast(colours.SOFT[side], ground[side]) >= 4.5
    for colour in (colours.TRUTH, *colours.COOL, *colours.WARM):
        assert contrast(colour[side], PAPER[side]) >= 3, colour
    assert contrast(PAPER[side], colours.INK[side]) >= 4.5  # the card
    assert len({colour[side] for colour in FIGURES}) == len(FIGURES)


def test_every_colour_of_a_figure_has_a_counterpart(written: Path) -> None:
    known = {colour.light for colour in FIGURES} | {"none", "transparent"}
    drawn = (written / "figure.svg").read_text(encoding="utf-8")
    page = (written / "report.html").read_text(encoding="utf-8")
    for text in (re.sub(r"<style>.*?</style>", "", drawn, flags=re.DOTALL), page[page.index("<main>") :]):
        assert set(re.findall(r'(?:fill|stroke)="([^"]+)"', text)) <= known
    assert f'[fill="{PAPER.light}"]{{fill:{PAPER.dark}}}' in drawn  # the figure alone is dark too
    sheet = page[page.index("<style>") : page.index("</style>")]
    used = set(re.findall(r"var\(--(\w+)\)", sheet))
    assert used - {"ground", "state"} == set(PAGE)  # what is set for a part of the page
    assert not re.findall(r"#[0-9a-f]{3,8}\b", sheet[sheet.index("*, *::before") :])  # colours have names


def test_a_chart_without_colours_of_its_own_has_ours() -> None:
    points = [{"x": k, "y": k, "name": f"model {k}"} for k in range(7)]
    chart = alt.Chart({"values": points}).mark_point().encode(x="x:Q", y="y:Q", color="name:N")
    drawn = inline_svg(Figure(chart).spec, "narrow", "here", 340)
    assert set(re.findall(r'(?:fill|stroke)="(#[^"]+)"', drawn)) <= {colour.light for colour in FIGURES}


def test_ordered_colours_are_of_the_ramp() -> None:
    for count in (1, 2, 5, 10):
        found = ordered(colours.COOL, count)
        assert len(set(found)) == count
    assert ordered(colours.WARM, 10) == [colour.light for colour in colours.WARM]
