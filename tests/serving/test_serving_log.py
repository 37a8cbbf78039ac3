"""The log of serving: read by ingest as it is, whole files only, and nothing lost with its writer."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import DataError, LimitError
from unskew.serving.explore import TeamDraft, TopOne
from unskew.serving.service.impressions import ImpressionLog, recover

ORDER, SCORES, OTHER = np.arange(4), np.array([4.0, 3.0, 2.0, 1.0]), np.array([3, 2, 1, 0])


def test_ingest_reads_it_without_a_mapping(tmp_path: Path) -> None:
    decisions = {}
    with ImpressionLog(tmp_path / "served", rows=20) as log:
        for number in range(12):
            page, docs = f"p{number}", [f"d{number % 3}-{i}" for i in range(4)]
            policy = TeamDraft(depth=2) if number % 2 else TopOne(share=0.5)
            made = policy.rank(ORDER, SCORES, request_id=page, other=OTHER)
            log.shown(page, f"q{number % 3}", docs, made, results=3, scores=SCORES, user_id=f"u{number}")
            log.clicked(page, docs[made.order[1]], dwell_time=2.5)
            decisions[page] = made, docs
    assert len(list((tmp_path / "served").glob("events-*.jsonl"))) > 1
    summary = unskew.ingest(tmp_path / "served", tmp_path / "log")
    rows = pq.read_table(tmp_path / "log" / "impressions").to_pylist()
    assert len(rows) == 36
    assert not summary.rejected.rows
    for row in rows:
        made, docs = decisions[row["page_id"]]
        slot = row["position"] - 1
        assert row["doc_id"] == docs[made.order[slot]]
        assert row["click"] == (slot == 1)
        assert row["propensity"] == pytest.approx(made.propensity[slot])
        assert row["randomized"] == made.randomized[slot]
        assert row["policy_id"] == made.policy_id
        assert row["team"] == (made.team[slot] if made.team else None)
        assert row["logging_score"] == SCORES[made.order[slot]]


@pytest.mark.parametrize("served", [True, False])
def test_clicks_on_what_was_never_shown_are_left_out_of_a_served_log(served: bool, tmp_path: Path) -> None:
    with ImpressionLog(tmp_path / "served") as log:
        for number in range(100):
            made = TopOne(share=0.5).rank([0, 1], [1.0, 0.0], request_id=f"p{number}")
            log.shown(f"p{number}", f"q{number % 3}", ["x", "y"], made)
            log.clicked(f"p{number}", ("x", "y")[number % 5 == 0])
        for number in range(400):
            log.clicked(f"no page {number}", "x")
            log.clicked(f"p{number % 100}", f"no document {number}")
            log.clicked("p1", "x")
    if not served:  # the events of somebody else, whose ids do not fit
        (file,) = (tmp_path / "served").iterdir()
        file.write_text(file.read_text().replace('"propensity"', '"chance"'))
        with pytest.raises(LimitError, match="800 clicks_without_impression"):
            unskew.ingest(tmp_path / "served", tmp_path / "log")
        return
    found = unskew.ingest(tmp_path / "served", tmp_path / "log")
    assert (found.pages, found.clicks) == (100, 100)
    rules = {name: found.rules[name].rows for name in ("clicks_without_impression", "duplicate_events")}
    assert rules == {"clicks_without_impression": 800, "duplicate_events": 400}
    assert [note for note in found.notes if "800 of 1,300 clicks are on pages or results" in note]
    aside = pq.read_table(tmp_path / "log" / "rejected.parquet")["reason"].to_pylist()
    assert aside.count("clicks_without_impression") == 800
    (tmp_path / "strict.toml").write_text("[rules.limits]\nclicks_without_impression = 0.5\n")
    with pytest.raises(LimitError, match="800 clicks_without_impression"):
        unskew.ingest(tmp_path / "served", tmp_path / "strict", mapping=tmp_path / "strict.toml")


def test_files_appear_when_they_are_full_old_or_closed(tmp_path: Path) -> None:
    now = [1_000_000.0]
    log = ImpressionLog(tmp_path, rows=3, seconds=60, clock=lambda: now[0])
    made = TopOne(share=0.0).rank([0, 1], [1.0, 0.0], request_id="a")

    def files() -> list[int]:
        return sorted(len(path.read_text().splitlines()) for path in tmp_path.glob("[!.]*"))

    log.shown("a", "q", ["x", "y"], made)
    assert files() == []
    with pytest.raises(DataError, match="a server still writes there, and no file is finished"):
        unskew.ingest(tmp_path, tmp_path / "out")
    log.shown("b", "q", ["x", "y"], made)
    assert files() == [2]
    now[0] += 61
    log.clicked("b", "x")
    assert files() == [2, 2]
    log.close()
    log.close()
    assert files() == [1, 2, 2]
    assert not list(tmp_path.glob(".*"))


def test_what_cannot_be_logged_leaves_no_half_page(tmp_path: Path) -> None:
    made = TopOne(share=0.0).rank([0, 1], [1.0, 0.0], request_id="a")
    with ImpressionLog(tmp_path) as log:
        with pytest.raises(DataError, match="cannot be logged"):
            log.shown("a", "q", ["x", "y"], made, scores=[1.0, float("nan")])
        with pytest.raises(DataError, match="3 documents for a decision on 2"):
            log.shown("a", "q", ["x", "y", "z"], made)
        log.shown("b", "q", ["x", "y"], made)
    (path,) = tmp_path.iterdir()
    assert [json.loads(line)["page_id"] for line in path.read_text().splitlines()] == ["b", "b"]


WRITER = """
import sys
from unskew.serving.explore import TopOne
from unskew.serving.service.impressions import ImpressionLog
log = ImpressionLog(sys.argv[1])
made = TopOne(share=0.0).rank([0, 1], [1.0, 0.0], request_id="a")
log.shown("a", "q", ["x", "y"], made)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_killed_writer_loses_no_page_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        assert recover(tmp_path) == []
        started.send_signal(signal.SIGKILL)
    (left,) = tmp_path.glob(".events-*")
    with left.open("a") as file:
        file.write('{"event": "impr')  # a line that the death cut short
    (found,) = recover(tmp_path)
    assert os.listdir(tmp_path) == [found.name]
    assert [json.loads(line)["doc_id"] for line in found.read_text().splitlines()] == ["x", "y"]


def test_a_file_that_was_taken_for_a_dead_ones_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may start, and tidy up, just between the making of a file and its lock."""
    flock, between = fcntl.flock, [lambda: recover(tmp_path)]

    def late(file: int, how: int) -> None:
        if between:
            between.pop()()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with ImpressionLog(tmp_path) as log:
        log.clicked("page", "doc")
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["page_id"] == "page"
