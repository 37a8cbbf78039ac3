"""Run files: read strictly, with errors that name the file, the key and what may have been meant."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.asked import settings
from unskew.errors import ConfigError
from unskew.learning.methods import DLA, IPW
from unskew.learning.rankers import MLP, Linear
from unskew.settings import read_toml
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.settings import RunFile, Settings

PLAIN = 'out = "run"\n[data]\nlog = "log.parquet"\nfeatures = "lists.txt"\n'


def read(path: Path) -> tuple[RunFile, Settings]:
    request = ask(path)
    return request.file, request.settings


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    return tmp_path / "run.toml"


def refused(path: Path, message: str, **options: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{path}: ") + message):
        ask(path, **options)


def test_defaults(tmp_path: Path) -> None:
    file, asked = read(write(tmp_path, PLAIN))
    assert (file.out, file.data.log, file.data.features) == ("run", "log.parquet", "lists.txt")
    assert asked.method == DLA()
    assert asked.ranker == MLP()
    assert (asked.scaling, asked.training.validate_on) == ("standard", "clicks")


def test_everything_said(tmp_path: Path) -> None:
    text = PLAIN.replace('"lists.txt"', '["a.txt", "b.txt"]') + (
        'validation = "v.txt"\ntest = ["t.txt"]\nscaling = "ultra"\ndoc_ids = true\n'
        '[method]\nname = "ipw"\npropensity = [1, 0.5]\nmax_weight = 10\n'
        '[ranker]\nname = "mlp"\nsizes = [8, 4]\ndropout = 0.1\n'
        '[training]\nsteps = 7\noptimizer = "adagrad"\nseed = 3\n'
    )
    file, asked = read(write(tmp_path, text))
    assert file.data.features == ("a.txt", "b.txt")
    assert (file.data.validation, file.data.test, file.data.doc_ids) == ("v.txt", ("t.txt",), True)
    assert asked.method == IPW(propensity=(1.0, 0.5), max_weight=10.0)
    assert asked.ranker == MLP(sizes=(8, 4), dropout=0.1)
    assert asked.scaling == "ultra"
    assert (asked.training.steps, asked.training.optimizer, asked.training.seed) == (7, "adagrad", 3)
    assert asked.training.validate_on == "labels"  # because there are validation lists


def test_method_and_seed_given_beside_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN + '[method]\nname = "dla"\nmax_weight = 3.0\n[training]\nseed = 1\nsteps = 9\n')
    asked = ask(path, method="ipw", options={"seed": 5}).settings
    assert asked.method == IPW()
    assert (asked.training.seed, asked.training.steps) == (5, 9)
    with pytest.raises(ConfigError, match=r"^method=: unknown name 'dlaa'\. Did you mean dla\?"):
        ask(path, method="dlaa")
    refused(
        write(tmp_path, "training = 3\n" + PLAIN), r"training: input should be a table, not 3", options={"seed": 5}
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            "ot = 1\n" + PLAIN,
            r"ot: unknown key\. Did you mean out\? Known: auto, data, encoding, engine, method, out,",
        ),
        (PLAIN + 'validaton = "v"\n', r"data\.validaton: unknown key\. Did you mean validation\?"),
        (PLAIN + '[method]\nname = "dla"\nmax_wieght = 1\n', r"method\.max_wieght: .*Did you mean max_weight\?"),
        (PLAIN + '[ranker]\nname = "mlp"\nsize = [3]\n', r"ranker\.size: unknown key\. Did you mean sizes\?"),
        (PLAIN + "[training]\nstep = 3\n", r"training\.step: unknown key\. Did you mean steps\?"),
    ],
)
def test_unknown_keys(tmp_path: Path, wrong: str, message: str) -> None:
    refused(write(tmp_path, wrong), message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (PLAIN.replace('"run"', "3"), r"out: input should be a valid string, not 3"),
        (
            PLAIN.replace('"lists.txt"', "3"),
            r"data\.features: input should be a valid string, not 3; .*list",
        ),
        (PLAIN.replace('"lists.txt"', '["a", 3]'), r".*data\.features\.1: input should be a valid string, not 3"),
        (PLAIN + 'doc_ids = "yes"\n', r"data\.doc_ids: input should be a valid boolean, not 'yes'"),
        ('method = "dla"\n' + PLAIN, r"method: input should be a table, not 'dla'"),
        (PLAIN + "[method]\nname = 3\n", r"method\.name: unknown name 3\."),
        (PLAIN + '[ranker]\nname = "mlp"\nsizes = 8\n', r"ranker\.sizes: input should be a list, not 8"),
        (PLAIN + '[training]\nsteps = "many"\n', r"training\.steps: input should be a valid integer, not 'many'"),
        (PLAIN + "[training]\nsteps = 10.0\n", r"training\.steps: input should be a valid integer, not 10\.0"),
        (PLAIN + "[training]\nsteps = 0\n", r"training\.steps: input should be greater than or equal to 1, not 0"),
        (
            PLAIN + '[training]\nvalidate_on = "x"\n',
            r"training\.validate_on: unknown name 'x'\. Known: clicks, labels",
        ),
    ],
)
def test_wrong_types_and_values(tmp_path: Path, wrong: str, message: str) -> None:
    refused(write(tmp_path, wrong), message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", r"data: missing"),
        (PLAIN.replace('log = "log.parquet"\n', ""), r"data\.log: missing"),
        (PLAIN + "[method]\nmax_weight = 3.0\n", r"method\.name: missing\. Known: additive, "),
        (
            PLAIN + "[ranker]\nsizes = [3]\n",
            r"ranker\.name: missing\. Known: cross_encoder, doubly_robust_mix, doubly_robust_mlp, linear, ",
        ),
    ],
)
def test_missing_values(tmp_path: Path, wrong: str, message: str) -> None:
    refused(write(tmp_path, wrong), message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (PLAIN + '[method]\nname = "naife"\n', r"method\.name: unknown name 'naife'\. Did you mean naive\?"),
        (PLAIN + '[ranker]\nname = "liner"\n', r"ranker\.name: unknown name 'liner'\. Did you mean linear\?"),
        (PLAIN + 'scaling = "standart"\n', r"data\.scaling: unknown name 'standart'\. Did you mean standard\?"),
    ],
)
def test_unknown_names(tmp_path: Path, wrong: str, message: str) -> None:
    refused(write(tmp_path, wrong), message)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    refused(tmp_path / "none.toml", "there is no such file")
    (tmp_path / "folder.toml").mkdir()
    refused(tmp_path / "folder.toml", "Is a directory")
    refused(write(tmp_path, "out = \n"), r"not valid TOML: .*line 1")
    (tmp_path / "run.toml").write_bytes(b'out = "\xff"\n')
    refused(tmp_path / "run.toml", "not valid TOML")


def test_toml_is_utf_8(tmp_path: Path) -> None:
    assert read_toml(write(tmp_path, 'out = "Läufe"\n')) == {"out": "Läufe"}


def test_labels_cannot_choose_without_lists(tmp_path: Path) -> None:
    asked = PLAIN + '[training]\nvalidate_on = "labels"\n'
    refused(write(tmp_path, asked), r'training\.validate_on = "labels" needs data\.validation')
    _, ignoring = read(write(tmp_path, PLAIN + 'validation = "v"\n[training]\nvalidate_on = "clicks"\n'))
    assert ignoring.training.validate_on == "clicks"


def test_settings_from_python() -> None:
    asked = settings("naive", Linear(), "minmax", None, {"steps": 5}, None)
    assert (asked.method.name, asked.ranker, asked.scaling, asked.training.steps) == (
        "naive",
        Linear(),
        "minmax",
        5,
    )
    for arguments, message in (
        (("nave", "mlp", "standard"), r"method=: unknown name 'nave'\. Did you mean naive\?"),
        (("dla", "mpl", "standard"), r"ranker=: unknown name 'mpl'\. Did you mean mlp\?"),
        (("dla", "mlp", "min_max"), r"scaling=: unknown name 'min_max'\. Did you mean minmax\?"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings(*arguments, None, {}, None)


def test_a_run_goes_where_the_call_says_else_where_the_file_does(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    request = ask(path)
    assert request.folder(None) == request.place(None) == tmp_path / str(request.file.out)
    assert request.folder("there") == request.place("there") == Path("there")
    nowhere = replace(request, file=request.file.model_copy(update={"out": None}))
    assert nowhere.folder("there") == Path("there")
    assert nowhere.place(None) is None
    with pytest.raises(ConfigError, match="out: missing; say it there, or give out="):
        nowhere.folder(None)
