"""Compare files: the data, behaviours, methods, settings and seeds of a comparison, checked strictly.

    out = "../runs/comparison"
    sessions = 100000
    seeds = 3                        # 0, 1, 2; or a list

    [data.synthetic]                 # or lists, validation and test; or preset, folder and fold
    queries = 1000

    [[behaviours]]
    name = "position"

    [[methods]]
    name = "dla"
    grid.max_weight = [5.0, 20.0]    # every combination of the values is tried
    grid.training.learning_rate = [0.001, 0.003]

Paths are relative to the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from unskew.clicks.datasets import PRESETS
from unskew.clicks.scaling import SCALINGS
from unskew.clicks.simulate import BEHAVIOURS, LOGGERS, Behaviour, Logger
from unskew.config import Paths, checked, known, read_toml, table_of
from unskew.errors import ConfigError, did_you_mean
from unskew.learning.methods import METHODS, MethodConfig
from unskew.learning.rankers import RANKERS, Ranker
from unskew.learning.train import Training

REFERENCES = ("naive", "labeled", "random", "logging")
"""Arms that every comparison has; the first is what methods are tested against."""
Seed = Annotated[int, Field(ge=0)]


class Synthetic(BaseModel):
    """Lists made up by `make_lists`; validation and test get a quarter of the queries each."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    queries: int = Field(1000, ge=2)
    """Training queries."""
    features: int = Field(40, ge=4)
    """Features of a document."""
    documents: int = Field(24, ge=2)
    """Documents of a query, on average."""
    seed: Seed = 0
    """Seed of the lists."""


class CompareData(BaseModel):
    """The labelled lists: files, a public data set, or made up."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lists: Paths | None = None
    """LETOR file or files with the lists that are shown and clicked."""
    validation: Paths | None = None
    """Labelled lists that settings are chosen on, besides held-out clicks."""
    test: Paths | None = None
    """Labelled lists that every arm is measured on, and nothing is chosen on."""
    preset: str | None = None
    """A public data set by its name."""
    folder: str | None = None
    """Where its files lie."""
    fold: int = Field(1, ge=1)
    """Which of its folds."""
    synthetic: Synthetic | None = None
    """Lists made up."""
    scaling: str = "standard"
    """How features are scaled."""
    label_scale: int = Field(1, ge=1)
    """Grades are multiplied by this: 2 makes 0, 1, 2 into 0, 2, 4, the range that behaviours expect."""
    only_relevant: bool = False
    """Leave out queries without a relevant document."""
    doc_ids: bool = False
    """Take document ids from the comments of the LETOR files."""


class CompareFile(BaseModel):
    """A whole compare file, as written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    out: str = "comparison"
    data: CompareData
    behaviours: list[dict[str, Any]] = Field(min_length=1)
    methods: list[dict[str, Any]] = Field(min_length=1)
    logger: dict[str, Any] = Field(default_factory=lambda: {"name": "svm"})
    ranker: dict[str, Any] = Field(default_factory=lambda: {"name": "mlp"})
    training: dict[str, Any] = Field(default_factory=dict)
    sessions: Annotated[int, Field(ge=1)] | None = None
    """Result pages of each log."""
    clicks: Annotated[int, Field(ge=1)] | None = None
    """Each log ends at this many clicks instead."""
    randomized: float = Field(0.0, ge=0, le=1)
    """Share of pages with a shuffled list, which some methods need."""
    cutoff: Annotated[int, Field(ge=0)] | None = None
    """Results of a page; 0 shows the whole list, none leaves it to the behaviour."""
    seeds: Annotated[int, Field(ge=1)] | Annotated[list[Seed], Field(min_length=1)] = 3
    """How many seeds, or which; one seed is a log and a training."""


@dataclass(frozen=True)
class Point:
    """One combination of a method's settings."""

    method: MethodConfig
    training: Training
    varied: str
    """What the grid set, as text: "max_weight = 5.0"; empty where there is no grid."""
    tuned: str = ""
    """The part of that which is about training."""


@dataclass(frozen=True)
class Arm:
    """A method with all settings that are tried."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Asked:
    """A checked compare file: what a comparison goes through."""

    file: CompareFile
    base: Path
    """Folder that paths are relative to."""
    behaviours: Mapping[str, Behaviour]
    logger: Logger
    ranker: Ranker
    arms: tuple[Arm, ...]
    """The file's methods in their order, then naive and labeled where it has none, tuned as the methods are."""
    seeds: tuple[int, ...]


