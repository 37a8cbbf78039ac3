"""Settings are checked alike in TOML and in Python; names, columns and amounts are told in one way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import Field, ValidationError

import unskew
from unskew.errors import ConfigError, DataError
from unskew.learning.fitting.training import Training
from unskew.settings import (
    Config,
    byte_count,
    checked,
    did_you_mean,
    known,
    named,
    require_columns,
    second_count,
    table_of,
)
from unskew.simulation import FeatureLogger, PositionBias
from unskew.tables.reading.options import IngestOptions


class Inner(Config):
    """Within another."""

    depth: int = 1


class Outer(Config):
    """Around another."""

    inner: Inner = Inner()
    most: float = Field(1.0, gt=0)


class Other(Config):
    """Of another name."""

    name: str = "other"


def test_python_and_toml_say_the_same() -> None:
    for wrong, told in (
        ({"mots": 2.0}, "mots: unknown key. Did you mean most? Known: inner, most."),
        ({"most": "x"}, "most: input should be a valid number, not 'x'"),
        ({"most": float("inf")}, "most: input should be a finite number, not inf"),
        ({"inner": {"dept": 2}}, "inner.dept: unknown key. Did you mean depth? Known: depth."),
        ({"inner": {"depth": "2"}, "most": 0.0}, "inner.depth: input should be a valid integer, not '2'; "),
    ):
        with pytest.raises(ConfigError) as in_toml:
            checked(Outer, wrong, "outer")
        with pytest.raises(ConfigError) as in_python:
            Outer(**wrong)  # type: ignore[arg-type]
        assert str(in_toml.value).startswith(f"outer.{told}")
        assert str(in_python.value) == str(in_toml.value).replace("outer.", "Outer.")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: unskew.methods.DLA(max_wieght=3), r"DLA\.max_wieght: unknown key\. Did you mean max_weight\?"),
        (lambda: unskew.rankers.MLP(sizes="x"), r"MLP\.sizes: input should be a list, not 'x'"),
        (lambda: Training(steps=0), r"Training\.steps: input should be greater than or equal to 1, not 0"),
        (lambda: PositionBias(nois=0.1), r"PositionBias\.nois: unknown key\. Did you mean noise\?"),
        (lambda: FeatureLogger(), r"FeatureLogger\.column: missing"),
        (lambda: IngestOptions(time={"zone": "Berlin"}), r"IngestOptions\.time\.zone: there is no such time zone"),
    ],
)
def test_wrong_settings_in_python(wrong: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        wrong()


def test_settings_are_frozen_and_come_back_from_json() -> None:
    outer = Outer(inner=Inner(depth=3), most=2.0)
    with pytest.raises(ValidationError, match="frozen"):
        outer.most = 3.0
    assert Outer.model_validate_json(outer.model_dump_json()) == outer


def test_configs_by_name() -> None:
    kinds = {"outer": Outer, "other": Other}
    assert named("kind", "outer", kinds) == Outer()
    assert table_of("kind", {"name": "outer", "most": 2.0}, kinds) == Outer(most=2.0)  # its name is no field
    assert table_of("kind", {"name": "other"}, kinds) == Other()
    with pytest.raises(ConfigError, match=r"kind\.name: missing\. Known: other, outer\."):
        table_of("kind", {}, kinds)
    with pytest.raises(ConfigError, match=r"kind\.name: unknown name 3\."):
        table_of("kind", {"name": 3}, kinds)
    with pytest.raises(ConfigError, match="unknown name"):
        table_of("kind", {"name": ["outer"]}, kinds, Outer)
    with pytest.raises(ConfigError, match=r"kind\.mots: unknown key\. Did you mean most\?"):
        table_of("kind", {"name": "outer", "mots": 2.0}, kinds)
    with pytest.raises(ConfigError, match=r"engine=: unknown name 'duck'\. Did you mean duckdb\?"):
        known("engine", "duck", ("duckdb", "spark"))


def test_did_you_mean() -> None:
    assert did_you_mean("dlaa", ["naive", "dla"]) == "Did you mean dla? Known: dla, naive."
    assert did_you_mean("", ["b", "a"]) == "Known: a, b."


def test_missing_columns() -> None:
    require_columns(["a"], ["a", "b"])
    with pytest.raises(DataError) as told:
        require_columns(["a", "c", "d"], ["a", "b"], path="log.parquet", hint="add them")
    assert str(told.value) == "log.parquet: missing columns: c, d; there are a, b; add them"
    with pytest.raises(DataError, match="there are none"):
        require_columns(["a"], [])


def test_sizes() -> None:
    sizes = {"1.5 GiB": 3 * 2**29, "100kb": 102_400, "512m": 2**29, "2T": 2**41, "7": 7}
    assert {text: byte_count("memory", text) for text in sizes} == sizes
    for wrong in ("", "much", "-1GB", "0GB", "1e3", "9" * 400 + "GB", 0):
        with pytest.raises(ConfigError, match=r"memory=.*: write it like 4GB or 512MB"):
            byte_count("memory", wrong)


def test_durations() -> None:
    times = {"30m": 1800, "90 s": 90, "1h": 3600, "2d": 172_800, "45": 45}
    assert {text: second_count("gap", text) for text in times} == times
    for wrong in ("", "m", "-5m", "5w", "0", "1e3"):
        with pytest.raises(ConfigError, match=rf'gap="{wrong}": write it like 30m, 90s or 1h'):
            second_count("gap", wrong)
