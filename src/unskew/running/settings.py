"""Settings of a run, from Python arguments or from a TOML file, checked strictly.

    out = "runs/dla"

    [data]
    log = "log.parquet"              # impressions
    features = "log.train.txt"       # features of its documents, Parquet or LETOR
    validation = "log.validation.txt"
    test = "log.test.txt"
    scaling = "standard"

    [method]
    name = "dla"

    [ranker]
    name = "mlp"
    sizes = [64, 32]

    [training]
    steps = 1000

Unknown keys, wrong types and missing values are errors that name the key and, where one is close, what was meant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from unskew.checking import Config, Table, byte_count, checked, known, named, read_toml, table_of
from unskew.clicks.lists.scaling import SCALINGS
from unskew.errors import ConfigError
from unskew.learning.fitting.training import Training, decay_for
from unskew.learning.methods import LEARNERS, PACKAGES, Learner, PackageConfig
from unskew.learning.rankers import MLP, RANKERS, DoublyRobustMLP, Linear, Ranker
from unskew.learning.rankers.trees import Growing
from unskew.types import Lists, Log


class Settings(Config):
    """What a run does with its data."""

    method: SerializeAsAny[Learner]
    """How bias is modelled."""
    ranker: Ranker | None
    """What scores documents; none where the method is a package, whose trees are its own."""
    scaling: str
    """How features are scaled."""
    training: Training
    """How it is trained."""

    @property
    def fitted_by(self) -> Literal["steps", "rounds", "package"]:
        """Whether a network takes steps, trees are grown in rounds, or a package trains."""
        return "package" if self.ranker is None else self.ranker.fitted_by

    @property
    def steps(self) -> int | None:
        """Steps of the training, or rounds where trees are grown; none where held-out clicks say when to stop."""
        grown = self.method if self.ranker is None else self.ranker
        return grown.rounds if isinstance(grown, Growing) else self.training.steps


Paths = str | Annotated[tuple[str, ...], Field(strict=False)]


class DataFiles(Config):
    """Where a run's data lie; relative paths are relative to the run file."""

    log: str | None = None
    """Impressions: a Parquet file, or a folder of them."""
    counts: str | None = None
    """In the place of a log: a folder of counts, as `unskew counts` writes it."""
    features: Paths | None = None
    """Features of the documents: a Parquet table (or a folder of part files), or LETOR files. A ranker that reads
    needs none: its documents are those of the texts, or of the log."""
    texts: Paths | None = None
    """Parquet with query_id, doc_id, query_text, title and abstract, for rankers that read; without it the columns
    of the lists, of the log, or of validation and test themselves."""
    tracked: str | None = None
    """A tracking store, as `unskew track` writes it: what was clicked before, as further features of all lists."""
    validation: Paths | None = None
    """Labelled lists to choose weights by; without them held-out clicks choose."""
    test: Paths | None = None
    """Labelled lists to measure the result on."""
    scaling: str | None = Field(None, json_schema_extra={"choices": [*SCALINGS]})
    """How features are scaled: `standard` unless given, and `none` where the method is a package."""
    doc_ids: bool = False
    """Take document ids from the comments of the LETOR files."""
    feedback: str | None = None
    """Column of the log to learn from in the place of `click`: numbers from 0, such as purchases or seconds."""
    missing_features: Literal["error", "drop"] = "error"
    """What to do with impressions whose document has no features."""
    shards: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Train from this many shards on disk, of which two are in memory at once."""
    memory: str | None = None
    """Choose the number of shards so that they take no more than this: "500MB", "2GB"."""
    shard_steps: int = Field(32, ge=1)
    """Steps before another shard is taken up."""


class RunFile(Config):
    """A whole run file."""

    out: str | None = None
    """Run folder, from the folder of the file; the command or call may name another."""
    data: DataFiles
    method: Table = Field(default_factory=lambda: Table(name="dla"))
    """How bias is modelled: the name of a method, and its settings."""
    ranker: Table | None = None
    """`mlp` unless given; a package takes none."""
    training: Table = Field(default_factory=dict)
    """How it is trained: settings of `Training`."""


def settings(
    method: str | Learner,
    ranker: str | Ranker | None,
    scaling: str | None,
    training: Training | None,
    options: Mapping[str, object],
    validation: Lists | Log | None,
) -> Settings:
    """Settings from what `learn` was called with."""
    method = named("method", method, LEARNERS) if isinstance(method, str) else method
    on = method.usual_choice(labels=isinstance(validation, Lists), clicks=validation is not None)
    if training is None:
        training = checked(Training, {"validate_on": on} | dict(options), "training")
    elif options:
        raise ConfigError(f"give training= or {', '.join(options)}, not both")
    elif "validate_on" not in training.model_fields_set:
        training = training.model_copy(update={"validate_on": on})
    ranker = named("ranker", ranker, RANKERS) if isinstance(ranker, str) else ranker
    asked = suited(method, ranker, scaling, training, "scaling")
    if training.validate_on == "clicks" and isinstance(validation, Lists):
        raise ConfigError('validate_on = "clicks" needs validation to be a log, not lists')
    if training.validate_on == "labels" and not isinstance(validation, Lists) and asked.method.target == "clicks":
        raise ConfigError('validate_on = "labels" needs validation to be labelled lists')
    return asked


def suited(method: Learner, ranker: Ranker | None, scaling: str | None, training: Training, key: str) -> Settings:
    """Settings with the ranker and scaling that suit the method, where none were given.

    A package grows its own trees on features as they are, and refuses what it would not heed.
    """
    wrong = method.refused(ranker=ranker is not None, training=frozenset(training.model_fields_set))
    if wrong is not None:
        raise ConfigError(wrong)
    ranker = MLP() if ranker is None and method.fitted_by == "ranker" else ranker
    if ranker is not None:
        usual = {"learn_from": method.usual_rows, **ranker.usual_training(training.round_at(0)[1])}.items()
        own = {name: value for name, value in usual if name not in training.model_fields_set}
        training = training.model_copy(update=own)
    scaling = known(key, method.usual_scaling if scaling is None else scaling, SCALINGS)
    if training.learn_from == "randomized" and not method.needs_clickless:
        raise ConfigError(
            f'{method.name} compares the results of a page, and learn_from = "randomized" leaves one of each; use '
            'naive with loss = "sigmoid", or approximated_dr'
        )
    return Settings(method=method, ranker=ranker, scaling=scaling, training=training)


def settled(asked: Settings, queries: int) -> Settings:
    """The settings with what follows from the data: the weight decay of a network, where none was given."""
    if asked.training.weight_decay is not None:
        return asked
    decay = decay_for(queries) if isinstance(asked.ranker, MLP | Linear | DoublyRobustMLP) else 0.0
    return asked.model_copy(update={"training": asked.training.model_copy(update={"weight_decay": decay})})


def run_folder(path: Path, file: RunFile, out: Path | str | None) -> Path:
    """Where a run goes: as given, else as its file says."""
    if out is None and file.out is None:
        raise ConfigError(f"{path}: out: missing; say it there, or give out=")
    return Path(os.path.normpath(path.parent / str(file.out))) if out is None else Path(out)


def read_run_file(path: Path, *, method: str | None = None, seed: int | None = None) -> tuple[RunFile, Settings]:
    """Read and check a run file; a method or seed given here stands in for the file's.

    Where the method given here is a package, the file's ranker and the training settings that packages do not take
    are left out with the file's method.
    """
    content = read_toml(path)
    if method is not None:
        content["method"] = {"name": method}
    try:
        file = checked(RunFile, content, "")
        if method in PACKAGES:
            taken = {name: value for name, value in file.training.items() if name in PackageConfig.trains_with}
            file = file.model_copy(update={"ranker": None, "training": taken})
        learner = table_of("method", file.method, LEARNERS).located(path.parent)
        on = learner.usual_choice(labels=file.data.validation is not None)
        given = {} if seed is None else {"seed": seed}
        asked = suited(
            learner,
            None if file.ranker is None else table_of("ranker", file.ranker, RANKERS).located(path.parent),
            file.data.scaling,
            checked(Training, {"validate_on": on} | file.training | given, "training"),
            "data.scaling",
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    check_data_files(path, file.data, asked)
    if asked.training.validate_on == "labels" and file.data.validation is None:
        raise ConfigError(f'{path}: training.validate_on = "labels" needs data.validation')
    return file, asked


IN_MEMORY = (
    "trees grow from a log in memory, in one process; choose another ranker, or for a package another method, for "
    "shards, counts or torchrun"
)
"""What those who grow trees are told of larger data."""


def check_data_files(path: Path, data: DataFiles, asked: Settings) -> None:
    """Refuse settings of the data that exclude each other."""
    reads = asked.ranker is not None and asked.ranker.reads
    for name, given in (("log", data.log or data.counts), ("features", data.features or reads)):
        if not given:
            raise ConfigError(f"{path}: data.{name}: missing")
    for one, other in (("log", "counts"), ("shards", "memory")):
        if getattr(data, one) is not None and getattr(data, other) is not None:
            raise ConfigError(f"{path}: give data.{one} or data.{other}, not both")
    if data.feedback is not None and data.log is None:
        raise ConfigError(f"{path}: data.feedback: counts have it already; name it where they are counted")
    if data.memory is not None and byte_count(f"{path}: data.memory", data.memory) < 2**20:
        raise ConfigError(f"{path}: data.memory: at least 1MB, not {data.memory}")
    in_shards = [name for name in ("counts", "shards", "memory") if getattr(data, name) is not None]
    if in_shards and asked.method.target == "labels":
        raise ConfigError(f"{path}: {asked.method.name} reads grades of a log in memory, not data.{in_shards[0]}")
    if in_shards and data.tracked is not None:
        raise ConfigError(f"{path}: data.tracked joins a log in memory, not data.{in_shards[0]}")
    if in_shards and reads:
        raise ConfigError(f"{path}: rankers that read take the texts of a log in memory, not data.{in_shards[0]}")
    if in_shards and asked.training.learn_from != "everything":
        raise ConfigError(f"{path}: training.learn_from takes a log in memory, not data.{in_shards[0]}")
    if in_shards and asked.fitted_by != "steps":
        raise ConfigError(f"{path}: data.{in_shards[0]}: {IN_MEMORY}")
