"""A model that follows its folder: however that is replaced, and whoever dies meanwhile, what answers is whole."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from stops import Copies, must

import unskew
from unskew.errors import RunError
from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import Linear
from unskew.learning.scoring.model import build
from unskew.serving.scoring import models as reloading
from unskew.serving.scoring.models import Following, Models, Served, inputs_of
from unskew.serving.service.answers import Answering
from unskew.serving.service.app import make_app
from unskew.serving.service.server import named
from unskew.serving.settings import ServeSettings
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Columns, Lists

GIVEN = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two saved models that differ in their weights alone."""
    place = tmp_path_factory.mktemp("models")
    lists = unskew.make_lists(queries=5, features=4, documents=(3, 9), seed=1)
    for seed in (1, 2):
        model = build(METHODS["naive"](), Linear(), fit_scaler("standard", lists), 4, Context(positions=5))
        drawn = torch.Generator().manual_seed(seed)
        for weights in model.ranker.parameters():
            weights.data = torch.randn(weights.shape, generator=drawn)
        model.save(place / str(seed))
    return place / "1", place / "2"


@pytest.fixture
def folder(models: tuple[Path, Path], tmp_path: Path) -> Path:
    """The first model, written long ago."""
    place = tmp_path / "run"
    shutil.copytree(models[0], place)
    return place


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a folder however young it is."""
    monkeypatch.setattr(reloading, "SETTLING", 0.0)


def scores(served: Served) -> list[float]:
    found: list[float] = served.score(GIVEN).tolist()
    return found


def settled(following: Following) -> bool:
    """Look once the folder has come to rest."""
    time.sleep(1.2 * reloading.SETTLING)
    return following.look()


@pytest.mark.usefixtures("at_once")
def test_files_copied_over_in_any_order_are_taken_up_when_all_are_there(
    models: tuple[Path, Path], folder: Path
) -> None:
    old, new = (scores(Served.load(each)) for each in models)
    names = sorted(path.name for path in models[1].iterdir())
    assert len(names) >= 2
    for order in itertools.permutations(names):
        shutil.copytree(models[0], folder, dirs_exist_ok=True)
        following = Following("run", folder)
        assert scores(following.current) == old
        for name in order:
            content = (models[1] / name).read_bytes()
            for part in (b"", content[: len(content) // 2], content):  # as cp and rsync --inplace do
                assert not following.look()
                assert scores(following.current) == old
                (folder / name).write_bytes(part)
                time.sleep(0.012)  # a tick of the clock of the file system
            if name != order[-1]:
                assert not following.look()
                assert following.trouble is not None
        assert following.look()
        assert scores(following.current) == new
        assert following.trouble is None


def test_a_folder_that_is_being_written_is_left_for_the_next_look(models: tuple[Path, Path], folder: Path) -> None:
    """A file may change twice within a tick of the clock, and would look the same."""
    following = Following("run", folder)
    shutil.copytree(models[1], folder, dirs_exist_ok=True)
    assert not following.look()
    assert settled(following)
    assert following.reloads == 1


@pytest.mark.usefixtures("at_once")
def test_weights_of_the_same_size_and_time_are_seen(models: tuple[Path, Path], folder: Path) -> None:
    following = Following("run", folder)
    time.sleep(0.012)
    for name in ("model.json", "weights.safetensors", "model.onnx"):
        if (models[1] / name).exists():
            content = (models[1] / name).read_bytes()
            before = (folder / name).stat()
            assert len(content) == before.st_size
            with (folder / name).open("r+b") as file:
                file.write(content)
            os.utime(folder / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert following.look()


def test_a_link_that_is_switched_is_followed(models: tuple[Path, Path], tmp_path: Path) -> None:
    link, other = tmp_path / "current", tmp_path / "next"
    link.symlink_to(models[0])
    (plan,) = named([link], []).items()
    assert plan == ("current", str(link))
    following = Following("run", Path(plan[1]))
    other.symlink_to(models[1])
    other.replace(link)
    assert settled(following)
    assert scores(following.current) == scores(Served.load(models[1]))


def test_a_folder_that_goes_and_comes_back_is_the_old_one(folder: Path) -> None:
    following = Following("run", folder)
    version = following.current.version
    folder.rename(folder.with_name("away"))
    assert not following.look()
    assert following.trouble == "the folder is gone"
    assert following.current.version == version
    folder.with_name("away").rename(folder)
    assert not following.look()
    assert following.trouble is None


def test_a_worker_that_starts_waits_for_a_folder_that_is_broken(models: tuple[Path, Path], folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes(b"cut")
    with pytest.raises(RunError, match="weights"):
        Models.open({"run": folder})
    mend = threading.Timer(0.5, shutil.copytree, [models[1], folder], {"dirs_exist_ok": True})
    mend.start()
    opened = Models.open({"run": folder}, patience=20)
    mend.join()
    assert scores(opened["run"].current) == scores(Served.load(models[1]))
    assert opened["run"].trouble is None


def test_a_look_before_each_step_of_saving_sees_the_old_or_the_new(
    models: tuple[Path, Path], folder: Path
) -> None:
    """What one sees who looks just when the writer is killed there, or goes on."""
    wanted = [scores(Served.load(each)) for each in models]

    class Looks(Copies):
        def __call__(self, event: str, given: tuple[object, ...]) -> None:
            if self.busy or self.operation(event, given) is None:
                return
            self.busy = True
            following.look()
            fresh = Following("run", folder)  # a worker that starts just then
            self.points.append(
                (str(wanted.index(scores(following.current))), str(wanted.index(scores(fresh.current))))
            )
            self.busy = False

    following = Following("run", folder)

    def saved() -> list[tuple[str, str]]:
        reloading.SETTLING = 0.0
        looks = Looks(folder.parent, folder.parent)
        sys.addaudithook(looks)
        unskew.load(models[1]).save(folder, force=True)
        following.look()
        looks.points.append((str(wanted.index(scores(following.current))), "1"))
        return looks.points

    points = must(saved)
    assert len(points) >= 8
    assert points[0] == ["0", "0"]
    assert points[-1] == ["1", "1"]
    assert points == sorted(points), "once the new one is there, it stays"


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of price and brand, of price alone, of both and a year, and of a brand that is a number."""
    place = tmp_path_factory.mktemp("shops")
    for name, features in {
        "price_brand": {"price": (), "brand": ("acme", "bolt")},
        "price": {"price": ()},
        "more": {"price": (), "brand": ("acme", "bolt"), "year": ()},
        "numbers": {"price": (), "brand": ()},
    }.items():
        columns = Columns(tuple(features), {each: values for each, values in features.items() if values})
        matrix = np.array([[at % 2, (at + 1) % 2, at][: len(features)] for at in range(6)], np.float32)
        raw = Lists(matrix, np.array([0, 6]), np.zeros(6, np.int16), np.array([1]), columns=columns)
        encoding = fit_encoding(raw)
        lists = encoding.apply(raw)
        model = build(METHODS["naive"](), Linear(), fit_scaler("standard", lists), lists.dim, Context(positions=5))
        model.card = replace(model.card, encoding=encoding)
        model.save(place / name)
    return place


