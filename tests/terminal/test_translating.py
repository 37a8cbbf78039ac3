"""Errors speak Python in the library and flags on the command line."""

from __future__ import annotations

import pytest
import typer

from unskew.terminal.main import app
from unskew.terminal.translating import as_flags, flags_of

FLAGS = {
    "force": "--force",
    "gap": "--gap",
    "spark_master": "--spark-master",
    "jobs": "--jobs",
    "columns": "--column",
    "off": "--off",
    "page_columns": "--page-columns",
    "seed": "--seed",
}


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ("choose another place, or pass force=True", "choose another place, or pass --force"),
        ('gap="5w": write it like 30m', "--gap 5w: write it like 30m"),
        ('spark_master="sc://host:1": no answer', "--spark-master sc://host:1: no answer"),
        ("try jobs=1", "try --jobs 1"),
        ("jobs=0: must be at least 1", "--jobs 0: must be at least 1"),
        ("jobs=-1: must be at least 1", "--jobs -1: must be at least 1"),
        (
            "choose another seed=, or use force=True; give validation=",
            "choose another --seed, or use --force; give validation=",
        ),
        ("give seed= or jobs=, one of the two", "give --seed or --jobs, one of the two"),
        ('name it with columns={"click": "THEIRS"}', "name it with --column click=THEIRS"),
        ('with page_columns=["user_id", "timestamp"]', "with --page-columns user_id,timestamp"),
        ('see off=["RULE"].', "see --off RULE."),
    ],
)
def test_arguments_become_flags(python: str, flags: str) -> None:
    assert as_flags(python, FLAGS) == flags


@pytest.mark.parametrize(
    "message",
    [
        "runs/seed=3/log.parquet: not readable",  # folders of partitions are called so
        "seed=3/log.parquet: not readable",
        'training.seed="x": not a number',
        'validate_on="nothing", which this command has no flag for',
        'training.validate_on = "labels" needs data.validation',
        "/data/force=True",
    ],
)
def test_other_things_stay_as_they_are(message: str) -> None:
    assert as_flags(message, FLAGS) == message


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ('give validation=, or validate_on="nothing"', "give --validation, or --set training.validate_on=nothing"),
        ('or set data.missing_features = "drop"', "or --set data.missing_features=drop"),
        ("training.batch = 3 is too small", "--set training.batch=3 is too small"),
        ('learn_from="everything" takes all', "--set training.learn_from=everything takes all"),
        ("end it, or pass force=False", "end it, or leave out --force"),
    ],
)
def test_keys_of_a_run_file_are_said_with_set(python: str, flags: str) -> None:
    assert as_flags(python, FLAGS | {"set": "--set", "validation": "--validation"}) == flags


def test_the_flags_of_a_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    ingest = flags_of(commands["ingest"].params)
    assert {name: ingest[name] for name in ("format", "columns", "page_columns", "force", "spark_master")} == {
        "format": "--format",
        "columns": "--column",
        "page_columns": "--page-columns",
        "force": "--force",
        "spark_master": "--spark-master",
    }
    assert "gap" not in ingest
