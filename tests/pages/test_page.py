"""Pages: one description, three ways of showing it; tables that fit, bars that come late, words for flags."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from rich.console import Console

from unskew import __version__
from unskew.learning.fitting.loop import Progress
from unskew.measuring.measurement import Measurement
from unskew.measuring.ranking import RankingReport
from unskew.pages.console import Lines, grid_bar, print_page, training_bar
from unskew.pages.documents.summaries import measure_page, run_page
from unskew.pages.numbers import number, p_value
from unskew.pages.page import (
    BEST,
    PAGE_FILES,
    Figure,
    Page,
    Section,
    Table,
    Term,
    markdown,
    markdown_table,
    write_page,
)
from unskew.pages.web import html

TABLE = Table(
    ("method", "one", "two", "settings"),
    [["naive", "1", "", "plain"], ["dla", "2", "", "max_weight = 5.0"]],
    "Title of it",
    text=("settings",),
    wide=("one",),
    marks={(1, 1): BEST, (0, 3): "≈"},
    legend="★ is best.",
)


def chart() -> Any:
    return alt.Chart({"values": [{"x": 1}]}).mark_point().encode(x="x:Q")


def page(**changes: Any) -> Page:
    content: dict[str, Any] = {
        "title": "What is it?",
        "lead": "It is so.",
        "sections": [
            Section("Tables", "First.\n\nSecond.", [TABLE]),
            Section("Figures", figures=[Figure(chart(), ["* * a chart in letters"])], code=["unskew demo"]),
            Section("Unseen", figures=[Figure(chart())]),
        ],
        "notes": ["know this"],
        "origin": "Nothing was real.",
        "terms": [Term("dla", "Learn both; at once.", "A paper."), Term("other", "Another.", "A paper.")],
        "command": "unskew demo --seed 1",
        "failed": ["naive, seed 0: it broke"],
    }
    return Page(**content | changes)


def printed(shown: Page, width: int = 100) -> str:
    stream = io.StringIO()
    print_page(shown, Console(file=stream, width=width))
    return stream.getvalue()


# ------------------------------------------------------------------------------------------- three ways


def test_every_way_says_the_same(tmp_path: Path) -> None:
    write_page(page(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(PAGE_FILES)
    ways = [(tmp_path / name).read_text(encoding="utf-8") for name in ("table.md", "report.html")]
    for text in (*ways, printed(page())):
        assert text.index("What is it?") < text.index("Nothing was real.") < text.index("First.")
        for part in (
            "What is it?",
            "It is so.",
            "★ 2",
            "★ is best.",
            "≈ plain",
            "First.",
            "Second.",
            "Title of it",
            "max_weight = 5.0",
        ):
            assert part in text
        for part in ("unskew demo", "know this", "Failed: naive, seed 0: it broke"):
            assert part in text
    assert "in letters" not in ways[0] + ways[1]
    for text in ways:  # the terminal has `unskew catalogue`
        for part in (
            "Methods on this page",
            "Learn both; at once.",
            "unskew demo --seed 1",
            f"unskew {__version__}",
        ):
            assert part in text
        assert text.count("A paper.") == 1  # once for neighbours that share it


def test_a_page_without_charts_has_no_figure(tmp_path: Path) -> None:
    write_page(page(sections=[Section("Tables", tables=[TABLE])]), tmp_path)
    assert "<figure" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "figure.svg").exists()


def test_html_is_escaped() -> None:
    terms = {"a & b": Term("a & b", "'><script>")}
    table = Table(("<i>", "n"), [["a & b", "<script>"], ["b", "x"]], "'<c>", marks={(1, 1): BEST}, legend="<l>")
    whole = html(Page("", sections=[Section("", tables=[table])], terms=list(terms.values())))
    cells = whole[whole.index("<main>") : whole.index("</main>")]
    assert "<script>" not in cells
    assert "<c>" not in cells
    assert "title='&#39;&gt;&lt;script&gt;'>a &amp; b</a></th><td>&lt;script&gt;</td>" in cells
    assert cells.count("<td class='best'>★ x</td>") == cells.count("class='best'") == 1
    section = Section("<h>", "1 < 2\n\n3", code=["</pre>"])
    text = html(Page("<t>", "a < b", [section], ["<n>"], ["<f>"], origin="<o>", command="</html>"))
    for part in (
        "<h1>&lt;t&gt;</h1>",
        "a &lt; b",
        "<p class='origin'>&lt;o&gt;</p>",
        "<h2 id='s1'>&lt;h&gt;</h2>",
        "<p>1 &lt; 2</p><p>3</p>",
        "&lt;/pre&gt;",
    ):
        assert part in text
    assert "<li>&lt;n&gt;</li><li class='failed'>Failed: &lt;f&gt;</li>" in text
    assert text.count("</html>") == 1


def test_markdown_keeps_bars_inside_cells() -> None:
    text = markdown(Page("T", sections=[Section("s", tables=[Table(("a", "n"), [["x|y", "1"]])])]))
    assert text == "# T\n\n## s\n\n| a | n |\n| --- | ---: |\n| x\\|y | 1 |\n"
    assert markdown_table(TABLE).endswith("| dla | **★ 2** |  | max_weight = 5.0 |")


# ------------------------------------------------------------------------------------------- tables


def test_columns_are_left_out_and_no_row() -> None:
    less = TABLE.without_empty()
    assert (list(less.columns), less.rows[1]) == (["method", "one", "settings"], ["dla", "2", "max_weight = 5.0"])
    assert list(TABLE.without_empty(but=3).columns) == list(TABLE.columns)
    least = TABLE.without(["one", "two"])
    assert list(least.columns) == ["method", "settings"]
    assert least.marks == {(0, 1): "≈"}  # marks go with their column


def test_a_narrow_terminal_does_without_wide_columns() -> None:
    numbers = [f"{index}." + "1" * 12 for index in range(3)]
    wide = Table(("method", "a", "b", "c"), [["dla", *numbers]], wide=("b", "c"))
    shown = {width: printed(Page("t", sections=[Section("s", tables=[wide])]), width) for width in (120, 50, 20)}
    found = {width: [value in text for value in numbers] for width, text in shown.items()}
    assert found[120] == [True, True, True]
    assert found[50] == [True, False, True]  # the first of `wide` goes first
    assert found[20][1:] == [False, False]
    unprinted = Table(("method", "a"), [["dla", "0.5"]], printed=False)
    assert "dla" not in printed(Page("t", sections=[Section("s", tables=[unprinted])]))


def test_text_and_numbers_stand_apart() -> None:
    lines = printed(page()).splitlines()
    (row,) = [line for line in lines if "naive " in line and "│" in line]
    assert re.search(r"│ naive  │   1 │     │ ≈ plain +│", row)
    assert "<td class='text'>≈ plain</td>" in html(page())


def test_numbers() -> None:
    assert [number(value) for value in (0.5, None, float("nan"))] == ["0.5000", "n/a", "n/a"]
    assert [p_value(value) for value in (0.5, 0.00001, None)] == ["0.5000", "< 0.0001", "n/a"]


# ------------------------------------------------------------------------------------------- the terminal


def test_brackets_and_long_lines_stay_as_they_are() -> None:
    long = "a [bold] line " + "that goes on and on " * 10
    assert long.strip() in printed(Page(long.strip(), sections=[Section("s", "x")]), 40)


def bar_of(text: str) -> list[str]:
    plain = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", text).replace("\r", "\n")
    return [line for line in plain.split("\n") if line.strip()]


def test_a_bar_comes_with_the_first_progress() -> None:
    for terminal in (True, False):
        stream = io.StringIO()
        console = Console(file=stream, width=80, force_terminal=terminal, color_system=None)
        with pytest.raises(ValueError, match="wrong"), grid_bar(console):
            raise ValueError("a wrong setting")
        with pytest.raises(ValueError, match="wrong"), training_bar("dla", 2, console):
            raise ValueError("a wrong setting")
        assert stream.getvalue() == ""
        with grid_bar(console) as tell:
            assert tell is not None
            tell(1, 2, ["position: dla, seed 0", "[a]"])
        drawn = bar_of(stream.getvalue())
        assert ("1/2" in drawn[-1] and "position: dla" in drawn[-1]) if terminal else drawn == []


def test_where_no_terminal_is_progress_is_a_line_every_ten_seconds() -> None:
    now, said = [0.0], list[str]()
    tell = Lines("dla", said.append, clock=lambda: now[0])
    for now[0], done in ((1.0, 10), (9.9, 100), (10.5, 200), (15.0, 300), (20.4, 400), (20.6, 500), (24.0, 800)):
        tell(done, 800, f"loss {done}")
    assert said == [
        "unskew: dla: 200 of 800, 10 s, about 32 s left; loss 200",
        "unskew: dla: 500 of 800, 21 s, about 12 s left; loss 500",
        "unskew: dla: 800 of 800, 24 s; loss 800",
    ]
    brief = list[str]()
    Lines("naive", brief.append, clock=lambda: 3.0)(800, 800, "")
    assert brief == []  # what is over at once says nothing


def test_rounds_without_an_end_are_counted_up() -> None:
    now, said = [0.0], list[str]()
    tell = Lines("cells", said.append, clock=lambda: now[0])
    now[0] = 11.0
    tell(3, None, "")
    assert said == ["unskew: cells: 3, 11 s"]


def test_nobody_is_told_nothing() -> None:
    with training_bar("dla", 2, None) as report, grid_bar(None) as tell:
        assert report is None
        assert tell is None


@pytest.mark.parametrize("metric", [None, 0.5, float("nan")])
def test_the_bar_survives_a_narrow_terminal(metric: float | None) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    with training_bar("regression_em", 200, console) as report:
        assert report is not None
        report(Progress(100, 1.25, metric, None, 1.0, 25_000.0))
    last = bar_of(stream.getvalue())[-1]
    assert len(last) <= 80
    for part in ("regression_em", "━", "100/200", "loss 1.25", "docs/s"):
        assert part in last
    assert ("valid" in last) == (metric is not None)


# ------------------------------------------------------------------------------------------- summaries


def test_a_run_without_validation_and_measures_without_a_value() -> None:
    ended = run_page("finished: runs/dla", ("nothing", None, 0), [], [])
    assert printed(ended) == "finished: runs/dla\n"
    nan = float("nan")
    ranking = RankingReport({}, {"ndcg@10": nan}, {}, queries=2, without_relevant=2, empty="skip")
    clicks = {"AUC": nan, "perplexity by rank": [1.5, nan]}
    text = printed(measure_page(Measurement("runs/dla", ranking=ranking, clicks=clicks)))
    assert "2 queries, 2 of them without a relevant document (skip)" in text
    assert re.search(r"│ ndcg@10 +│ +n/a │", text)
    assert re.search(r"│ perplexity by rank +│ 1.5000 n/a +│", text)