def put(source: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)


def test_a_run_of_other_features_leaves_the_old_one_where_it_is(shops: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    put(shops / "price_brand", place)
    following = Following("run", place)
    version = following.current.version
    for name, told in (
        ("more", "it takes what callers do not bring: year; start"),
        ("numbers", "it takes what callers do not bring: brand; start"),
    ):
        put(shops / name, place)
        assert not settled(following)
        assert told in str(following.trouble)
        assert following.current.version == version
    put(shops / "price", place)  # callers bring more than it takes
    assert settled(following)
    assert following.trouble is None
    put(shops / "price_brand", place)  # and go on bringing what the first one took
    assert settled(following)
    assert following.current.version == version


def test_a_run_of_other_features_is_taken_up_where_that_is_asked(shops: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    put(shops / "price", place)
    (following,) = Models.open({"run": place}, other_features=True).values()
    put(shops / "more", place)
    assert settled(following)


def test_a_worker_that_starts_takes_what_the_others_take(shops: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    put(shops / "more", place)
    with pytest.raises(RunError, match=r"do not bring: brand \(a category\), year"):
        Models.open({"run": place}, takes={"run": inputs_of(Served.load(shops / "price"))})
    Models.open({"run": place}, takes={"run": inputs_of(Served.load(shops / "more"))})


def test_all_are_told_of_a_run_that_was_not_taken_up(shops: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    put(shops / "price", place)
    app = make_app(Answering(Models.open({"run": place}), ServeSettings(poll=0.02)))
    with TestClient(app, base_url="http://localhost") as client:

        def seen() -> tuple[object, bool, object]:
            counted = 'unskew_held_back{model="run"} 1.0' in client.get("/metrics").text
            ready = client.get("/readyz")
            assert ready.status_code == 200
            return ready.json()["held_back"], counted, client.get("/v1/models").json()[0]["trouble"]

        assert seen() == (0, False, None)
        for name, wanted in (("more", 1), ("price", 0)):
            put(shops / name, place)
            for _ in range(500):
                time.sleep(0.02)
                if (found := seen())[:2] == (wanted, bool(wanted)):
                    break
            assert found[:2] == (wanted, bool(wanted))
            assert (found[2] is not None) == bool(wanted)
        assert 'unskew_reloads_total{done="no",model="run"} 1.0' in client.get("/metrics").text


@pytest.mark.usefixtures("at_once")
def test_a_folder_that_changes_while_it_is_read_is_not_served(
    models: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file was whole when it was read, and they are of two models."""
    following = Following("run", folder)
    old, load = following.current.version, Served.load

    def torn(place: Path) -> Served:
        found = load(place)
        time.sleep(0.012)
        (place / "weights.safetensors").write_bytes((models[0] / "weights.safetensors").read_bytes())
        return found

    shutil.copytree(models[1], folder, dirs_exist_ok=True)
    monkeypatch.setattr(Served, "load", torn)
    assert not following.look()
    assert following.current.version == old
