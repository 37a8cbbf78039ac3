"""Learning without a run file: flags as its content, errors that name them, parts of a log, and run.toml."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, UnskewError
from unskew.learning.rankers import Linear
from unskew.names import NO_NAMES
from unskew.options.runs import DataFiles
from unskew.terminal.main import app
from unskew.workflows.inputs.logs import PARTS, is_log
from unskew.workflows.runs.data import own_lists
from unskew.workflows.runs.request import ask, parse_setting
from unskew.workflows.runs.run import standing
from unskew.workflows.runs.sources import RunSources

torch.set_num_threads(1)


@dataclass(frozen=True)
class World:
    """A folder with a log, cut in three, and features of its documents."""

    folder: Path
    lists: unskew.Lists

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("flags")
    lists = unskew.make_lists(queries=40, features=4, documents=6, seed=0)
    unskew.write_letor(lists, folder / "lists.txt")
    log = unskew.simulate(lists, "position", pages=3000, seed=0, randomized=0.3)
    unskew.write_log(log, folder / "log.parquet")
    table = pq.read_table(folder / "log.parquet")
    table = table.append_column("spent", pa.array([3.0 * each for each in table["click"].to_pylist()]))
    page = table["page_id"]
    masks = {"train": pc.less(page, 2000), "test": pc.greater_equal(page, 2500)}
    masks["validation"] = pc.invert(pc.or_(*masks.values()))
    for name, mask in masks.items():
        (folder / "parts" / name).mkdir(parents=True)
        pq.write_table(table.filter(mask), folder / "parts" / name / "part-0.parquet")
    (folder / "parts" / "summary.json").write_text("{}")
    return World(folder, lists)


def learn(*words: object) -> tuple[int, str, str]:
    """Status, standard output and standard error of `unskew learn`."""
    ended = CliRunner().invoke(app, ["learn", *map(str, words)])
    if isinstance(ended.exception, UnskewError):
        return ended.exception.status, ended.stdout, str(ended.exception)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return ended.exit_code, ended.stdout, ended.stderr


def test_flags_say_what_a_run_file_would(world: World) -> None:
    factors = ["serp_device"]
    asked = ask(
        world.path("log.parquet"),
        features=world.path("lists.txt"),
        method="pal",
        ranker="linear",
        scaling="minmax",
        feedback="spent",
        factors=factors,
        columns={"doc_id": "sku"},
        options={"seed": 3, "steps": 7},
        settings={"training.batch": 16, "method.page_size": 10, "data.missing_features": "drop"},
    )
    path = world.folder / "same.toml"
    path.write_text(
        'out = "x"\n[data]\nlog = "log.parquet"\nfeatures = ["lists.txt"]\nscaling = "minmax"\n'
        'feedback = "spent"\nmissing_features = "drop"\ncolumns = { doc_id = "sku" }\n'
        '[method]\nname = "pal"\nfactors = ["serp_device"]\npage_size = 10\n'
        '[ranker]\nname = "linear"\n[training]\nseed = 3\nsteps = 7\nbatch = 16\n'
    )
    again = ask(path)
    file, same = again.file, again.settings
    assert asked.settings == same
    assert asked.file.data.missing_features == file.data.missing_features == "drop"
    assert asked.file.data.columns == file.data.columns


def test_a_run_from_flags_can_be_run_again_from_its_folder(world: World, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"
    status, printed, told = learn(
        world.path("log.parquet"), "--features", world.path("lists.txt"), "--out", out, "--method", "dla",
        "--ranker", "linear", "--seed", 2, "--steps", 20, "--set", "training.batch=64",
        "--set", "encoding.missing_values=mean", "--json",
    )  # fmt: skip
    assert status == 0, told
    metrics = json.loads(printed)
    assert (metrics["run"], metrics["status"]) == (str(out), "finished")
    assert {"validation", "propensity", "standing"} <= set(metrics)
    assert f"unskew learn {out / 'run.toml'} --out FOLDER" in told
    written = tomllib.loads((out / "run.toml").read_text())
    assert written["training"] == {"seed": 2, "steps": 20, "batch": 64}
    assert written["encoding"] == {"missing_values": "mean"}
    assert not Path(written["data"]["log"]).is_absolute()
    status, again, told = learn(out / "run.toml", "--out", tmp_path / "two", "--json", "--quiet")
    assert status == 0, told
    assert json.loads(again)["propensity"] == metrics["propensity"]
    assert (tmp_path / "two" / "weights.safetensors").read_bytes() == (out / "weights.safetensors").read_bytes()


def test_in_python_nothing_need_be_written(world: World) -> None:
    run = unskew.learn(world.path("log.parquet"), features=world.path("lists.txt"), ranker="linear", steps=3)
    assert run.folder is None
    assert run.fit.status == "finished"


def test_a_run_file_keeps_what_flags_do_not_say(world: World) -> None:
    path = world.folder / "linear.toml"
    path.write_text(
        '[data]\nlog = "log.parquet"\nfeatures = "lists.txt"\n[method]\nname = "dla"\nmax_weight = 3.0\n'
        '[ranker]\nname = "linear"\n[training]\nbatch = 8\nsteps = 5\n'
    )
    asked = ask(path, options={"steps": 9}, settings={"method.max_weight": 4.0})
    assert (asked.settings.training.steps, asked.settings.training.batch) == (9, 8)
    assert asked.settings.method == unskew.methods.DLA(max_weight=4.0)
    assert asked.settings.ranker == Linear()
    assert ask(path, method="naive").settings.method == unskew.methods.Naive()


def test_steps_are_rounds_where_trees_grow(world: World) -> None:
    given: dict[str, Any] = {"features": world.path("lists.txt"), "options": {"steps": 12}}
    assert ask(world.path("log.parquet"), ranker="trees", **given).settings.steps == 12
    assert ask(world.path("log.parquet"), method="lightgbm", **given).settings.steps == 12


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "dlaa"], "--method: unknown name 'dlaa'. Did you mean dla?"),
        (["--ranker", "mpl"], "--ranker: unknown name 'mpl'. Did you mean mlp?"),
        (["--scaling", "z"], "--scaling: unknown name 'z'."),
        (["--set", "training.bach=3"], "--set training.bach: unknown key. Did you mean batch?"),
        (["--set", "training.batch=many"], "--set training.batch: input should be a valid integer, not 'many'"),
        (["--set", "trainin.batch=3"], "trainin: unknown key. Did you mean training?"),
        (["--set", "batch"], "--set batch: write it as table.key=value"),
        (["--factor", "serp_device", "--method", "naive"], "--factor: unknown key"),
        (["--method", "lightgbm", "--ranker", "mlp"], "--ranker: lightgbm grows its own trees"),
        (["--feedback", "position"], "--feedback: position has a meaning of its own"),
    ],
)
def test_errors_name_the_flag(world: World, tmp_path: Path, words: list[str], message: str) -> None:
    base = (world.path("log.parquet"), "--features", world.path("lists.txt"), "--out", tmp_path / "run")
    status, printed, told = learn(*base, *words)
    assert (status, printed) == (1, "")
    assert told.startswith(message), told
    assert not (tmp_path / "run").exists()


def test_what_is_missing_is_said(world: World, tmp_path: Path) -> None:
    assert learn(world.path("log.parquet"), "--out", tmp_path / "run")[2].startswith("--features: missing")
    told = learn(world.path("log.parquet"), "--features", world.path("lists.txt"))[2]
    assert told == "--out: missing; say where the run is to be written"
    told = learn(world.path("nothing"), "--features", world.path("lists.txt"), "--out", tmp_path / "run")[2]
    assert "there is no such" in told


def test_values_are_toml_or_text() -> None:
    assert parse_setting('method.name = "ipw"') == ("method.name", "ipw")
    assert parse_setting("training.device=cpu") == ("training.device", "cpu")
    assert parse_setting("method.propensity=[1, 0.5]") == ("method.propensity", [1, 0.5])
    assert parse_setting("data.doc_ids=true") == ("data.doc_ids", True)


# ---- parts ----


def found(base: Path, **files: Any) -> list[Path | None]:
    """The logs that a run learns from, is chosen by and measured on."""
    sources = RunSources.of_files(DataFiles(**files), base)
    each = [sources.train, *(getattr(sources, name) if sources.is_log(name) else None for name in PARTS[1:])]
    return [one[0] if isinstance(one, list) else one for one in each]


def test_parts_are_found(world: World) -> None:
    parts = world.folder / "parts"
    assert found(world.folder, log="parts") == [parts / "train", parts / "validation", parts / "test"]
    assert found(world.folder, log="log.parquet") == [world.folder / "log.parquet", None, None]
    own = found(world.folder, log="parts", validation="lists.txt", test="log.parquet")
    assert own == [parts / "train", None, world.folder / "log.parquet"]
    assert is_log(parts / "test", NO_NAMES)
    assert not is_log(world.folder / "lists.txt", NO_NAMES)
    with pytest.raises(ConfigError, match="is a log, and one log is all"):
        found(world.folder, log="parts", test=("log.parquet", "lists.txt"))


def test_parts_without_rows_are_passed_over(world: World, tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        (tmp_path / name).mkdir()
    table = pq.read_table(world.folder / "parts" / "train")
    pq.write_table(table, tmp_path / "train" / "a.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "validation" / "a.parquet")
    assert found(tmp_path, log=".") == [tmp_path / "train", None, None]


@pytest.mark.parametrize("more", [[], ["--set", "data.shards=2"]], ids=["in memory", "in shards"])
def test_a_log_that_was_cut_is_used_in_its_parts(world: World, tmp_path: Path, more: list[str]) -> None:
    """Learned from train alone, chosen by clicks of validation, and its standing is that of test."""
    base = (world.path("parts"), "--features", world.path("lists.txt"), "--ranker", "linear", "--steps", 20)
    status, printed, told = learn(*base, "--out", tmp_path / "run", "--json", "--quiet", *more)
    assert status == 0, told
    assert "parts/train, clicks of" in told
    assert "parts/validation choose the weights, clicks of" in told
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["data"]["pages"] == 2000
    metrics = json.loads(printed)
    assert metrics["standing"]["tested"]
    test = unskew.read_log(world.path("parts/test"), world.lists)
    again = standing(unskew.load(tmp_path / "run"), test, tested=True)
    assert metrics["standing"]["verdict"] == again.verdict
    assert again.evidence is not None
    first = metrics["standing"]["evidence"]["estimates"][1]
    assert first["difference"] == pytest.approx(again.evidence.estimates[1].difference)
    assert "by test pages of" in again.sentence
    # a validation log of other clicks chooses by them
    held = unskew.read_log(world.path("parts/validation"), world.lists)
    train = unskew.read_log(world.path("parts/train"), world.lists)
    if not more:
        same = unskew.learn(train, "dla", ranker="linear", steps=20, validation=held, test=test)
        assert same.metrics.validation.to_dict() == metrics["validation"]
        assert same.metrics.standing.sentence == metrics["standing"]["sentence"]


def test_weights_on_parts_follow_feedback(world: World, tmp_path: Path) -> None:
    run = unskew.learn(
        world.path("parts"), "naive", features=world.path("lists.txt"), ranker="linear", steps=5,
        feedback="spent", out=tmp_path / "run",
    )  # fmt: skip
    assert run.metrics.standing.tested
    plain = unskew.learn(
        world.path("parts"),
        "naive",
        features=world.path("lists.txt"),
        ranker="linear",
        steps=5,
        out=tmp_path / "b",
    )
    lists = world.lists
    ours, theirs = (each.model.correction(lists) for each in (run, plain))
    assert ours == pytest.approx(theirs, abs=1e-5)  # 3 for every click


def test_lists_of_their_own_point_at_the_same_documents(world: World) -> None:
    log = unskew.read_log(world.path("log.parquet"), world.lists)
    some = log.take(log.query > 30)
    own = own_lists(some)
    assert len(own.lists) == 9
    assert (own.lists.features[own.row] == some.lists.features[some.row]).all()
    assert (own.lists.query_ids[own.query] == some.lists.query_ids[some.query]).all()
