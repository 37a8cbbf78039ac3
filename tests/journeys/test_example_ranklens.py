"""The RankLens example: on made-up events whose position bias is known, and on the real ones where they lie."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from unskew.logs.ingest.formats import READERS
from unskew.logs.ingest.formats.stage import Stage
from unskew.tables.reading.options import IngestOptions
from unskew.types import Lists, Log

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "samples" / "metarank" / "events.jsonl"
MOVIES, WIDTH, VISITS = 60, 12, 150


@pytest.fixture(scope="module")
def example() -> Any:
    """The script's modules, found where the script finds them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "ranklens"))
        names = ("ranklens", "ranklens_curves", "ranklens_movies", "ranklens_page", "ranklens_study")
        yield {name: importlib.import_module(name) for name in names}


def made_up(path: Path) -> None:
    """Events in RankLens' format: shuffled pages, votes decide clicks, the lower half of a page is seen half."""
    rng = np.random.default_rng(5)
    votes = rng.exponential(1000, MOVIES)
    lines: list[dict[str, Any]] = []
    for movie, count in enumerate(votes):
        fields = [{"name": "vote_cnt", "value": float(count)}, {"name": "genres", "value": ["drama"]}]
        if movie != 7:  # one that is shown and has no item event
            about = {"event": "item", "id": f"e{movie}", "item": f"m{movie}", "timestamp": "1000"}
            lines.append(about | {"fields": fields})
    rate = 0.6 * votes.argsort().argsort() / MOVIES + 0.1
    for visit in range(VISITS):
        for page in range(4):
            shown = rng.permutation(MOVIES)[:WIDTH]
            seen = np.where(np.arange(WIDTH) < WIDTH // 2, 1.0, 0.5)
            clicked = rng.random(WIDTH) < rate[shown] * seen
            clicked |= visit == 3 and page == 0  # spam: everything clicked
            when, name = 1_600_000_000_000 + visit * 3_600_000 + page * 60_000, f"r{visit}-{page}"
            known = {"user": f"u{visit}", "session": f"v{visit}"}
            items = [{"id": f"m{movie}"} for movie in shown]
            lines.append({"event": "ranking", "id": name, "timestamp": str(when), "items": items} | known)
            lines += [
                {"event": "interaction", "id": f"{name}-{movie}", "ranking": name, "timestamp": str(when + 1000)}
                | {"type": "click", "item": f"m{movie}"}
                | known
                for movie in shown[clicked]
            ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_runs_on_made_up_events(example: dict[str, ModuleType], tmp_path: Path) -> None:
    made_up(tmp_path / "events.jsonl")
    out = tmp_path / "run"
    small = ["--seeds", "1", "--steps", "60", "--draws", "50", "--refits", "0", "--share", "0.4", "--common", "1"]
    result = example["ranklens"].main([str(tmp_path / "events.jsonl"), "--out", str(out), *small])
    assert result["about"]["ingest"]["rules"]["everything_clicked"]["rows"] == WIDTH
    assert result["pages"]["whole"] == 4 * VISITS - 1
    assert sum(result["pages"][part] for part in ("train", "validation", "test")) == 4 * VISITS - 1
    assert {"vote_cnt", "year", "is_known", "genre_drama"} <= set(result["features"])
    low, high = result["truth"]["interval"]
    assert low < result["truth"]["fall"] < high
    assert 0.4 < result["truth"]["fall"] < 0.65  # half, as made

    def falls(title: str) -> dict[str, float]:
        one = next(one for one in result["studies"] if one["title"] == title)
        return {row["curve"]: row["fall"] for row in one["curves"]}

    ordered, truth = falls("ordered by votes"), result["truth"]["fall"]
    assert ordered["click rate by rank"] < 0.9 * truth  # popularity taken for position
    for method in ("dla", "regression_em", "additive"):
        assert abs(ordered[method] - truth) < abs(ordered["click rate by rank"] - truth), method
    held = {row["method"]: row["nDCG@10"]["mean"] for row in result["studies"][0]["held out"]}
    assert held["dla"] > held["any order"] + 0.05
    json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)  # no NaN
    assert (out / "figure.svg").read_text().startswith("<svg")
    page = (out / "report.html").read_text()
    for part in (
        "ordered by votes",
        "A real log: ",
        "nothing was simulated",
        "Learn ranker and examination together.",
    ):
        assert part in page
    assert "| dla |" in (out / "table.md").read_text()
    with pytest.raises(SystemExit):  # a finished run is not overwritten
        example["ranklens"].main([str(tmp_path / "events.jsonl"), "--out", str(out)])


def test_movies_of_the_sample(example: dict[str, ModuleType], tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    READERS["metarank"](stage, IngestOptions()).read([SAMPLE])
    movies = example["ranklens_movies"].read_movies(stage.close()["item_fields"])
    assert movies["m1"]["genres"] == ["drama", "comedy"]
    assert movies["m1"]["vote_avg"] == [6.5]
    made = example["ranklens_movies"].features([movies["m1"], {}, {"vote_cnt": [9.0], "budget": [1.0]}], common=1)
    assert made["genre_comedy"].tolist() == [1, 0, 0]
    assert made["vote_cnt"].tolist() == pytest.approx([math.log(10)] * 3)  # the median of those known
    assert made["is_known"].tolist() == [1, 0, 1]


def log_of(clicks: list[list[int]], rows: list[list[int]], visits: list[str]) -> Log:
    width, pages = len(clicks[0]), len(clicks)
    lists = Lists(np.zeros((4, 1), np.float32), np.array([0, 4]), np.zeros(4, np.int16), np.array(["all"]))
    return Log(
        lists=lists,
        query=np.zeros(pages, np.int64),
        offsets=np.arange(pages + 1) * width,
        row=np.array(rows).ravel(),
        position=np.tile(np.arange(1, width + 1), pages).astype(np.int16),
        click=np.array(clicks, np.uint8).ravel(),
        columns={"visit_id": np.repeat(visits, width)},
    )


def test_curves_by_hand(example: dict[str, ModuleType]) -> None:
    curves = example["ranklens_curves"]
    log = log_of([[1, 0], [1, 1], [0, 0], [1, 0]], [[0, 1], [1, 0], [2, 3], [0, 2]], ["a", "a", "b", "b"])
    drawn = curves.click_curves(log, 100)
    assert drawn[0].tolist() == [0.75, 0.25]
    assert {tuple(curve) for curve in drawn[1:]} == {(1.0, 0.5), (0.75, 0.25), (0.5, 0.0)}  # whole visits only
    # the half of visit a learns from b and the other way round, with a prior of 2 views at the mean rate of 1/2
    elsewhere = curves.popularity_elsewhere(log, prior=2.0)
    assert elsewhere[:2].tolist() == pytest.approx([(1 + 1) / (1 + 2), 0.5])
    assert elsewhere[4:6].tolist() == pytest.approx([0.5, 0.5])
    assert elsewhere[6] == pytest.approx((2 + 1) / (2 + 2))


def test_agreement_is_spearman(example: dict[str, ModuleType]) -> None:
    log = log_of([[0, 0, 0], [0, 0, 0]], [[0, 1, 2], [2, 1, 0]], ["a", "b"])
    popularity = np.array([9.0, 5.0, 1.0])[log.row]
    assert example["ranklens_curves"].agreement(log, popularity).tolist() == pytest.approx([1, -1])


@pytest.mark.slow
def test_runs_on_the_real_events(
    example: dict[str, ModuleType], tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study in which position and popularity go together; all four and the page are made up above."""
    events = data_folder / "ranklens" / "events.jsonl.gz"
    if not events.exists():
        pytest.skip(f"no RankLens at {events}")
    curves, study = example["ranklens_curves"], example["ranklens_study"]

    def one_study(train: Log, votes: np.ndarray, share: float) -> dict[str, tuple[Log, float]]:
        score = curves.agreement(train, votes[train.row])
        return {"ordered by votes": (train.take(score >= np.quantile(score, 1 - share)), 0.0)}

    monkeypatch.setattr(study, "subsamples", one_study)
    monkeypatch.setattr(example["ranklens"], "write_report", lambda *_: "")
    small = ["--seeds", "1", "--steps", "150", "--draws", "200", "--refits", "0"]
    result = example["ranklens"].main([str(events), "--out", str(tmp_path / "run"), *small])
    assert result["about"]["ingest"]["rules"]["everything_clicked"]["rows"] == 111 * 24
    assert result["pages"]["whole"] == 9800 - 111
    assert 0.73 < result["truth"]["fall"] < 0.80
    ordered = next(one for one in result["studies"] if one["title"] == "ordered by votes")
    falls = {row["curve"]: row["fall"] for row in ordered["curves"]}
    assert falls["click rate by rank"] < 0.65
    for method in ("dla", "regression_em", "additive"):
        assert abs(falls[method] - result["truth"]["fall"]) < 0.1, method
