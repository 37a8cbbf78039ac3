"""A verb's options are declared once: its function, its command and the reference say the same."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import unskew
from unskew.errors import ConfigError
from unskew.learning.fitting.training import Training, TrainingKeywords
from unskew.options import VERBS
from unskew.options.base import EngineConnection, OnEngine, VerbOptions, flag_of
from unskew.simulation import Simulation, SimulationKeywords, Traffic, TrafficKeywords

FUNCTIONS = {name: getattr(unskew, name) for name in VERBS if name not in ("simulate", "traffic", "twin")}
"""What each command calls; who simulates into a file takes the options as they are."""
APART = {"command", "console", "json", "tell", "report"}
"""What functions are handed besides options: what was typed, and whom to tell."""
MORE = {
    "learn": {"missing_features", "encoding", "training", "options"},
    "ship": {"by", "at"},
    "serve": {"explore"},
    "compare": {"base"},
}
"""Arguments of Python that the command line says in a file, or not at all."""


def arguments(name: str) -> dict[str, inspect.Parameter]:
    """The keywords of a function, those of its engine included."""
    found = dict(inspect.signature(FUNCTIONS[name]).parameters)
    last = found.popitem()[1] if any(each.kind is each.VAR_KEYWORD for each in found.values()) else None
    hints = {} if last is None else get_type_hints(FUNCTIONS[name])
    if last is not None:
        inner = getattr(hints.get(last.name), "__args__", (None,))[0]
        more = getattr(inner, "__annotations__", {}) if inner is not None else {}
        found |= {each: inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in more}
    return {key: each for key, each in found.items() if key not in APART}


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"learn"}))
def test_a_function_takes_the_options_of_its_verb(name: str) -> None:
    fields, taken = VERBS[name].model_fields, arguments(name)
    assert set(fields) - APART == set(taken) - MORE.get(name, set())
    for key, field in fields.items():
        if name == "report" and key == "out":  # a page that Python is handed need not be written
            continue
        default = taken[key].default if key in taken else inspect.Parameter.empty
        if default is not inspect.Parameter.empty and not field.is_required() and field.default is not None:
            assert str(default) == str(field.default) or default == field.default, key


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_what_a_verb_works_on_comes_first_under_one_name(name: str) -> None:
    first = next(iter(inspect.signature(FUNCTIONS[name]).parameters))
    positional = [key for key, field in VERBS[name].model_fields.items() if flag_of(field).positional]
    kinds = {"log", "run", "runs", "lists", "source", "store", "place", "places", "config", "old", "out"}
    assert (positional or [first])[0] == first or first == "out"
    assert first in kinds


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_option_has_a_sentence(name: str) -> None:
    assert (VERBS[name].__doc__ or "").strip()
    assert all(
        str(field.description or "").strip().endswith((".", "…")) for field in VERBS[name].model_fields.values()
    )


BEYOND = {"ge": -1, "gt": 0, "le": 1, "lt": 0}
"""What is added to a bound to be past it."""


def past_their_bounds() -> Iterator[tuple[str, str, float]]:
    """Every option with a bound, and a number on the wrong side of it."""
    for verb in sorted(FUNCTIONS):
        for name, field in VERBS[verb].model_fields.items():
            for each in field.metadata:
                yield from (
                    (verb, name, getattr(each, bound) + more)
                    for bound, more in BEYOND.items()
                    if hasattr(each, bound)
                )


@pytest.mark.parametrize(("verb", "name", "value"), [*past_their_bounds()])
def test_bounds_hold_in_python_too_before_anything_is_opened(
    verb: str, name: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if verb == "demo":
        given: dict[str, object] = {}
    else:
        needed = [key for key, field in VERBS[verb].model_fields.items() if field.is_required()]
        given = {key: ["nowhere"] if key == "features" else f"nowhere_{key}" for key in needed}
        given |= {"to": "lightgbm"} if verb == "export" else {}
    with pytest.raises(ConfigError) as caught:
        FUNCTIONS[verb](**given, **{name: value})
    assert caught.value.argument == name
    assert list(tmp_path.iterdir()) == []


def test_the_engine_is_reached_in_one_way() -> None:
    assert {"columns", "engine", *EngineConnection.__annotations__} == set(OnEngine.model_fields)
    assert issubclass(OnEngine, VerbOptions)


def test_learn_takes_its_options_and_every_field_of_a_training() -> None:
    assert set(TrainingKeywords.__annotations__) == set(Training.model_fields)
    taken = {*inspect.signature(unskew.learn).parameters, *TrainingKeywords.__annotations__}
    assert set(VERBS["learn"].model_fields) - taken == {"settings"}  # any key, which Python says by its objects


def test_who_simulates_takes_every_field_of_a_simulation() -> None:
    assert {*SimulationKeywords.__annotations__, "behaviour", "logger"} == set(Simulation.model_fields)
    assert {*TrafficKeywords.__annotations__, "logger"} == set(Traffic.model_fields)
    files = {"lists", "out", "config", "doc_ids", "force", "queries", "features", "documents"}
    assert set(VERBS["simulate"].model_fields) - files <= set(Simulation.model_fields)
    assert set(VERBS["traffic"].model_fields) - files - {"truth"} <= set(Traffic.model_fields)
