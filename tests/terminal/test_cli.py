"""The command line: what every command prints, writes and refuses, and how Ctrl-C ends it."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import unskew
from unskew.errors import UnskewError
from unskew.learning.methods import LEARNERS
from unskew.options import VERBS
from unskew.simulation import BEHAVIOURS
from unskew.terminal.flags import flat
from unskew.terminal.main import COMMANDS, app, called, made, main

torch.set_num_threads(1)

STEPS = 60
STOPPED = """
import os, signal
from unskew.learning.fitting.loop import Trainer
from unskew.terminal.main import main

step = Trainer.step

def interrupted(trainer, batches, number):
    if number == 30:
        os.kill(os.getpid(), signal.SIGINT)
    return step(trainer, batches, number)

Trainer.step = interrupted
main()
"""
"""The command line, with Ctrl-C in the middle of training."""
SYNTHETIC = ("--lists", "synthetic", "--queries", "24", "--features", "5", "--documents", "6")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        """What it printed, strictly: NaN is not JSON."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


def unskew_command(*arguments: object) -> Ended:
    """Run a command in this process; our errors are caught as `main` catches them."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, UnskewError):
        return Ended(1, result.stdout, f"unskew: {result.exception}\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def in_its_own_process(*arguments: object) -> Ended:
    """Run a command as a person would."""
    command = [sys.executable, "-m", "unskew", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def refused(ended: Ended, *parts: str) -> None:
    """One line on standard error, no traceback."""
    assert ended.status == 1
    assert ended.error.startswith("unskew: ")
    assert ended.error.count("\n") == 1
    assert "Traceback" not in ended.error
    for part in parts:
        assert part in ended.error


def write_run_file(
    folder: Path, name: str = "run", *, method: str = "dla", steps: int = 6, more: str = ""
) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(
        f'out = "{name}"\n[data]\nlog = "log.parquet"\nfeatures = "log.train.txt"\n'
        f'validation = "log.validation.txt"\ntest = "log.test.txt"\n[method]\nname = "{method}"\n'
        f'[ranker]\nname = "mlp"\nsizes = [8]\n'
        f"[training]\nsteps = {steps}\nbatch = 16\nvalidate_every = {steps // 2}\n{more}"
    )
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, its lists, and runs named `dla` and `em`."""
    folder = tmp_path_factory.mktemp("world")
    made = unskew_command("simulate", *SYNTHETIC, "--pages", 2000, "--out", folder / "log.parquet")
    assert made.status == 0, made.error
    for seed, (name, method) in enumerate((("dla", "dla"), ("em", "regression_em"))):
        path = write_run_file(folder, name, method=method)
        learned = unskew_command("learn", path, "--quiet", "--seed", seed)
        assert learned.status == 0, learned.error
    return folder


# ------------------------------------------------------------------------------------------- the command itself


def test_version_and_help() -> None:
    assert unskew_command("--version").out == f"unskew {unskew.__version__}\n"
    shown = unskew_command("--help")
    assert shown.status == 0
    for command in ("demo", "simulate", "learn", "measure", "catalogue", "doctor"):
        assert command in shown.out
        assert unskew_command(command, "--help").status == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_help_is_printed_whole(command: Callable[..., None]) -> None:
    texts = [str(VERBS.get(command.__name__, command).__doc__).split("\n")[0]]
    for parameter in inspect.signature(flat(command)).parameters.values():
        told = getattr(parameter.annotation, "__metadata__", ())
        texts += [about.help for about in told if about.help]
    printed = CliRunner().invoke(app, [called(command), "-h"])
    assert printed.exception is None, repr(printed.exception)
    shown = "".join(printed.stdout.split())  # lines are broken anywhere
    for text in texts:
        assert "".join(text.split()) in shown


def test_help_has_its_short_flag_whoever_looked_at_a_command_before() -> None:
    made.cache_clear()
    made("plan").make_context("plan", ["log.parquet"])  # as the reference and completion do, without the rest
    assert CliRunner().invoke(app, ["plan", "-h"]).exit_code == 0


