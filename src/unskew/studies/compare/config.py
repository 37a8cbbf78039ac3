"""Compare files: the data, behaviours, methods, settings and seeds of a comparison, checked strictly.

`examples/compare.toml` is one; docs/how_to/compare.md says what its keys mean. Paths are relative to the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from unskew.errors import ConfigError, Key, Option
from unskew.learning.rankers import RANKERS
from unskew.options.base import Paths
from unskew.options.logs import LogOptions
from unskew.options.runs import LogFiles
from unskew.settings import Config, Table, checked, known, read_toml, table_of
from unskew.simulation import BEHAVIOURS, LOGGERS, Behaviour, Logger, Simulation
from unskew.studies.compare.arms import Arm, Values, label_of, read_arms
from unskew.tables.lists.scaling import SCALINGS

Seed = Annotated[int, Field(ge=0)]


class SyntheticLists(Config):
    """Lists made up by `make_lists`; validation and test get a quarter of the queries each."""

    queries: int = Field(1000, ge=2)
    """Training queries."""
    features: int = Field(40, ge=4)
    """Features of a document."""
    documents: int = Field(24, ge=2)
    """Documents of a query, on average."""
    seed: Seed = 0
    """Seed of the lists."""


class CompareData(LogFiles):
    """Labelled lists to simulate clicks on: files, or made up; or a real log."""

    model_config = ConfigDict(use_attribute_docstrings=True, defer_build=False)

    lists: Paths | None = None
    """LETOR file or files with the lists that are shown and clicked."""
    validation: Paths | None = None
    """Labelled lists that settings are chosen on, besides held-out clicks."""
    test: Paths | None = None
    """Labelled lists that every arm is measured on, and nothing is chosen on; beside a log they are not needed."""
    synthetic: SyntheticLists | None = None
    """Lists made up."""
    scaled: str = Field("none", json_schema_extra={"choices": [*SCALINGS]})
    """How features are scaled before anything else, simulation too: fitted on all parts together, as published."""
    scaling: str = Field("standard", json_schema_extra={"choices": [*SCALINGS]})
    """How features are scaled for the ranker."""
    label_scale: int = Field(1, ge=1)
    """Grades are multiplied by this: 2 makes 0, 1, 2 into 0, 2, 4, the range that behaviours expect."""
    only_relevant: bool = False
    """Leave out queries without a relevant document."""
    log: str | None = None
    """Impressions of real people, in the place of lists and behaviours: a folder that `unskew split` wrote, or a
    Parquet file or folder, of which a fifth of the queries then judges and a fifth chooses, by the seed."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


class TrainingGrid(Config):
    """Values to try with every method."""

    training: dict[str, Values] = Field(default_factory=dict)
    """Training settings, each with a list of values."""


class CompareFile(LogOptions):
    """A whole compare file, as written; every log is as long as it says."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    out: str = "comparison"
    """Folder to write, from the folder of the file; the command may name another."""
    data: CompareData
    behaviours: list[Table] = Field(default_factory=list)
    """How people click: the name of a behaviour, its settings, and a label where a name is there twice; none where
    the clicks are real."""
    methods: list[Table] = Field(min_length=1)
    """What is compared: the name of a method, its settings, and a label where a name is there twice."""
    logger: Table = Field(default_factory=lambda: Table(name="svm"))
    """What ranks the pages: the name of a logging ranker, and its settings."""
    ranker: Table = Field(default_factory=lambda: Table(name="mlp"))
    """What scores documents: the name of a ranker, and its settings."""
    training: Table = Field(default_factory=dict)
    """How all are trained: settings of `Training`."""
    grid: TrainingGrid = TrainingGrid()
    """Settings that every method is tried with."""
    seeds: Annotated[int, Field(ge=1)] | Annotated[list[Seed], Field(min_length=1)] = 3
    """How many seeds, or which; one seed is a log and a training."""
    baselines: list[str] | None = None
    """Methods, by label, that the others are to beat; naive and the packages' rankers where not given."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.data.log is None and (self.pages is None) == (self.clicks is None):
            raise ValueError(("give ", Option("pages"), " or ", Option("clicks"), ", one of the two"))
        return self