def read_compare_file(path: Path) -> Asked:
    """Read and check a compare file."""
    content = read_toml(path)
    try:
        return asked_for(content, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def asked_for(content: Mapping[str, Any], base: Path) -> Asked:
    """Check the content of a compare file whose paths are relative to `base`."""
    file: CompareFile = checked(CompareFile, content, "")
    _check_data(file.data)
    if (file.sessions is None) == (file.clicks is None):
        raise ConfigError("give sessions or clicks, one of the two")
    _training(file.training, "training")
    arms = [_arm(f"methods.{index}", table, file.training) for index, table in enumerate(file.methods)]
    tuned = {point.training: point.tuned for arm in arms for point in arm.points}
    for name, extra in (("naive", {}), ("labeled", {"documents": "all"})):
        if all(arm.label != name for arm in arms):
            method = table_of(name, {"name": name, **extra}, METHODS)
            arms.append(Arm(name, tuple(Point(method, how, text, text) for how, text in tuned.items())))
    _distinct("methods", [arm.label for arm in arms])
    unlabelled = file.data.lists is not None and file.data.validation is None
    if unlabelled and any(point.training.validate_on == "labels" for arm in arms for point in arm.points):
        raise ConfigError('training.validate_on = "labels" needs data.validation')
    people = [_behaviour(f"behaviours.{index}", table) for index, table in enumerate(file.behaviours)]
    _distinct("behaviours", [label for label, _ in people])
    return Asked(
        file=file,
        base=base,
        behaviours=dict(people),
        logger=_nameless("logger", file.logger, LOGGERS),
        ranker=table_of("ranker", file.ranker, RANKERS),
        arms=tuple(arms),
        seeds=tuple(range(file.seeds)) if isinstance(file.seeds, int) else tuple(dict.fromkeys(file.seeds)),
    )


def _check_data(data: CompareData) -> None:
    """One source, with all that it needs and nothing of another."""
    known("data.scaling", data.scaling, SCALINGS)
    given = [key for key in ("lists", "preset", "synthetic") if getattr(data, key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise ConfigError(f"data: give one of lists, preset and synthetic; there is {found}")
    if data.preset is not None:
        known("data.preset", data.preset, PRESETS)
    needs = {"lists": "test", "preset": "folder"}.get(given[0])
    if needs and getattr(data, needs) is None:
        raise ConfigError(f"data.{needs}: missing")
    homes = {"validation": "lists", "test": "lists", "folder": "preset", "fold": "preset"}
    wrong = [key for key, home in homes.items() if key in data.model_fields_set and home != given[0]]
    if wrong:
        raise ConfigError(f"data.{wrong[0]}: cannot be given beside {given[0]}")


def _training(content: Mapping[str, Any], key: str) -> Training:
    """Training settings but the seed, which is the cell's."""
    if "seed" in content:
        raise ConfigError(f"{key}.seed: the file's seeds are used instead; remove it")
    training: Training = checked(Training, {"threads": 1} | dict(content), key)
    return training


def _behaviour(key: str, table: Mapping[str, Any]) -> tuple[str, Behaviour]:
    content = dict(table)
    label = _label(key, content)
    return label, _nameless(key, content, BEHAVIOURS)


def _nameless(key: str, table: Mapping[str, Any], kinds: Mapping[str, type[Any]]) -> Any:
    """The config of a table whose `name` is no field of the config."""
    content = dict(table)
    if "name" not in content:
        raise ConfigError(f"{key}.name: missing. {did_you_mean('', kinds)}")
    return checked(kinds[known(f"{key}.name", content.pop("name"), kinds)], content, key)


def _label(key: str, content: dict[str, Any]) -> str:
    """Take the `label` out of a table; without one its name serves."""
    label = content.pop("label", content.get("name", ""))
    if not isinstance(label, str):
        raise ConfigError(f"{key}.label: input should be a valid string, not {label!r}")
    return label


def _arm(key: str, table: Mapping[str, Any], training: Mapping[str, Any]) -> Arm:
    """A method with every combination of its grid."""
    content = dict(table)
    label, grid = _label(key, content), content.pop("grid", {})
    method: MethodConfig = table_of(key, content, METHODS)
    if label in REFERENCES and label != method.name:
        raise ConfigError(f"{key}.label: {label} is the name of an arm that every comparison has")
    points = []
    for choice in combinations(_axes(f"{key}.grid", grid)):
        of_method = {axis: value for (home, axis), value in choice.items() if home == "method"}
        of_training = {axis: value for (home, axis), value in choice.items() if home == "training"}
        points.append(
            Point(
                table_of(key, content | of_method, METHODS),
                _training(dict(training) | of_training, f"{key}.grid.training" if of_training else "training"),
                _text({axis: value for (_, axis), value in choice.items()}),
                _text(of_training),
            )
        )
    return Arm(label, tuple(points))


def _text(chosen: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in chosen.items())


Axis = tuple[str, str]


def _axes(key: str, grid: Any) -> dict[Axis, list[Any]]:
    """What the grid varies: ("method" or "training", setting) with its values."""
    if not isinstance(grid, dict):
        raise ConfigError(f"{key}: input should be a table of lists, not {grid!r}")
    inner = grid.get("training", {})
    if not isinstance(inner, dict):
        raise ConfigError(f"{key}.training: input should be a table of lists, not {inner!r}")
    axes = {("method", name): values for name, values in grid.items() if name != "training"}
    axes |= {("training", name): values for name, values in inner.items()}
    for (home, name), values in axes.items():
        if not isinstance(values, list) or not values:
            place = f"{key}.{name}" if home == "method" else f"{key}.training.{name}"
            raise ConfigError(f"{place}: input should be a list of values to try, not {values!r}")
    return axes


def combinations(axes: Mapping[Axis, list[Any]]) -> list[dict[Axis, Any]]:
    """Every combination of the values; one empty combination where nothing varies.

    >>> combinations({("method", "a"): [1, 2]})
    [{('method', 'a'): 1}, {('method', 'a'): 2}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _distinct(key: str, labels: list[str]) -> None:
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigError(f"{key}: {', '.join(twice)} is there twice; give one a label of its own")
