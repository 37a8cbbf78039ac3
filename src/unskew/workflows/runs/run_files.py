"""Run files: TOML that says what a run learns from, and how; read and checked strictly.

    out = "runs/dla"

    [data]
    log = "log.parquet"              # impressions
    features = "log.train.txt"       # of its documents: tables, or LETOR files
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
from pathlib import Path

from unskew.errors import ConfigError
from unskew.learning.fitting.training import Training
from unskew.learning.methods import LEARNERS, PACKAGES, PackageConfig
from unskew.learning.rankers import RANKERS
from unskew.settings import Table, byte_count, checked, known, read_toml, table_of
from unskew.tables.schema import required
from unskew.workflows.inputs.parts import logs_of
from unskew.workflows.runs.settings import USUAL_METHOD, DataFiles, RunFile, Settings, auto_of, suited


def run_folder(path: Path, file: RunFile, out: Path | str | None) -> Path:
    """Where a run goes: as given, else as its file says."""
    if out is None and file.out is None:
        raise ConfigError(f"{path}: out: missing; say it there, or give out=")
    return Path(os.path.normpath(path.parent / str(file.out))) if out is None else Path(out)


def read_run_file(path: Path) -> tuple[RunFile, Settings]:
    """Read and check a run file."""
    return check_run(read_toml(path), path.parent, f"{path}: ")


def with_method(content: Table, method: Table) -> Table:
    """The content of a run file with another method.

    Where it is a package, the file's ranker and the training settings that packages do not take are left out with
    the file's method.
    """
    content = content | {"method": method}
    trained = content.get("training")
    if method.get("name") in PACKAGES and isinstance(trained, dict):
        content["training"] = {name: value for name, value in trained.items() if name in PackageConfig.trains_with}
    if method.get("name") in PACKAGES:
        content.pop("ranker", None)
    return content


def check_run(content: Table, base: Path, place: str) -> tuple[RunFile, Settings]:
    """The content of a run file, checked; paths are relative to `base`, and errors begin with `place`."""
    try:
        file = checked(RunFile, content, "")
        if "name" in file.method:
            known("method.name", file.method["name"], (*LEARNERS, "auto"))
        auto = auto_of(file.method)
        method = file.method if auto is None else {"name": USUAL_METHOD}
        learner = table_of("method", method, LEARNERS).located(base)
        logs = logs_of(base, file.data)
        labels = file.data.validation is not None and logs.validation is None
        on = learner.usual_choice(labels=labels, clicks=logs.validation is not None)
        asked = suited(
            learner,
            None if file.ranker is None else table_of("ranker", file.ranker, RANKERS).located(base),
            file.data.scaling,
            checked(Training, {"validate_on": on} | file.training, "training"),
            "data.scaling",
        ).model_copy(update={"encoding": file.encoding, "auto": auto})
        check_data_files(file.data, asked)
        if asked.training.validate_on == "labels" and not labels:
            raise ConfigError('training.validate_on = "labels" needs data.validation to be labelled lists')
    except ConfigError as error:
        raise ConfigError(f"{place}{error}") from None
    return file, asked


IN_MEMORY = (
    "trees grow from a log in memory, in one process; choose another ranker, or for a package another method, for "
    "shards, counts or torchrun"
)
"""What those who grow trees are told of larger data."""


def check_data_files(data: DataFiles, asked: Settings) -> None:
    """Refuse settings of the data that exclude each other."""
    reads = asked.ranker is not None and asked.ranker.reads
    for name, given in (("log", data.log or data.counts), ("features", data.features or reads)):
        if not given:
            raise ConfigError(f"data.{name}: missing")
    for one, other in (("log", "counts"), ("shards", "memory")):
        if getattr(data, one) is not None and getattr(data, other) is not None:
            raise ConfigError(f"give data.{one} or data.{other}, not both")
    try:
        required(data.feedback)
    except ConfigError as error:
        raise ConfigError(f"data.{error}") from None
    if data.feedback is not None and data.log is None:
        raise ConfigError("data.feedback: counts have it already; name it where they are counted")
    if data.memory is not None and byte_count("data.memory", data.memory) < 2**20:
        raise ConfigError(f"data.memory: at least 1MB, not {data.memory}")
    in_shards = [name for name in ("counts", "shards", "memory") if getattr(data, name) is not None]
    if in_shards and asked.method.target == "labels":
        raise ConfigError(f"{asked.method.name} reads grades of a log in memory, not data.{in_shards[0]}")
    if in_shards and data.tracked is not None:
        raise ConfigError(f"data.tracked joins a log in memory, not data.{in_shards[0]}")
    if in_shards and reads:
        raise ConfigError(f"rankers that read take the texts of a log in memory, not data.{in_shards[0]}")
    if in_shards and asked.training.learn_from != "everything":
        raise ConfigError(f"training.learn_from takes a log in memory, not data.{in_shards[0]}")
    if in_shards and asked.fitted_by != "steps":
        raise ConfigError(f"data.{in_shards[0]}: {IN_MEMORY}")