@dataclass(frozen=True)
class Asked:
    """A checked compare file: what a comparison goes through."""

    file: CompareFile
    base: Path
    """Folder that paths are relative to."""
    behaviours: Mapping[str, Behaviour]
    logger: Logger
    arms: tuple[Arm, ...]
    """The file's methods in their order, then naive and labeled where it has none, tuned as the methods are."""
    seeds: tuple[int, ...]
    baselines: tuple[str, ...]
    """Labels of the arms of which the best is what methods are tested against."""

    def simulation(self, behaviour: str, seed: int) -> Simulation:
        """What makes the log of this behaviour and seed."""
        options = {name: getattr(self.file, name) for name in LogOptions.model_fields}
        return Simulation(behaviour=self.behaviours[behaviour], logger=self.logger, seed=seed, **options)


def read_compare_file(path: Path) -> Asked:
    """Read and check a compare file."""
    content = read_toml(path)
    try:
        return asked_for(content, path.parent)
    except ConfigError as error:
        error.path = path
        raise


def asked_for(content: Mapping[str, object], base: Path) -> Asked:
    """Check the content of a compare file whose paths are relative to `base`."""
    file = checked(CompareFile, content, "")
    _check_data(file)
    ranker = table_of("ranker", file.ranker, RANKERS)
    added = ("naive", "labeled") if file.data.log is None else ("naive",)
    arms = read_arms(file.methods, ranker, file.training, file.grid.training, added)
    _distinct("methods", [arm.label for arm in arms])
    points = [point for arm in arms for point in arm.points]
    by_labels = any(point.training.validate_on == "labels" for point in points)
    if file.data.log is not None and (by_labels or any(point.reads_labels for point in points)):
        raise ConfigError("beside data.log only clicks are learned from, and choose", argument=Key("methods"))
    if by_labels and file.data.lists is not None and file.data.validation is None:
        needed = Option(Key("data.validation"))
        raise ConfigError((Option(Key("training.validate_on"), "labels"), " needs ", needed))
    people = []
    for index, given in enumerate(file.behaviours):
        table = dict(given)
        label = label_of(f"behaviours.{index}", table)
        people.append((label, table_of(f"behaviours.{index}", table, BEHAVIOURS, Behaviour)))
    _distinct("behaviours", [label for label, _ in people])
    for label in {label for point in points for label in point.under}:
        known(Key("under"), label, dict(people))
    labels = {arm.label: arm for arm in arms}
    baselines = file.baselines
    if baselines is None:
        baselines = [label for label, arm in labels.items() if label == "naive" or arm.points[0].ranker is None]
    return Asked(
        file=file,
        base=base,
        behaviours=dict(people),
        logger=table_of("logger", file.logger, LOGGERS),
        arms=tuple(arms),
        baselines=tuple(known(Key("baselines"), label, labels) for label in baselines),
        seeds=tuple(range(file.seeds)) if isinstance(file.seeds, int) else tuple(dict.fromkeys(file.seeds)),
    )


def _check_data(file: CompareFile) -> None:
    """One source, with all that it needs and nothing of another; clicks are simulated, or they are real."""
    data = file.data
    known(Key("data.scaled"), data.scaled, SCALINGS)
    known(Key("data.scaling"), data.scaling, SCALINGS)
    given = [key for key in ("lists", "synthetic", "log") if getattr(data, key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise ConfigError(f"give one of lists, synthetic and log; there is {found}", argument=Key("data"))
    needs = {"lists": "test", "log": "features"}.get(given[0])
    if needs and getattr(data, needs) is None:
        raise ConfigError("missing", argument=Key(f"data.{needs}"))
    homes = {"validation": ("lists",), "test": ("lists", "log")}
    homes |= dict.fromkeys(("features", "columns", "feedback", "missing_features"), ("log",))
    homes |= dict.fromkeys(("scaled", "label_scale", "only_relevant"), ("lists", "synthetic"))
    wrong = [key for key, home in homes.items() if key in data.model_fields_set and given[0] not in home]
    if wrong:
        raise ConfigError(f"cannot be given beside {given[0]}", argument=Key(f"data.{wrong[0]}"))
    if data.log is None and not file.behaviours:
        what = "missing; say how people click, or name a real log, data.log"
        raise ConfigError(what, argument=Key("behaviours"))
    simulated = [key for key in ("behaviours", "logger", *LogOptions.model_fields) if key in file.model_fields_set]
    if data.log is not None and simulated:
        what = "cannot be given beside data.log, whose clicks are real"
        raise ConfigError(what, argument=Key(simulated[0]), hint="remove one of them")


def _distinct(key: str, labels: list[str]) -> None:
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigError(f"{', '.join(twice)} is there twice; give one a label of its own", argument=Key(key))
