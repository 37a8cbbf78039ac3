"""Arms of a comparison: methods with every combination of their grids, and the packages' own rankers.

An arm learns with a method of METHODS and a ranker, or is one of PACKAGES, which bring their trees with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from unskew.errors import ConfigError, Key
from unskew.learning.fitting.training import Training
from unskew.learning.methods import LEARNERS, METHODS, Learner, PackageConfig
from unskew.learning.rankers import RANKERS, Ranker
from unskew.settings import Config, Table, checked, table_of
from unskew.workflows.runs.settings import Settings

REFERENCES = ("naive", "labeled", "random", "logging")
"""Arms that every comparison has; the first is what methods are tested against."""


@dataclass(frozen=True)
class Point:
    """One combination of an arm's settings."""

    method: Learner
    ranker: Ranker | None
    """None for a package, whose trees are its own."""
    training: Training
    """A package takes only `validate_on` and `threads` from it."""
    varied: str
    """What the grid set, as text: "max_weight = 5.0"; empty where there is no grid."""
    tuned: str = ""
    """The part of that which is about training."""
    under: Mapping[str, tuple[Learner, str]] = field(default_factory=dict)
    """The method with the settings that it has under one behaviour alone, and what they are."""

    def at(self, behaviour: str) -> Point:
        """The same with the settings that it has under this behaviour."""
        method, changed = self.under.get(behaviour, (self.method, ""))
        return replace(self, method=method, varied=", ".join(filter(None, (self.varied, changed))), under={})

    def settings(self, seed: int, scaling: str) -> Settings:
        """What a run is asked for; packages take features as they are."""
        training = self.training.model_copy(update={"seed": seed})
        scaling = "none" if self.ranker is None else scaling
        return Settings(method=self.method, ranker=self.ranker, scaling=scaling, training=training, engine="none")

    @property
    def reads_labels(self) -> bool:
        """Whether it learns from grades instead of clicks."""
        return self.method.target == "labels"


@dataclass(frozen=True)
class Arm:
    """A method with all settings that are tried."""

    label: str
    points: tuple[Point, ...]
    trained_apart: bool = False
    """Whether it has training settings of its own, so that they say nothing of how others should be tried."""

    @property
    def trainings(self) -> dict[Training, str]:
        """The shared training settings that are tried, with their text; none for a package."""
        shared = () if self.trained_apart else self.points
        return {point.training: point.tuned for point in shared if point.ranker is not None}


Values = Annotated[list[Any], Field(min_length=1)]
"""What a grid tries for a setting."""


class Grid(Config):
    """Values to try: of settings of a method by their names, and of its training."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Values] = Field(init=False)
    training: dict[str, Values] = Field(default_factory=dict)


class ArmTable(Config):
    """What a table of a method may say besides its settings."""

    grid: Grid = Grid()
    ranker: Table | None = None
    training: Table = Field(default_factory=dict)
    under: dict[str, Table] = Field(default_factory=dict)
    """Settings under one behaviour alone."""


ADDED: Mapping[str, Mapping[str, Any]] = {"naive": {}, "labeled": {"documents": "all"}}
"""Arms that learn and are added where a file has none, with their settings."""


def read_arms(
    tables: Sequence[Mapping[str, Any]],
    ranker: Ranker,
    training: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    added: Sequence[str],
) -> list[Arm]:
    """The arms of a file, with those of ADDED that it lacks, tuned as the methods are.

    Ranker, training settings and the grid of training settings are those that the file has for all arms.
    """
    usual = training_of(training, "training")
    arms = [_arm(f"methods.{index}", table, ranker, training, grid) for index, table in enumerate(tables)]
    tuned = {how: text for arm in arms for how, text in arm.trainings.items()} or {usual: ""}
    for name in added:
        if all(arm.label != name for arm in arms):
            method = table_of(name, {"name": name, **ADDED[name]}, METHODS)
            points = (Point(method, ranker, how, text, text) for how, text in tuned.items())
            arms.append(Arm(name, tuple(points)))
    return arms


def training_of(content: Mapping[str, Any], key: str) -> Training:
    """Training settings but the seed, which is the cell's."""
    if "seed" in content:
        raise ConfigError("the file's seeds are used instead; remove it", argument=Key(f"{key}.seed"))
    return checked(Training, {"threads": 1} | dict(content), key)


def label_of(key: str, content: dict[str, Any]) -> str:
    """Take the `label` out of a table; without one its name serves, of `module:Class` that of the class."""
    label = content.pop("label", str(content.get("name", "")).rpartition(":")[2])
    if not isinstance(label, str):
        raise ConfigError(f"input should be a valid string, not {label!r}", argument=Key(f"{key}.label"))
    return label


def _arm(
    key: str,
    table: Mapping[str, Any],
    ranker: Ranker,
    training: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
) -> Arm:
    """An arm with every combination of its grid and of the file's."""
    content = dict(table)
    label = label_of(key, content)
    said = checked(ArmTable, {name: content.pop(name) for name in ArmTable.model_fields if name in content}, key)
    method = table_of(key, content, LEARNERS, Learner)
    if label in REFERENCES and label != method.name:
        raise ConfigError(f"{label} is the name of an arm that every comparison has", argument=Key(f"{key}.label"))
    own = {"grid.training": said.grid.training, "training": said.training, "ranker": said.ranker}
    packaged, wrong = isinstance(method, PackageConfig), [name for name, given in own.items() if given]
    if packaged and wrong:
        what = f"{method.name} grows its own trees; give it settings of theirs"
        raise ConfigError(what, argument=Key(f"{key}.{wrong[0]}"))
    of_ranker = ranker if said.ranker is None else table_of(f"{key}.ranker", said.ranker, RANKERS)
    own_training = {**training, **said.training}
    training_of(own_training, f"{key}.training")
    usual = {"validate_on": method.usual_choice(labels=False)} if packaged else {}
    trained, varied = {**({} if packaged else grid), **said.grid.training}, said.grid.model_extra or {}
    points = []
    for values in itertools.product(*trained.values(), *varied.values()):
        of_training = dict(zip(trained, values, strict=False))
        of_method = dict(zip(varied, values[len(trained) :], strict=True))
        changed = {
            name: (
                table_of(f"{key}.under.{name}", content | of_method | changes, LEARNERS, Learner),
                _text(changes),
            )
            for name, changes in said.under.items()
        }
        points.append(
            Point(
                table_of(key, content | of_method, LEARNERS, Learner),
                None if packaged else of_ranker,
                training_of(usual | own_training | of_training, f"{key}.grid.training"),
                _text(of_training | of_method),
                _text(of_training),
                changed,
            )
        )
    return Arm(label, tuple(points), bool(said.training))


def _text(chosen: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in chosen.items())
