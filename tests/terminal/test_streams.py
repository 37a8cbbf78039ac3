"""Results on standard output, the rest on standard error; one JSON document; completion by a shell; doctor."""

from __future__ import annotations

import inspect
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import unskew
from unskew.diagnosis.click_models import CLICK_MODELS
from unskew.errors import CANNOT_TELL, NO, STATUSES
from unskew.learning.methods import LEARNERS
from unskew.learning.rankers import RANKERS
from unskew.logs.ingest.formats import READERS
from unskew.results import plain
from unskew.simulation import BEHAVIOURS, LOGGERS
from unskew.tables.lists.scaling import SCALINGS
from unskew.tables.reading.files import KINDS
from unskew.terminal import doctor as doctors
from unskew.terminal import output
from unskew.terminal.flags import completes, flat, known_names
from unskew.terminal.main import COMMANDS, PANELS, app, called, main, tell_warning

torch.set_num_threads(1)

SMALL = ("--lists", "synthetic", "--queries", "24", "--features", "5", "--documents", "6")
RUN_FILE = """out = "run"
[data]
log = "log.parquet"
features = "log.train.txt"
[method]
name = "naive"
loss = "sigmoid"
[ranker]
name = "trees"
rounds = 2
min_data_in_leaf = 2
"""
COMPARE_FILE = """pages = 200
seeds = 1
behaviours = [{ name = "position" }]
methods = [{ name = "naive" }]
[data.synthetic]
queries = 12
features = 5
documents = 6
[ranker]
name = "linear"
[training]
steps = 2
"""


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def in_a_process(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unskew", *words]
    given = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=given)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, its lists, traffic with times, and files for runs."""
    folder = tmp_path_factory.mktemp("streams")
    made = run(
        "simulate", *SMALL, "--pages", 1500, "--randomized", 0.2, "--out", folder / "log.parquet", "--truth"
    )
    assert made.exit_code == 0, made.exception
    made = run("traffic", *SMALL, "--pages", 3000, "--out", folder / "traffic.parquet")
    assert made.exit_code == 0, made.exception
    (folder / "run.toml").write_text(RUN_FILE)
    (folder / "compare.toml").write_text(COMPARE_FILE)
    (folder / "items.csv").write_text("doc_id,price\n1,2.5\n2,\n")
    curve = {"alpha": [0.9] * 10, "beta": [0.1] * 10, "theta": [1 / rank for rank in range(1, 11)]}
    (folder / "curves.json").write_text(json.dumps(curve))
    made = run("learn", folder / "run.toml", "--quiet")
    assert made.exit_code == 0, made.exception
    return folder


def words_of(command: str, folder: Path) -> list[object]:
    """A small call of each command, in the order of what they need."""
    log, traffic, again = folder / "log.parquet", folder / "traffic.parquet", folder / "again"
    lists = ("--lists", folder / "log.train.txt")
    given: dict[str, tuple[object, ...]] = {
        "ingest": (log, "--out", again / "log", "--off", "everything_clicked"),
        "split": (traffic, "--out", again / "parts"),
        "counts": (log, "--out", again / "counts"),
        "simulate": (*SMALL, "--pages", 50, "--out", again / "small.parquet"),
        "traffic": (*SMALL, "--pages", 50, "--out", again / "traffic.parquet"),
        "twin": (log, "--features", folder / "log.train.txt", "--pages", 50, "--out", again / "twin.parquet"),
        "display-times": (traffic, "--out", again / "model", "--trees", 2),
        "track": (traffic, "--out", again / "store"),
        "diagnose": (log, "--out", again / "diagnosis"),
        "causes": (log, "--factor", "position", "--relevance", "true_relevance", "--test", "gsq", "--sample", 60),
        "compare-click-models": (log, "--model", "pbm", "--model", "dbn", "--out", again / "models"),
        "learn": (folder / "run.toml", "--out", again / "run"),
        "importance": (folder / "run",),
        "impute": (folder / "run", *lists, "--out", again / "imputed.csv"),
        "measure": (folder / "run", *lists),
        "predict": (folder / "run", "--features", folder / "log.train.txt", "--out", again / "scores.parquet"),
        "export": (folder / "run", "--to", "lightgbm", "--out", again / "trees.txt"),
        "serve": (folder / "run", "--check"),
        "experiment": (log, "--by", "randomized", "--out", again / "experiment.html"),
        "store": (again / "features", "--items", folder / "items.csv", "--tracked", again / "store"),
        "propensity": (log,),
        "ship": (folder / "run", "--log", log, "--features", folder / "log.train.txt"),
        "drift": (log, again / "small.parquet"),
        "judge": (again / "store", "--out", again / "judged.csv", "--curves", folder / "curves.json"),
        "demo": ("--out", again / "demo", "--queries", 20, "--pages", 1000, "--steps", 2),
        "plan": (log, "--shares", "0.2", "--pages", "300", "--repeats", 1, "--out", again / "plan.html"),
        "compare": (folder / "compare.toml", "--jobs", 1),
        "report": (folder / "run", again / "diagnosis", "--out", again / "joined.html"),
    }
    alone = [each.__name__ for each in PANELS["About"]]
    assert command in given or command in alone, f"say here how {command} is called"
    return [command, *given.get(command, ())]


def no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_every_command_prints_one_json_document_and_nothing_else(world: Path) -> None:
    (world / "again").mkdir()
    for command in sorted(COMMANDS, key=lambda each: each.__name__ not in ("simulate", "track", "diagnose")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tiny data
            ended = run(*words_of(called(command), world), "--json")
        answers = (0, NO, CANNOT_TELL) if command.__name__ in ("ship", "drift") else (0,)
        assert ended.exit_code in answers, (command.__name__, ended.stderr, ended.exception)
        json.loads(ended.stdout, parse_constant=no_json)


def test_json_tells_what_the_files_hold(world: Path) -> None:
    found = json.loads(run("compare", world / "compare.toml", "--jobs", 1, "--json", "--quiet").stdout)
    assert {"out", "verdicts", "notes", "cells", "failed"} == set(found)
    assert found["verdicts"]["position"].startswith("position: ")
    assert {cell["method"] for cell in found["cells"]} == {"naive", "labeled", "random", "logging"}
    told = json.loads(run("catalogue", "methods", "--json").stdout)
    assert [each["name"] for each in told] == list(LEARNERS)
    one = json.loads(run("catalogue", "methods", "dla", "--json").stdout)
    assert one == next(each for each in told if each["name"] == "dla")


def test_lists_of_names(world: Path) -> None:
    whole = run("catalogue").stdout
    for kind, table in (("rankers", RANKERS), ("behaviours", BEHAVIOURS), ("scalings", SCALINGS)):
        shown = run("catalogue", kind).stdout
        assert [line.split()[0] for line in shown.splitlines() if line[0] != " "] == list(table)
        assert f"\n{kind}\n\n{shown}" in whole
    one = run("catalogue", "rankers", "mlp").stdout
    assert "  sizes: list of whole numbers; default [64, 32]" in one
    wrong = run("catalogue", "behaviours", "positon")
    assert "NAME: unknown name 'positon'. Did you mean position?" in str(wrong.exception)


def test_what_stands_on_standard_error_is_not_among_the_results(world: Path) -> None:
    ended = run("compare", world / "compare.toml", "--jobs", 1)
    assert "report.html" in ended.stderr
    assert "report.html" not in ended.stdout
    assert run("compare", world / "compare.toml", "--jobs", 1, "--quiet").stderr == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_command_takes_json_and_where_it_may_take_long_quiet(command: Callable[..., None]) -> None:
    help_text = run(called(command), "-h").stdout
    assert "--json" in help_text
    assert ("--quiet" in help_text) == (command not in PANELS["About"])


# ------------------------------------------------------------------------------------------- the rest


def test_help_lists_commands_by_stage_and_ends_with_the_statuses() -> None:
    shown = run("-h").stdout
    places = [shown.index(f"\n{panel}:\n") for panel in PANELS]
    assert places == sorted(places)
    for panel, commands in PANELS.items():
        part = shown[shown.index(f"\n{panel}:\n") :]
        for command in commands:
            assert f"\n  {called(command)} " in part
    said = " ".join(shown[shown.index("\nExit status:\n") :].split())
    assert all(f"{status} {meaning}" in said for status, meaning in STATUSES.items())
    assert run("--help").stdout == shown


def test_a_misspelt_command_is_guessed() -> None:
    ended = run("mesure")
    assert ended.exit_code == 2
    assert "No such command 'mesure'. Did you mean 'measure'?" in ended.stderr
    assert ended.stdout == ""


def test_a_warning_is_one_line_with_flags_and_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.showwarning = tell_warning
        warnings.simplefilter("always")
        warnings.warn("a page\nis short", stacklevel=1)
    assert capsys.readouterr().err == "unskew: warning: a page is short\n"


def test_warnings_of_a_command_reach_a_person_as_one_line(world: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = world / "warned.toml"
    path.write_text(RUN_FILE.replace('"run"', '"warned"'))
    ended = in_a_process("learn", str(path), UNSKEW_CACHE=str(tmp_path / "file"), PYTHONPROFILEIMPORTTIME="1")
    assert ended.returncode == 0, ended.stderr
    assert "unskew.learning.fitting.training" in ended.stderr  # what is imported is told there
    assert "torch._dynamo" not in ended.stderr  # the compiler takes longer to load than all of torch
    warned = [line for line in ended.stderr.splitlines() if "parsed anew" in line]
    assert warned
    assert all(line.startswith("unskew: warning: ") for line in warned)
    assert ".py:" not in ended.stderr
    assert ended.stdout.startswith("finished: ")


def test_a_package_that_is_broken_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "unskew.learning.methods", None)  # as where an import within it fails
    monkeypatch.setattr("sys.argv", ["unskew", "catalogue"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("unskew: ")
    assert said.endswith("`unskew doctor` says what is missing and how to get it\n")


def test_too_little_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("unskew.terminal.catalogue.described", full)
    monkeypatch.setattr("sys.argv", ["unskew", "catalogue"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("unskew: out of memory; ")


def test_a_command_that_takes_long_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "EVERY", 0.01)

    before: list[str] = []

    def slow() -> None:
        """Take a while."""
        while not before:
            time.sleep(0.01)
            before.extend(capsys.readouterr().err.splitlines())
        output.show_facts({"done": 1}, as_json=False)

    command = flat(slow, progress=True)
    assert list(inspect.signature(command).parameters) == ["quiet"]
    command(quiet=False)
    assert before[0].startswith("unskew: slow: at work for ")
    assert capsys.readouterr().out.split() == ["done", "1"]
    with output.working("hushed", quiet=True):
        assert output._Work._thread is None


def test_json_has_no_number_that_is_none() -> None:
    assert plain({1: [math.nan, math.inf, 2.5], "p": Path("a")}) == {"1": [None, None, 2.5], "p": "a"}


# ------------------------------------------------------------------------------------------- completion


def test_names_are_completed_as_the_tables_have_them() -> None:
    for what, table in (
        ("methods", LEARNERS),
        ("rankers", RANKERS),
        ("scalings", SCALINGS),
        ("behaviours", BEHAVIOURS),
        ("loggers", LOGGERS),
        ("formats", READERS),
        ("click_models", CLICK_MODELS),
    ):
        assert known_names(what) == list(table)
    assert completes("methods")("vec") == ["vectorization"]
    assert completes("formats", *KINDS)("c") == ["csv"]
    assert completes(None, "kci", "gsq")("g") == ["gsq"]


def test_a_shell_completes_without_importing_torch() -> None:
    code = (
        "import sys\nfrom unskew.terminal.main import main\nsys.argv = ['unskew']\n"
        "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    asked = {"_UNSKEW_COMPLETE": "complete_bash", "COMP_WORDS": "unskew catalogue rankers ml", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | asked
    )
    assert done.stdout.split() == ["mlp"], done.stderr
    asked |= {"COMP_WORDS": "unskew simulate --behaviour ca", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | asked
    )
    assert done.stdout.split() == ["cascade"], done.stderr


# ------------------------------------------------------------------------------------------- what is imported


@pytest.mark.parametrize("words", ["--help", "learn --help", "--version"])
def test_help_imports_nothing_heavy(words: str) -> None:
    heavy = ("torch", "numpy", "pyarrow", "duckdb", "ibis", "rich", "altair", "scipy", "sklearn")
    code = (
        f"import sys\nfrom unskew.terminal.main import main\nsys.argv = ['unskew', *{words.split()!r}]\n"
        f"try:\n    main()\nfinally:\n    print([n for n in {heavy!r} if n in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


def test_trees_are_used_and_clicks_simulated_without_torch(world: Path, tmp_path: Path) -> None:
    scored = ("predict", world / "run", "--features", world / "log.test.txt", "--out", tmp_path / "scores.csv")
    made = ("simulate", *SMALL, "--pages", 50, "--out", tmp_path / "log.parquet")
    code = (
        "import sys\nfrom unskew.terminal.main import main\n"
        f"for words in {[[*map(str, words)] for words in (scored, made)]!r}:\n"
        "    sys.argv = ['unskew', *words]\n"
        "    try:\n        main()\n    except SystemExit as ended:\n        assert not ended.code\n"
        "    assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log.parquet").exists()
    assert (tmp_path / "scores.csv").read_text().count("\n") > 10


def test_the_package_itself_imports_next_to_nothing() -> None:
    code = "import sys; before = set(sys.modules); import unskew; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40


# ------------------------------------------------------------------------------------------- doctor


def test_the_doctor_finds_what_is_here() -> None:
    found = unskew.doctor()
    assert found.ok is True
    assert found.broken == []
    assert found.unskew["version"] == unskew.__version__
    assert {"torch", "duckdb", "typer"} <= {each["name"] for each in found.packages}
    assert found.torch["device"].startswith(("cpu", "cuda"))
    assert found.folders["temporary"]["free"] > 0
    text = "\n".join(doctors.lines(found))
    assert f"unskew {unskew.__version__}" in text
    assert "ok  engine duckdb" in text


def test_the_doctor_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["numpy>=1.26", "lightgbm>=4.5; extra == 'trees'", "ruff>=0.6; extra == 'dev'", "torch>=2.6,<2.14"]
    there = {"numpy": "1.0", "torch": "2.6.0+cpu"}
    monkeypatch.setattr(doctors.metadata, "requires", lambda name: asked)
    monkeypatch.setattr(doctors, "_version", there.get)
    monkeypatch.setattr(doctors.shutil, "which", lambda *_, **__: None)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSKEW_CACHE", str(tmp_path / "file" / "cache"))
    found = doctors.doctor()
    assert found.ok is False
    assert found.broken == ["numpy>=1.26, there is 1.0: pip install 'numpy>=1.26'"]
    assert [each["name"] for each in found.packages] == ["numpy", "lightgbm", "torch"]
    missing = "\n".join(found.missing)
    assert "boosted trees, and the examination model: pip install 'unskew[trees]'" in missing
    assert "Java 17 or later, for Spark on this machine: apt install openjdk-17-jre-headless" in missing
    assert "set UNSKEW_CACHE" in missing
    text = "\n".join(doctors.lines(found))
    assert "Broken; unskew does not work without:" in text
    ended = run("doctor")
    assert ended.exit_code == 1
    assert "numpy>=1.26, there is 1.0" in ended.stdout
