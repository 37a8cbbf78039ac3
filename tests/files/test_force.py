"""Force deletes only what is ours, wherever it points: home, links, folders of others, strangers in ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import unskew
from unskew.errors import RunError
from unskew.files import Ours, complete_folder
from unskew.learning.scoring.onnx_file import available
from unskew.learning.scoring.scorer import MODEL
from unskew.logs.counts.rankings import COUNTED
from unskew.logs.ingest.ingest import INGESTED
from unskew.logs.split import CUT
from unskew.studies.compare.compare import COMPARISON
from unskew.studies.demo import DEMO
from unskew.tracking.display_times import EXAMINATION
from unskew.types import Log
from unskew.workflows.inspections.causes import CAUSES
from unskew.workflows.runs.folder import RUN

KINDS = {
    "counts": (COUNTED, "slots/part-0.parquet"),
    "ingest": (INGESTED, "impressions/part-00000.parquet"),
    "split": (CUT, "train/data_0.parquet"),
    "display-times": (EXAMINATION, "trees.txt"),
    "save": (MODEL, "text/vocab.txt"),
    "causes": (CAUSES, "graph.dot"),
    "learn": (RUN, "trees_1.txt"),
    "compare": (COMPARISON, "cells/0a1b.npy"),
    "demo": (DEMO, "dla/model.json"),
}
"""What each command writes, and a file of it."""


def fill(place: Path, *names: str) -> None:
    for name in names:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("here")


def force(place: Path, ours: Ours) -> None:
    with complete_folder(place, force=True, ours=ours) as working:
        fill(working, ours.marker)


def tree(place: Path) -> list[str]:
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_ours_goes(tmp_path: Path, kind: str) -> None:
    ours, own = KINDS[kind]
    fill(tmp_path / "out", ours.marker, own, ".DS_Store")
    force(tmp_path / "out", ours)
    assert tree(tmp_path) == [f"out/{ours.marker}"]


@pytest.mark.parametrize("stranger", ["thesis.txt", "sub/thesis.txt", ".bashrc", "summary.json.bak"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_others_keeps_a_folder(tmp_path: Path, kind: str, stranger: str) -> None:
    ours, own = KINDS[kind]
    fill(tmp_path / "out", ours.marker, own, stranger)
    before = tree(tmp_path)
    with pytest.raises(RunError, match=r"exists and is not ours \(we did not write .* in it\), so it is not"):
        force(tmp_path / "out", ours)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_folders_of_other_commands_stay(tmp_path: Path, kind: str) -> None:
    ours, _ = KINDS[kind]
    for other, (theirs, own) in KINDS.items():
        if other in (kind, "save", "demo") or kind == "demo":  # a run holds a model, the demo holds runs
            continue
        place = tmp_path / other
        fill(place, theirs.marker, own)
        with pytest.raises(RunError, match="is not ours"):
            force(place, ours)
        assert tree(place) == sorted([theirs.marker, own])


def test_links_are_not_followed(tmp_path: Path) -> None:
    fill(tmp_path / "home", RUN.marker, "weights.safetensors")
    (tmp_path / "out").symlink_to(tmp_path / "home")
    with pytest.raises(RunError, match="it is a link"):
        force(tmp_path / "out", RUN)
    fill(tmp_path / "run", RUN.marker)
    fill(tmp_path / "data", "log.parquet")
    (tmp_path / "run" / "text").symlink_to(tmp_path / "data")
    force(tmp_path / "run", RUN)
    assert tree(tmp_path / "data") == ["log.parquet"]
    assert tree(tmp_path / "home") == sorted([RUN.marker, "weights.safetensors"])


def test_home_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    fill(tmp_path, ".bashrc", "run.json")
    for ours, _ in KINDS.values():
        with pytest.raises(RunError, match="is not ours"):
            force(Path.home(), ours)
    assert tree(tmp_path) == [".bashrc", "run.json"]


@pytest.fixture(scope="module")
def log() -> Log:
    lists = unskew.make_lists(queries=20, features=6, documents=6, seed=0)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=40, seed=0, logger="random")


def test_a_note_in_a_run_is_told_before_training(log: Log, tmp_path: Path) -> None:
    def learn(force: bool = True) -> None:
        unskew.learn(
            log, "naive", ranker="linear", steps=1, validate_on="nothing", out=tmp_path / "run", force=force
        )

    learn()
    learn()
    fill(tmp_path / "run", "notes.md")
    with pytest.raises(RunError, match=r"we did not write notes.md in it"):
        learn()
    assert (tmp_path / "run" / "notes.md").read_text() == "here"
    (tmp_path / "run" / "notes.md").unlink()
    fill(tmp_path / "run.partial", "thesis.txt")  # where a run is written until it is done
    with pytest.raises(RunError, match=r"run.partial is where the run is written .* we did not write thesis.txt"):
        learn()
    assert tree(tmp_path / "run.partial") == ["thesis.txt"]


def test_a_model_is_saved_over_a_model_alone(log: Log, tmp_path: Path) -> None:
    done = unskew.learn(log, "naive", ranker="linear", steps=1, validate_on="nothing", out=tmp_path / "run")
    with pytest.raises(RunError, match="is not ours"):
        done.save(tmp_path / "run", force=True)
    fill(tmp_path / "mine", "thesis.txt")
    with pytest.raises(RunError, match="never overwritten"):
        done.save(tmp_path / "mine")
    done.save(tmp_path / "model")
    done.save(tmp_path / "model", force=True)
    graph = ["model.onnx"] if available() else []
    assert tree(tmp_path / "model") == ["model.json", *graph, "weights.safetensors"]
