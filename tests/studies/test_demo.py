"""The demo: what it writes, what it says of either outcome, and a page that draws itself offline."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import unskew
from tests.helpers.served import started
from unskew.errors import RunError
from unskew.learning.fitting.loop import Progress
from unskew.measuring import Interval
from unskew.pages.console import print_page
from unskew.pages.figures import curves_figure, dots_figure, palette, points_of
from unskew.pages.svg import inline_svg
from unskew.simulation.synthetic import make_lists
from unskew.studies import demo as demo_module
from unskew.studies.demo import (
    DEMO_ARMS,
    Demo,
    DemoResult,
    demo,
    demo_page,
    describe,
    make_world,
    measure_arms,
    results_table,
    serving_lines,
    strong_engine,
    verdict,
    write_request,
)
from unskew.terminal.main import app
from unskew.types import Lists

torch.set_num_threads(1)

TINY: dict[str, Any] = {"queries": 40, "pages": 6000, "steps": 6}


@pytest.fixture(scope="module", autouse=True)
def few_test_queries() -> Iterator[None]:
    """The demo measures on a thousand queries; a hundred are enough here."""

    def smaller(queries: int, seed: int) -> unskew.Lists:
        return make_lists(queries=min(queries, 100), seed=seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_module, "make_lists", smaller)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Demo]:
    """A finished demo and its folder."""
    out = tmp_path_factory.mktemp("demo") / "run"
    return out, demo(out, **TINY)


def without_scripts(page: str) -> str:
    return re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)


def result(name: str, mean: float, gap: float | None = None, curve: list[float] | None = None) -> DemoResult:
    return DemoResult(name, Interval(mean, mean - 0.01, mean + 0.01, 0.95, 100, 0), gap, curve)


# ------------------------------------------------------------------------------------------- what it writes


def test_what_the_demo_writes(finished: tuple[Path, Demo]) -> None:
    out, results = finished[0], finished[1].results
    written = {"results.json", "request.json", "report.html", "figure.svg", "table.md", "page.json"}
    assert {path.name for path in out.iterdir()} == {*DEMO_ARMS, *written}
    content = json.loads((out / "results.json").read_text())
    assert (content["seed"], content["pages"]) == (0, 6000)
    assert content["true_examination"][:2] == pytest.approx([1, 0.61 / 0.68])
    assert [row["name"] for row in content["results"]] == ["logging", *DEMO_ARMS] == [r.name for r in results]
    for row in content["results"]:
        assert 0 < row["interval"][0] <= row["ndcg@10"] <= row["interval"][1] < 1
        assert (row["examination"] is not None) == (row["name"] in ("dla", "ipw"))
    for name in DEMO_ARMS:
        test = json.loads((out / name / "metrics.json").read_text())["test"]
        row = next(row for row in content["results"] if row["name"] == name)
        assert test["means"]["ndcg@10"] == pytest.approx(row["ndcg@10"])
        assert unskew.load(out / name).card.method["name"] == name
    assert (out / "figure.svg").read_text(encoding="utf-8").startswith("<svg")


def test_what_the_demo_prints(finished: tuple[Path, Demo]) -> None:
    stream = io.StringIO()
    print_page(finished[1].page, Console(file=stream, width=100))
    printed, results = stream.getvalue(), finished[1].results
    flat = " ".join(printed.split())
    assert "6,000 result pages for 40 queries" in flat
    assert verdict(results) in flat
    for name in ("logging", *DEMO_ARMS):
        assert re.search(rf"│ {name} +│", printed)
    assert len(re.findall(r"^rank +\d+ █+", printed, re.MULTILINE)) == 10


def test_the_demo_never_overwrites(finished: tuple[Path, Demo], tmp_path: Path) -> None:
    before = (finished[0] / "results.json").read_bytes()
    with pytest.raises(RunError, match="exists and is never overwritten"):
        demo(finished[0], **TINY)
    assert (finished[0] / "results.json").read_bytes() == before
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match=r"is not ours .it has no results.json., so it is not overwritten"):
        demo(tmp_path, force=True, **TINY)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_ctrl_c_ends_the_demo_and_not_one_arm_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pressed:
        """A progress bar whose report presses Ctrl-C."""

        def __enter__(self) -> Any:
            def report(progress: Progress) -> None:
                signal.raise_signal(signal.SIGINT)

            return report

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(demo_module, "training_bar", lambda *_, **__: Pressed())
    options = ["--out", str(tmp_path / "demo"), "--queries", "40", "--pages", "6000", "--steps", "100"]
    ended = CliRunner().invoke(app, ["demo", *options])
    assert ended.exit_code == 130
    assert "Interrupted; nothing was written." in ended.stderr
    assert ended.stdout == ""
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------- served


def test_the_commands_that_end_the_demo_serve_its_model_and_ask_it(
    finished: tuple[Path, Demo], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    folder, out = finished[0].parent, finished[0].name
    monkeypatch.chdir(folder)  # paths are said from there
    lines = serving_lines(out)
    assert [line.startswith("    ") for line in lines] == [False, True, False, True]
    with started(lines[1].strip(), folder) as server:
        ask = ["bash", "-euc", server.at_this(lines[3])]
        said = subprocess.run(ask, cwd=folder, capture_output=True, check=True).stdout
    documents = json.loads((finished[0] / "request.json").read_text())["documents"]
    features = np.array([document["features"] for document in documents], np.float32)
    shown = np.arange(1.0, len(features) + 1)  # the page that was shown, in its order
    lists = Lists(
        features, np.array([0, len(features)]), np.zeros(len(features), np.int16), np.array([0]), shown=shown
    )
    order = unskew.load(finished[0] / "dla").rank(lists)
    answer = json.loads(said)
    assert [one["id"] for one in answer["ranking"]] == [documents[place]["id"] for place in order]
    assert answer["model"] == "dla"


def test_the_request_is_the_page_that_was_shown(tmp_path: Path) -> None:
    world = make_world(0, 40, 1000)
    write_request(world.test, world.logging, tmp_path / "request.json")
    documents = json.loads((tmp_path / "request.json").read_text())["documents"]
    scores = world.logging[[int(document["id"].removeprefix("doc-")) for document in documents]]
    assert scores.tolist() == sorted(world.logging[: world.test.offsets[1]], reverse=True)[: len(documents)]


def test_what_serving_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "find_spec", lambda name: None)
    assert "pip install 'unskew[serve]'; then" in serving_lines("out")[0]
    monkeypatch.setattr(shutil, "which", lambda _: str(Path(sys.executable).with_name("unskew")))
    assert demo_module.own_command() == "unskew"
    assert serving_lines("a folder")[-1].endswith("-d '@a folder/request.json'")


# ------------------------------------------------------------------------------------------- what it says


def test_the_verdict_when_debiasing_helped() -> None:
    said = verdict([result("naive", 0.6), result("dla", 0.7, gap=0.5), result("labeled", 0.8)])
    assert "raw clicks reaches 0.600" in said
    assert "reach 0.700: 50 % of the way to true labels" in said


@pytest.mark.parametrize(("mean", "gap"), [(0.6, 0.0), (0.5, -0.5), (0.7, float("nan")), (0.7, None)])
def test_the_verdict_when_it_did_not(mean: float, gap: float | None) -> None:
    said = verdict([result("naive", 0.6), result("dla", mean, gap), result("labeled", 0.6)])
    assert said == "Here debiasing did not help: learning from the clicks as they are does as well."


def test_a_world_without_a_gap_is_written_as_such() -> None:
    world = make_world(0, 40, 2000)
    results = [result("naive", 0.6), result("dla", 0.7, float("nan"), [1.0, 0.5]), result("labeled", 0.5)]
    assert results_table(results).rows[1][3] == "no gap"
    assert json.loads(json.dumps(results[1].to_dict(), allow_nan=False))["gap_closed"] is None
    strong = [result(name, mean) for name, mean in (("shown", 0.9), ("alone", 0.7), ("begun", 0.92))]
    page = demo_page(world, results, strong)
    assert "debiasing did not help" in page.lead
    assert "orders 300 queries at 0.900" in page.sections[3].text
    assert [row[1] for row in page.sections[3].tables[0].rows] == ["0.900", "0.700", "0.920"]


def test_where_the_engine_is_good_a_run_begins_there_and_stays_above() -> None:
    shown, alone, begun = (each.ndcg.mean for each in strong_engine(0, 100))
    assert shown > alone + 0.05
    assert begun > shown


def test_measure_compares_every_arm_with_the_logging_ranker() -> None:
    world = make_world(3, 40, 2000)
    models = {
        name: unskew.learn(world.log, method, steps=3, validate_on="nothing")
        for name, method in DEMO_ARMS.items()
        if name != "ipw"
    }
    rows = {row.name: row for row in measure_arms(world, models)}
    assert list(rows) == ["logging", "naive", "dla", "labeled"]
    logging = unskew.measure_ranking(world.logging, world.test)
    assert rows["logging"].ndcg.mean == pytest.approx(logging.means["ndcg@10"])
    assert [name for name, row in rows.items() if row.gap is not None] == ["dla"]
    assert f"feature (number {world.log.lists.confounder})" in describe(world)


# ------------------------------------------------------------------------------------------- pages and figures


def test_a_name_cannot_leave_its_chart() -> None:
    evil = "'></svg><b>"
    chart = curves_figure("Seen", {"true": points_of([1.0]), evil: points_of([1.0])}, "seen", true="true").spec
    drawn = inline_svg(chart, "wide", "here", 300)
    assert "<b>" not in drawn
    assert drawn.count("</svg>") == 1
    assert drawn.endswith("</svg>")


def test_a_method_has_one_colour_in_every_figure() -> None:
    colours = palette(["logging", "naive", "dla", "ipw"])
    assert len(set(colours.values())) == 4
    points = {"true": points_of([1.0, 0.5]), "ipw": points_of([1.0, 0.4]), "dla": points_of([1.0, 0.6])}
    curves = curves_figure("Seen", points, "examination", true="true", colours=colours).spec
    rows = [{"name": name, "mean": 0.5, "low": 0.4, "high": 0.6} for name in colours]
    scores = dots_figure("Scores", rows, "nDCG@10").to_dict()
    assert curves["layer"][0]["encoding"]["y"]["scale"] == {"domainMin": 0}  # nothing is cut off above
    for figure in (curves, scores):
        scale = figure["layer"][0]["encoding"]["color"]["scale"]
        found = dict(zip(scale["domain"], scale["range"], strict=True))
        assert found["dla"] == colours["dla"]
        assert found["ipw"] == colours["ipw"]


def test_the_report_loads_nothing(finished: tuple[Path, Demo]) -> None:
    page = (finished[0] / "report.html").read_text(encoding="utf-8")
    found: list[tuple[str, dict[str, str | None]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Tags().feed(page)
    names = [tag for tag, _ in found]
    assert (names.count("script"), names.count("link")) == (1, 1)  # what is shown beside the pointer, and the icon
    assert not {"img", "iframe", "object", "embed"} & set(names)
    links = [str(attributes["href"]) for _, attributes in found if "href" in attributes]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not [attributes for _, attributes in found if {"src", "data", "srcset"} & set(attributes)]
    assert "http" not in without_scripts(page)


def test_the_report_says_what_was_simulated_and_marks_the_best(finished: tuple[Path, Demo]) -> None:
    origin = "Clicks simulated (position bias, severity 1) on generated lists; no real user was involved."
    stream = io.StringIO()
    print_page(finished[1].page, Console(file=stream, width=120))
    ways = [(finished[0] / name).read_text(encoding="utf-8") for name in ("table.md", "report.html")]
    for text in (*ways, stream.getvalue()):
        lines = [line for line in text.splitlines() if line.strip()]
        assert any(origin in line for line in lines[: 20 if "<html" not in text else 200])
        assert re.search("[★≈]|none is marked", text)
        assert "those that learn from clicks" in text
    assert "--queries 40 --pages 6000 --steps 6" in ways[1]
    assert finished[1].page.terms[0].name == "naive"


def test_the_best_arm_is_marked_among_those_that_learn_from_clicks() -> None:
    arms = [result("logging", 0.9), result("naive", 0.6), result("dla", 0.7, gap=0.5), result("labeled", 0.95)]
    table = results_table(arms)
    assert table.cells[2][1] == "★ 0.700"
    close = results_table([result("naive", 0.6), result("dla", 0.7), result("ipw", 0.705), result("labeled", 0.9)])
    assert [row[1] for row in close.cells] == ["0.600", "≈ 0.700", "≈ 0.705", "0.900"]


# ------------------------------------------------------------------------------------------- the terminal


def test_curves_of_any_length() -> None:
    curves = {
        "true": points_of([1.0, 0.5, 0.25]),
        "dla": points_of([1.0, 0.75]),
        "wild": points_of([3.0, 0.0, 0.1]),
    }
    title, *lines = curves_figure("Seen", curves, "examination", true="true").lines
    assert (title, len(lines)) == ("Seen:", 3)
    assert lines[0].split() == ["rank", "1", "█" * 30, "true", "1.0000", "dla", "1.0000", "wild", "3.0000"]
    assert "dla 0.7500" in lines[1]
    assert "dla" not in lines[2]