def test_every_command_is_a_function_of_its_name() -> None:
    for command in COMMANDS:
        assert command.__name__ in unskew.__all__
        assert inspect.isfunction(getattr(unskew, command.__name__))
    assert 30 <= len(unskew.__all__) <= 70
    assert dir(unskew) == unskew.__all__


def test_each_kind_of_name_is_a_module_with_its_classes_and_their_table() -> None:
    assert unskew.methods.METHODS["dla"] is unskew.methods.DLA
    assert unskew.rankers.RANKERS["mlp"] is unskew.rankers.MLP
    assert unskew.behaviours.BEHAVIOURS["position"] is unskew.behaviours.PositionBias
    assert unskew.click_models.CLICK_MODELS["pbm"] is unskew.click_models.PBM
    assert "standard" in unskew.scalings.SCALINGS
    assert not [name for name in dir(unskew) if name.isupper()]
    with pytest.raises(AttributeError, match="no attribute 'DLA'"):
        _ = unskew.DLA  # type: ignore[attr-defined]


def test_without_arguments_it_explains_itself() -> None:
    ended = unskew_command()
    assert "Usage:" in ended.out + ended.error
    assert "simulate" in ended.out + ended.error


def test_as_a_process() -> None:
    assert in_its_own_process("--version") == Ended(0, f"unskew {unskew.__version__}\n", "")
    wrong = in_its_own_process("simulat")
    assert wrong.status == 2
    assert "Traceback" not in wrong.error


