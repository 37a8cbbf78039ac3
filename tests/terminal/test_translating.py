"""Errors speak Python in the library and flags on the command line."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from unskew.errors import (
    Column,
    ConfigError,
    DataError,
    Key,
    MissingExtra,
    Option,
    RunError,
    Sentence,
    Words,
    spelled,
)
from unskew.terminal.flags import as_flag, flags_of
from unskew.terminal.main import made

FLAGS = {
    "force": "--force",
    "gap": "--gap",
    "jobs": "--jobs",
    "columns": "--column",
    "off": "--off",
    "page_columns": "--page-columns",
    "seed": "--seed",
}
SETTING = FLAGS | {"set": "--set", "validation": "--validation"}


def in_flags(words: Words, flags: dict[str, str] = FLAGS) -> str:
    return spelled(words, lambda option: as_flag(flags, option))


@pytest.mark.parametrize(
    ("option", "python", "flags"),
    [
        (Option("force", True), "force=True", "--force"),
        (Option("force", False), "force=False", "no --force"),
        (Option("gap", "5w"), 'gap="5w"', "--gap 5w"),
        (Option("gap", Path("a/b")), 'gap="a/b"', "--gap a/b"),
        (Option("jobs", 1), "jobs=1", "--jobs 1"),
        (Option("jobs", -1), "jobs=-1", "--jobs -1"),
        (Option("jobs", 0), "jobs=0", "--jobs 0"),
        (Option("seed"), "seed=", "--seed"),
        (Option("columns", {"click": "THEIRS"}), 'columns={"click": "THEIRS"}', "--column click=THEIRS"),
        (Option("columns", {"click": "a b"}), 'columns={"click": "a b"}', "--column 'click=a b'"),
        (Option("columns", {"a": "b", "c": "d"}), 'columns={"a": "b", "c": "d"}', "--column a=b --column c=d"),
        (
            Option("page_columns", ["user_id", "time"]),
            'page_columns=["user_id", "time"]',
            "--page-columns user_id,time",
        ),
        (Option("off", ["RULE"]), 'off=["RULE"]', "--off RULE"),
        (Option("validation"), "validation=", "validation="),  # the command has no such flag
        (Option("validate_on", "nothing"), 'validate_on="nothing"', 'validate_on="nothing"'),
        (Option(Key("training.batch"), 3), "training.batch = 3", "training.batch = 3"),
        (Option(Key("seed"), 3), "seed = 3", "seed = 3"),
    ],
)
def test_arguments_become_flags(option: Option, python: str, flags: str) -> None:
    assert (str(option), in_flags(option)) == (python, flags)


@pytest.mark.parametrize(
    ("option", "flags"),
    [
        (Option("validation"), "--validation"),
        (Option("validate_on", "nothing"), "--set training.validate_on=nothing"),
        (Option("learn_from", "everything"), "--set training.learn_from=everything"),
        (Option(Key("data.missing_features"), "drop"), "--set data.missing_features=drop"),
        (Option(Key("training.batch"), 3), "--set training.batch=3"),
        (Option(Key("method.elu"), True), "--set method.elu=true"),
        (Option(Key("data.validation")), "data.validation"),
    ],
)
def test_keys_of_a_run_file_are_said_with_set(option: Option, flags: str) -> None:
    assert in_flags(option, SETTING) == flags


def test_text_is_never_edited() -> None:
    path = "runs/seed=3/force=True/gap=5"  # folders of partitions are called so
    error = DataError(f"gap=5 is in {path}", path=path, line=7, hint=("or pass ", Option("force", True)))
    assert str(error) == f"{path}:7: gap=5 is in {path}; or pass force=True"
    error.spell = lambda option: as_flag(FLAGS, option)
    assert str(error) == f"{path}:7: gap=5 is in {path}; or pass --force"


def test_an_argument_stands_before_the_message() -> None:
    error = ConfigError("write it like 30m", argument="gap", value="5w")
    assert str(error) == 'gap="5w": write it like 30m'
    error.spell = lambda option: as_flag(FLAGS, option)
    assert str(error) == "--gap 5w: write it like 30m"
    assert str(ConfigError("missing", argument="out")) == "out=: missing"
    assert (
        str(ConfigError("too few", argument=Key("training.steps"), path="a.toml"))
        == "a.toml: training.steps: too few"
    )


def test_what_an_error_speaks_of() -> None:
    error = RunError(("pass ", Option("force", True)), hint=("or ", Option("seed")), argument="out")
    assert all(error.speaks_of(*names) for names in (["seed"], ["x", "out"], ["force"]))
    assert not error.speaks_of("gap", "pass ")


def test_columns_are_called_as_their_table_calls_them() -> None:
    error = DataError((Column("position"), " is text, as ", Column("click")), hint=(Column("position"),))
    error.names = {"position": "rank", "doc_id": "sku"}
    assert str(error) == "rank (position) is text, as click; rank (position)"


@pytest.mark.parametrize(
    "error",
    [
        DataError(("a ", Option("seed", 3)), path="log.csv", line=3, hint="b"),
        ConfigError("c", argument="gap", value="5w"),
        MissingExtra("trees", "lightgbm"),
    ],
)
def test_errors_cross_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_kept_sentences() -> None:
    kept = Sentence(("count on with ", Option("seed", 3)))
    assert (kept, in_flags(kept.words)) == ("count on with seed=3", "count on with --seed 3")


def test_the_flags_of_a_command() -> None:
    ingest = flags_of(made("ingest").params)
    assert {name: ingest[name] for name in ("format", "columns", "page_columns", "force", "spark_master")} == {
        "format": "--format",
        "columns": "--column",
        "page_columns": "--page-columns",
        "force": "--force",
        "spark_master": "--spark-master",
    }
    assert "gap" not in ingest


def test_no_message_is_written_in_python_by_hand() -> None:
    """What an error says of an argument is an `Option`; text such as `force=True` would reach the command line."""
    written = re.compile(
        r"""(?:raise \w+Error\(|hint=)\(?f?["'][^"'\n]*(?<![\w./-])[a-z_]+=(?:True|False|[:,;" ]|["']\))"""
    )
    source = Path(__file__).parents[2] / "src" / "unskew"
    found = [
        f"{path.relative_to(source)}: {match[0]}"
        for path in sorted(source.rglob("*.py"))
        for match in written.finditer(path.read_text(encoding="utf-8"))
        if path.parent.name not in ("lists", "sklearn")  # reading in Python alone: read_letor(..., features=WIDTH)
    ]
    assert found == []
