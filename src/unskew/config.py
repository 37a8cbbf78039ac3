"""Settings of a run, from Python arguments or from a TOML file, checked strictly.

    out = "runs/dla"

    [data]
    log = "log.parquet"              # impressions
    lists = "log.train.txt"          # features of its documents, Parquet or LETOR
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

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from unskew.checking import checked, known, named, read_toml, table_of
from unskew.clicks.scaling import SCALINGS
from unskew.errors import ConfigError
from unskew.learning.methods import METHODS, MethodConfig
from unskew.learning.rankers import RANKERS, Ranker
from unskew.learning.train import Training
from unskew.types import Lists, Log


class Settings(BaseModel):
    """What a run does with its data."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    method: SerializeAsAny[MethodConfig]
    """How bias is modelled."""
    ranker: Ranker
    """The network that scores documents."""
    scaling: str
    """How features are scaled."""
    training: Training
    """How it is trained."""


Paths = str | Annotated[tuple[str, ...], Field(strict=False)]


class DataFiles(BaseModel):
    """Where a run's data lie; relative paths are relative to the run file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    log: str | None = None
    """Impressions: a Parquet file, or a folder of them."""
    counts: str | None = None
    """In the place of a log: a folder of counts, as `unskew counts` writes it."""
    lists: Paths
    """Features of the documents: a Parquet table (or a folder of part files), or LETOR files."""
    validation: Paths | None = None
    """Labelled lists to choose weights by; without them held-out clicks choose."""
    test: Paths | None = None
    """Labelled lists to measure the result on."""
    scaling: str = "standard"
    """How features are scaled."""
    doc_ids: bool = False
    """Take document ids from the comments of the LETOR files."""
    missing_features: Literal["error", "drop"] = "error"
    """What to do with impressions whose document has no features."""
    shards: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Train from this many shards on disk, of which two are in memory at once."""
    memory: str | None = None
    """Choose the number of shards so that they take no more than this: "500MB", "2GB"."""
    shard_steps: int = Field(32, ge=1)
    """Steps before another shard is taken up."""


class RunFile(BaseModel):
    """A whole run file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    out: str
    data: DataFiles
    method: dict[str, Any] = Field(default_factory=lambda: {"name": "dla"})
    ranker: dict[str, Any] = Field(default_factory=lambda: {"name": "mlp"})
    training: dict[str, Any] = Field(default_factory=dict)


def settings(
    method: str | MethodConfig,
    ranker: str | Ranker,
    scaling: str,
    training: Training | None,
    options: Mapping[str, Any],
    validation: Lists | Log | None,
) -> Settings:
    """Settings from what `learn` was called with."""
    if training is None:
        on = {"validate_on": "labels"} if isinstance(validation, Lists) else {}
        training = checked(Training, on | dict(options), "training")
    elif options:
        raise ConfigError(f"give training= or {', '.join(options)}, not both")
    elif isinstance(validation, Lists) and "validate_on" not in training.model_fields_set:
        training = training.model_copy(update={"validate_on": "labels"})
    asked = Settings(
        method=named("method", method, METHODS) if isinstance(method, str) else method,
        ranker=named("ranker", ranker, RANKERS) if isinstance(ranker, str) else ranker,
        scaling=known("scaling", scaling, SCALINGS),
        training=training,
    )
    if training.validate_on == "clicks" and isinstance(validation, Lists):
        raise ConfigError('validate_on = "clicks" needs validation to be a log, not lists')
    if training.validate_on == "labels" and not isinstance(validation, Lists) and asked.method.target == "clicks":
        raise ConfigError('validate_on = "labels" needs validation to be labelled lists')
    return asked


def read_run_file(path: Path, *, method: str | None = None, seed: int | None = None) -> tuple[RunFile, Settings]:
    """Read and check a run file; a method or seed given here stands in for the file's."""
    content = read_toml(path)
    if method is not None:
        content["method"] = {"name": method}
    try:
        file = checked(RunFile, content, "")
        on = "labels" if file.data.validation is not None else "clicks"
        given = {} if seed is None else {"seed": seed}
        asked = Settings(
            method=table_of("method", file.method, METHODS),
            ranker=table_of("ranker", file.ranker, RANKERS),
            scaling=known("data.scaling", file.data.scaling, SCALINGS),
            training=checked(Training, {"validate_on": on} | file.training | given, "training"),
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    check_data_files(path, file.data, asked)
    if asked.training.validate_on == "labels" and file.data.validation is None:
        raise ConfigError(f'{path}: training.validate_on = "labels" needs data.validation')
    return file, asked


def check_data_files(path: Path, data: DataFiles, asked: Settings) -> None:
    """Refuse settings of the data that exclude each other."""
    if data.log is None and data.counts is None:
        raise ConfigError(f"{path}: data.log: missing")
    for one, other in (("log", "counts"), ("shards", "memory")):
        if getattr(data, one) is not None and getattr(data, other) is not None:
            raise ConfigError(f"{path}: give data.{one} or data.{other}, not both")
    if data.memory is not None and not bytes_of(data.memory) >= 2**20:
        raise ConfigError(f'{path}: data.memory: a size such as "500MB" or "2GB", not {data.memory!r}')
    in_shards = [name for name in ("counts", "shards", "memory") if getattr(data, name) is not None]
    if in_shards and asked.method.target == "labels":
        raise ConfigError(f"{path}: {asked.method.name} reads grades of a log in memory, not data.{in_shards[0]}")


def bytes_of(size: str) -> int:
    """A size in bytes; 0 where it is not one.

    >>> bytes_of("2GB"), bytes_of("0.5 MB"), bytes_of("much")
    (2147483648, 524288, 0)
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT])B", size)
    return 0 if found is None else int(float(found[1]) * 2 ** (10 * (1 + "KMGT".index(found[2]))))