def test_the_console_script() -> None:
    script = Path(sys.executable).with_name("unskew")
    if not script.exists():
        pytest.skip("unskew is not installed as a script beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"unskew {unskew.__version__}\n"


def test_errors_are_one_line_and_not_a_traceback(tmp_path: Path) -> None:
    refused(
        in_its_own_process("learn", tmp_path / "none.toml"), f"{tmp_path / 'none.toml'}: there is no such file"
    )


def test_errors_of_the_machine_are_one_line_too(
    world: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unskew.workflows.twins.simulate.write_log", full)
    out = str(world / "full.parquet")
    monkeypatch.setattr("sys.argv", ["unskew", "simulate", *SYNTHETIC, "--pages", "9", "--out", out])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "unskew: No space left on device\n"


def test_methods_and_behaviours_are_listed() -> None:
    methods, behaviours = (unskew_command("catalogue", kind).out for kind in ("methods", "behaviours"))
    listed = [line for line in methods.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in listed] == list(LEARNERS)
    assert len(methods.splitlines()) == 2 * len(LEARNERS)  # each with its paper
    assert "Joachims, Swaminathan, Schnabel, " in methods
    assert [line.split()[0] for line in behaviours.splitlines()] == list(BEHAVIOURS)
    assert "inverse of its rank's propensity" in methods


# ------------------------------------------------------------------------------------------- simulate


def test_simulate_synthetic(tmp_path: Path) -> None:
    out = tmp_path / "new" / "log.parquet"
    ended = unskew_command("simulate", *SYNTHETIC, "--pages", 300, "--seed", 5, "--out", out, "--json")
    card = ended.json
    parts = {name: str(tmp_path / "new" / f"log.{name}.txt") for name in ("train", "validation", "test")}
    assert {name: card[name] for name in parts} == parts
    assert (card["log"], card["pages"]) == (str(out), 300)
    assert 0 < card["clicks"] < card["impressions"]
    assert 0 < card["logging_ndcg"] <= 1
    log = unskew.read_log(out, unskew.read_letor(parts["train"]))
    assert (len(log), len(log.row), int(log.click.sum())) == (300, card["impressions"], card["clicks"])
    assert len(log.lists) == 24
    assert len(unskew.read_letor(parts["test"])) == 6


def test_simulate_is_the_same_twice_and_prints_a_card(tmp_path: Path) -> None:
    tables = []
    for name in ("a", "b"):
        ended = unskew_command("simulate", *SYNTHETIC, "--clicks", 50, "--out", tmp_path / f"{name}.parquet")
        assert "pages" in ended.out
        assert "click rate" in ended.out
        tables.append(pq.read_table(tmp_path / f"{name}.parquet"))
    assert tables[0].equals(tables[1])
    assert sum(tables[0]["click"].to_pylist()) >= 50


@pytest.fixture
def letor(tmp_path: Path) -> Path:
    """Three lists of twelve documents, the first feature falling and the second rising with the rank."""
    rows = [f"{d % 3} qid:{q} 1:{12 - d} 2:{d} # docid = doc{q}-{d}\n" for q in range(3) for d in range(12)]
    (tmp_path / "lists.txt").write_text("".join(rows))
    return tmp_path / "lists.txt"


def test_simulate_from_a_letor_file(letor: Path, tmp_path: Path) -> None:
    out = tmp_path / "log.parquet"
    options = ("--logger", "oracle", "--truth", "--randomized", 0.3, "--doc-ids", "--drop-clickless")
    card = unskew_command("simulate", "--lists", letor, "--pages", 200, "--out", out, "--json", *options).json
    assert card["logging_ndcg"] == 1
    assert card["without_a_click"] == 0
    assert "train" not in card
    table = pq.read_table(out)
    assert {"true_examination", "true_relevance", "randomized"} <= set(table.column_names)
    assert max(table["position"].to_pylist()) == 10
    assert table["doc_id"].to_pylist()[0].startswith("doc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lists.txt", "log.parquet"]


def test_cutoff(letor: Path, tmp_path: Path) -> None:
    for cutoff, longest in ((0, 12), (3, 3)):
        out = tmp_path / f"{cutoff}.parquet"
        options = ("--cutoff", cutoff, "--logger", "oracle")
        assert unskew_command("simulate", "--lists", letor, "--pages", 20, "--out", out, *options).status == 0
        assert max(pq.read_table(out)["position"].to_pylist()) == longest


def test_behaviour_and_logger_from_a_file(letor: Path, tmp_path: Path) -> None:
    config, out = tmp_path / "people.toml", tmp_path / "log.parquet"
    config.write_text(
        '[behaviour]\nname = "position"\ncurve = [1, 0]\nnoise = 1.0\n[logger]\nname = "feature"\ncolumn = 1\n'
    )
    base = ("simulate", "--lists", letor, "--pages", 50, "--out", out, "--config", config)
    assert unskew_command(*base).status == 0
    table = pq.read_table(out).to_pydict()
    columns = zip(table["doc_id"], table["click"], table["position"], strict=True)
    first = [(doc, click) for doc, click, rank in columns if rank == 1]
    assert first == [(11, 1)] * 50  # the second feature is largest in the last document; rank 1 is always clicked
    assert sum(table["click"]) == 50  # nobody looks further

    for text, parts in (
        ("[behavior]\n", ("unknown table behavior",)),
        ("behaviour = 3\n", ("behaviour: input should be a table, not 3",)),
        ("[behaviour]\ncurv = [1]\n", ("behaviour.curv: unknown key. Did you mean curve?",)),
        ('[behaviour]\nname = "positon"\n', ("behaviour.name: unknown name", "Did you mean position?")),
        ("[behaviour]\nname = 3\n", ("behaviour.name: unknown name 3",)),
        ("[behaviour]\ncurve = [2.0]\n", ("behaviour.curve.0: input should be less than or equal to 1",)),
        ('[logger]\nname = "feature"\n', ("logger.column: missing",)),
        ("[logger", ("not valid TOML",)),
    ):
        config.write_text(text)
        refused(unskew_command(*base, "--force"), str(config), *parts)


def test_simulate_refuses(letor: Path, tmp_path: Path) -> None:
    out = tmp_path / "log.parquet"
    base = ("simulate", "--lists", letor, "--out", out)
    refused(unskew_command(*base), "give --pages or --clicks")
    refused(unskew_command(*base, "--pages", 3, "--clicks", 3), "give --pages or --clicks")
    refused(unskew_command(*base, "--pages", 3, "--behaviour", "positon"), "Did you mean position?")
    refused(unskew_command(*base, "--pages", 3, "--logger", "smv"), "Did you mean svm?")
    refused(
        unskew_command(*base, "--pages", 3, "--logger", "feature"),
        "logger.column: missing; logger feature needs a file with its settings, --config",
    )
    refused(unskew_command(*base[:3], "--out", tmp_path / "log.csv", "--pages", 3), "must end in .parquet")
    refused(unskew_command("simulate", "--lists", tmp_path / "no.txt", *base[3:], "--pages", 3), "no.txt")
    refused(unskew_command(*base, "--lists", "synthetic", "--pages", 3), "synthetic stands alone")
    assert [path.name for path in tmp_path.iterdir()] == ["lists.txt"]


def test_simulate_never_overwrites(tmp_path: Path) -> None:
    base = ("simulate", *SYNTHETIC, "--pages", 20, "--out", tmp_path / "log.parquet")
    lists = tmp_path / "log.test.txt"
    lists.write_text("mine\n")
    refused(unskew_command(*base), "log.test.txt exists and is never overwritten", "or pass --force")
    assert lists.read_text() == "mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log.test.txt"]
    lists.unlink()
    assert unskew_command(*base).status == 0
    before = (tmp_path / "log.parquet").read_bytes()
    refused(unskew_command(*base, "--seed", 1), "log.parquet exists and is never overwritten")
    assert (tmp_path / "log.parquet").read_bytes() == before
    assert unskew_command(*base, "--seed", 1, "--force").status == 0
    assert (tmp_path / "log.parquet").read_bytes() != before


# ------------------------------------------------------------------------------------------- learn


def test_learn_writes_a_run_beside_the_run_file(world: Path) -> None:
    ended = unskew_command("learn", write_run_file(world, "here"), "--seed", 3)
    assert ended.status == 0
    assert f"finished: {world / 'here'}" in ended.out
    assert "ndcg@10" in ended.out
    assert json.loads((world / "here" / "run.json").read_text())["seed"] == 3
    metrics = json.loads((world / "here" / "metrics.json").read_text())
    assert metrics["validation"]["on"] == "labels"
    assert metrics["test"]["queries"] == 6
    refused(unskew_command("learn", world / "here.toml"), "here exists and is never overwritten", "--force")
    again = unskew_command("learn", world / "here.toml", "--force", "--quiet", "--method", "naive")
    assert again.status == 0
    assert unskew.load(world / "here").card.method["name"] == "naive"


def test_results_go_to_standard_output_and_progress_to_standard_error(world: Path) -> None:
    loud = in_its_own_process("learn", write_run_file(world, "loud"))
    assert loud.status == 0, loud.error
    assert loud.out.startswith(f"finished: {world / 'loud'}\n")
    assert loud.error.startswith("To do it again: ")  # a bar is for terminals
    assert "docs/s" not in loud.out
    (world / "loud.toml").write_text((world / "loud.toml").read_text().replace("steps = 6", "stepps = 6"))
    refused(unskew_command("learn", world / "loud.toml", "--force"), "Did you mean steps?")


def test_learn_elsewhere(world: Path, tmp_path: Path) -> None:
    place = tmp_path / "a [bold] and very long name, so that a terminal of eighty columns would break the line"
    ended = unskew_command("learn", write_run_file(world, "there"), "--out", place, "--quiet")
    assert f"finished: {place}\n" in ended.out
    assert (place / "weights.safetensors").exists()
    assert not (world / "there").exists()


def test_learn_by_clicks_although_there_are_lists(world: Path) -> None:
    path = write_run_file(world, "by_clicks", more='validate_on = "clicks"\n')
    assert "log-likelihood of a held-out click -" in unskew_command("learn", path, "--quiet").out


def test_learn_refuses(world: Path) -> None:
    path = write_run_file(world, "wrong", more="step = 3\n")
    refused(unskew_command("learn", path), str(path), "training.step: unknown key. Did you mean steps?")
    refused(unskew_command("learn", write_run_file(world, "wrong"), "--method", "dlaa"), "Did you mean dla?")
    text = write_run_file(world, "wrong").read_text()
    (world / "wrong.toml").write_text(text.replace("log.parquet", "gone.parquet"))
    refused(unskew_command("learn", world / "wrong.toml"), "gone.parquet")
    (world / "wrong.toml").write_text(text + 'device = "toaster"\n')
    refused(unskew_command("learn", world / "wrong.toml"), "training.device")
    assert not list(world.glob("wrong*/"))  # neither the run nor a partial one


# ------------------------------------------------------------------------------------------- measure


def test_measure(world: Path) -> None:
    lists = ("--lists", world / "log.test.txt")
    result = unskew_command("measure", world / "dla", *lists, "--json").json
    assert set(result) == {"run", "ranking"}
    assert set(result["ranking"]) == {"means", "skipped", "queries", "without_relevant", "empty"}
    known = unskew.read_letor(world / "log.test.txt")
    expected = unskew.measure_ranking(unskew.load(world / "dla").score(known), known)
    assert result["ranking"]["means"] == pytest.approx(dict(expected.means))
    shown = unskew_command("measure", world / "dla", *lists).out
    assert re.search(rf"│ ndcg@10 +│ {expected.means['ndcg@10']:.4f} │", shown)
    assert "6 queries" in shown


def test_measure_in_python(world: Path) -> None:
    log = unskew.read_log(world / "log.parquet", unskew.read_letor(world / "log.train.txt"))
    test = unskew.read_letor(world / "log.test.txt")
    run, folder = unskew.learn(log, "naive", steps=3), world / "dla"
    found = unskew.measure(run, test, against=unskew.load(folder), metrics=["ndcg@10"])
    assert (found.run, found.against.run) == ("naive", "dla")
    expected = unskew.measure_ranking(run.score(test), test, ["ndcg@10"]).means["ndcg@10"]
    assert found.ranking.means["ndcg@10"] == pytest.approx(expected)
    from_files = unskew.measure(folder, str(world / "log.train.txt"), log=world / "log.parquet")
    in_memory = unskew.measure(unskew.load(folder), log.lists, log=log)
    assert from_files.clicks == in_memory.clicks


def test_measure_what_is_asked_for(world: Path, tmp_path: Path) -> None:
    lines = (world / "log.test.txt").read_text().splitlines()
    without = [line.replace(line.split()[0], "0", 1) if " qid:0 " in line else line for line in lines]
    (tmp_path / "lists.txt").write_text("\n".join(without) + "\n")
    base = (
        "measure",
        world / "dla",
        "--lists",
        tmp_path / "lists.txt",
        "--metric",
        "ndcg@3",
        "--metric",
        "mrr@10",
    )
    means = {empty: unskew_command(*base, "--empty", empty, "--json").json for empty in ("skip", "zero", "one")}
    reports = {empty: result["ranking"] for empty, result in means.items()}
    assert list(reports["skip"]["means"]) == ["ndcg@3", "mrr@10"]
    assert (reports["skip"]["without_relevant"], reports["skip"]["skipped"]["ndcg@3"]) == (1, 1)
    zero, skip, one = (reports[empty]["means"]["ndcg@3"] for empty in ("zero", "skip", "one"))
    assert zero == pytest.approx(skip * 5 / 6)
    assert one == pytest.approx((skip * 5 + 1) / 6)


def test_measure_against_another_run(world: Path) -> None:
    base = ("measure", world / "dla", "--lists", world / "log.test.txt", "--metric", "ndcg@10")
    own = unskew_command(*base, "--json").json["ranking"]["means"]["ndcg@10"]
    other = unskew_command("measure", world / "em", *base[2:], "--json").json["ranking"]["means"]["ndcg@10"]
    against = unskew_command(*base, "--against", world / "em", "--json").json["against"]
    assert against["run"] == str(world / "em")
    compared = against["metrics"]["ndcg@10"]
    assert compared["difference"] == pytest.approx(own - other)
    assert abs(compared["difference"]) > 1e-6
    assert compared["interval"][0] <= compared["difference"] <= compared["interval"][1]
    assert 0 <= compared["p"] <= 1
    low, high = compared["interval"]
    shown = unskew_command(*base, "--against", world / "em").out
    assert f"against {world / 'em'}\n" in shown  # in one piece
    assert f" {compared['difference']:+.4f} │ {low:+.4f} to {high:+.4f} │ {compared['p']:.4f} │" in shown


def test_a_comparison_on_one_query_is_still_json(world: Path, tmp_path: Path) -> None:
    lines = (world / "log.test.txt").read_text().splitlines()
    (tmp_path / "one.txt").write_text("\n".join(line for line in lines if " qid:1 " in line) + "\n")
    base = ("measure", world / "dla", "--lists", tmp_path / "one.txt", "--against", world / "em")
    compared = unskew_command(*base, "--json").json["against"]["metrics"]["ndcg@10"]
    assert compared["p"] is None
    assert "│ n/a │" in unskew_command(*base).out


def test_measure_clicks(world: Path) -> None:
    base = ("--lists", world / "log.train.txt", "--log", world / "log.parquet")
    clicks = unskew_command("measure", world / "em", *base, "--json").json["clicks"]
    longest = max(pq.read_table(world / "log.parquet")["position"].to_pylist())
    assert len(clicks["perplexity by rank"]) == longest
    assert all(1 < value < 2.5 for value in (clicks["perplexity"], *clicks["perplexity by rank"]))
    assert 0.5 < clicks["AUC"] < 1
    assert clicks["log-likelihood of an impression"] < 0
    shown = unskew_command("measure", world / "em", *base).out
    assert re.search(r"│ perplexity by rank +│ 1\.", shown)

    listwise = unskew_command("measure", world / "dla", *base, "--json").json["clicks"]
    assert list(listwise) == ["log-likelihood of a click in its list"]
    assert listwise["log-likelihood of a click in its list"] < 0


def test_measure_refuses(world: Path, letor: Path) -> None:
    base = ("measure", world / "dla", "--lists", world / "log.test.txt")
    refused(unskew_command(*base, "--metric", "ndgc@10"), "Did you mean ndcg?")
    refused(unskew_command(*base, "--empty", "none"), "--empty: unknown name 'none'", "one, skip, zero")
    refused(unskew_command(*base, "--against", world / "nothing"), "there is no such run")
    refused(unskew_command(*base[:3], letor), "trained on 5 features", "have 2")


# ------------------------------------------------------------------------------------------- Ctrl-C


@pytest.mark.slow
def test_ctrl_c_leaves_a_usable_run_and_the_same_command_finishes_it(world: Path) -> None:
    path = write_run_file(world, "stopped", steps=STEPS, more="checkpoint_every = 20\n")
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # sums come out in another order on two
    command = [sys.executable, "-c", STOPPED, "learn", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=one_thread)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert f"interrupted: {world / 'stopped'}" in done.stdout
    assert "Run the same command again to go on." in done.stderr
    about = json.loads((world / "stopped" / "run.json").read_text())
    assert about["status"] == "interrupted"
    assert about["steps"] in (30, 31)
    assert unskew_command("measure", world / "stopped", "--lists", world / "log.test.txt").status == 0

    assert f"finished: {world / 'stopped'}" in unskew_command("learn", path, "--quiet").out
    assert json.loads((world / "stopped" / "run.json").read_text())["steps"] == STEPS
    assert unskew_command("learn", write_run_file(world, "whole", steps=STEPS), "--quiet").status == 0
    weights = [(world / name / "weights.safetensors").read_bytes() for name in ("stopped", "whole")]
    assert weights[0] == weights[1]
