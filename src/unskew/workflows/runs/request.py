"""A run asked for without a run file, or with other settings than its file's: its content, made and written.

What is said in arguments stands over what a file says. Every key of a run file can be set, training.batch=256 and
errors name the argument that said it. The content goes into the run folder as run.toml, which can be run again.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError
from unskew.learning.fitting.training import Training
from unskew.learning.methods import LEARNERS, PACKAGES, Learner, PackageConfig
from unskew.learning.rankers import RANKERS, Ranker
from unskew.learning.rankers.trees import Growing
from unskew.names import KEYS, Names
from unskew.settings import Table, byte_count, checked, known, read_toml, table_of
from unskew.tables.schema import required
from unskew.workflows.inputs.parts import logs_of
from unskew.workflows.runs.settings import USUAL_METHOD, Auto, DataFiles, RunFile, Settings, auto_of, suited

# ---- Run files: TOML that says what a run learns from, and how; read and checked strictly


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


# ----


Files = str | Path | Sequence[str | Path]
PATHS = ("log", "counts", "features", "texts", "tracked", "validation", "test")
"""Keys of [data] that name files."""
ARGUMENTS = {f"data.{name}": f"{name}=" for name in ("features", "validation", "test", "scaling", "feedback")}
"""What says a key where there is no run file."""


@dataclass(frozen=True)
class Request:
    """A run as it was asked for, checked."""

    file: RunFile
    settings: Settings
    base: Path
    """What the paths of the file are relative to."""
    source: Path
    """The run file, or the log."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Keys that arguments said, by their names."""

    def place(self, out: Path | str | None) -> Path | None:
        """Where the run goes, if anywhere."""
        return None if out is None and self.file.out is None else self.folder(out)

    def folder(self, out: Path | str | None) -> Path:
        """Where the run goes; an error where nobody says."""
        if out is None and self.file.out is None and self.source.suffix != ".toml":
            raise ConfigError("out=: missing; say where the run is to be written")
        return run_folder(self.source, self.file, out)


def ask(
    source: str | Path,
    *,
    features: Files | None = None,
    method: str | Learner | Auto | None = None,
    ranker: str | Ranker | None = None,
    scaling: str | None = None,
    validation: Files | None = None,
    test: Files | None = None,
    columns: Mapping[str, str] | None = None,
    feedback: str | None = None,
    factors: Sequence[str] = (),
    training: Training | None = None,
    options: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Request:
    """A run from a run file (a name that ends in .toml) or from a log, with what else was said.

    `options` are keys of [training]; `settings` are any keys, {"method.max_weight": 20}. Paths given here are
    relative to the working folder.
    """
    source = Path(source)
    from_file = source.suffix == ".toml"
    content: Table = read_toml(source) if from_file else {"data": {"log": str(source)}}
    base = source.parent if from_file else Path()
    said: dict[str, str] = {}

    def say(key: str, value: object, argument: str) -> None:
        put(content, key, value)
        said[key] = argument

    if method is not None:
        content = with_method(content, {"name": method} if isinstance(method, str) else _table(method))
        said["method.name"] = "method="
    if ranker is not None:
        content["ranker"] = {"name": ranker} if isinstance(ranker, str) else _table(ranker)
        said |= {"ranker.name": "ranker=", "ranker": "ranker="}
    if not from_file and not columns and features is not None:
        columns = remembered(source)
    for name, files in (("features", features), ("validation", validation), ("test", test)):
        if files is not None:
            say(f"data.{name}", _paths(files, here=not from_file), f"{name}=")
    for name, value in (("scaling", scaling), ("feedback", feedback), ("columns", dict(columns or {}) or None)):
        if value is not None:
            say(f"data.{name}", value, f"{name}=")
    if factors:
        say("method.factors", list(factors), "factors=")
    trained = ({} if training is None else training.model_dump(exclude_unset=True)) | dict(options or {})
    for name, setting in trained.items():
        say(_rounds(content) if name == "steps" else f"training.{name}", setting, f"{name}=")
    for key, setting in (settings or {}).items():
        say(key, setting, f"settings={key}")
    try:
        file, asked = check_run(content, base, f"{source}: " if from_file else "")
    except ConfigError as error:
        known = said if from_file else ARGUMENTS | said
        raise ConfigError(as_said(str(error), known, f"{source}: ")) from None
    return Request(file, asked, base, source, said)


def remembered(log: Path) -> dict[str, str]:
    """What queries and documents were called when the log was ingested, for tables of features."""
    return Names.of(None, log).only(KEYS)


def put(content: Table, key: str, value: object) -> None:
    """Set a key such as training.steps; the tables on the way are made, a method or ranker with its usual name."""
    *tables, last = key.split(".")
    usual = {"method": {"name": USUAL_METHOD}, "ranker": {"name": "mlp"}}
    at: Any = content
    for name in tables:
        inside = at.get(name, usual.get(name, {}) if at is content else {})
        if not isinstance(inside, dict):
            return  # the check of the whole says that it must be a table
        at[name] = dict(inside)
        at = at[name]
    if not last or not all(tables):
        raise ConfigError(f'settings={key}: name a key as run files do, such as "training.batch"')
    at[last] = value


def parse_setting(text: str) -> tuple[str, object]:
    """Key and value of table.key=value; a value that is no TOML is a text.

    >>> parse_setting("training.batch=256"), parse_setting("ranker.sizes=[64, 32]"), parse_setting("out=runs/a")
    (('training.batch', 256), ('ranker.sizes', [64, 32]), ('out', 'runs/a'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f'settings={text}: write it as table.key=value, such as "training.batch=256"')
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def as_said(message: str, said: Mapping[str, str], place: str) -> str:
    """An error of a run file in the words of who said the key in arguments.

    >>> as_said("run.toml: training.steps: too few", {"training.steps": "steps="}, "run.toml: ")
    'steps=: too few'
    """
    plain = message.removeprefix(place)
    for key in sorted(said, key=len, reverse=True):
        told = re.sub(rf"^{re.escape(key)}(?=[:. ])", said[key], plain)
        if told != plain:
            return told
    return message


def _table(config: Learner | Auto | Ranker) -> Table:
    return {"name": config.name, **config.model_dump(mode="json", exclude_unset=True)}


def _paths(files: Files, *, here: bool) -> list[str]:
    """Paths as they were given; whole ones where a run file lies elsewhere."""
    several = [files] if isinstance(files, str | Path) else list(files)
    return [str(path) if here else os.path.abspath(path) for path in several]


def _rounds(content: Mapping[str, object]) -> str:
    """Where a number of steps goes: trees are grown in rounds."""
    for key, growing in (("method", PACKAGES), ("ranker", RANKERS)):
        table = content.get(key)
        kind = growing.get(str(table.get("name"))) if isinstance(table, dict) else None
        if kind is not None and issubclass(kind, Growing):
            return f"{key}.rounds"
    return "training.steps"


# ---- written ----


def run_toml(base: Path, file: RunFile, asked: Settings, folder: Path) -> str:
    """A run file with paths from the run folder that it lies in; `out` is left to who runs it again."""

    def moved(path: str | Path) -> str:
        return os.path.relpath(os.path.abspath(path), os.path.abspath(folder))

    data = file.data.model_dump(mode="json", exclude_unset=True)
    for name in set(PATHS) & set(data):
        one = isinstance(data[name], str)
        data[name] = moved(base / data[name]) if one else [moved(base / each) for each in data[name]]
    tables: dict[str, Table] = {"data": data, "method": file.method, "ranker": file.ranker or {}}
    for name, config in (("method", asked.method), ("ranker", asked.ranker)):
        found = {} if config is None else config.model_dump(mode="json")
        for key, value in tables[name].items():
            if (
                isinstance(value, str) and found.get(key, value) != value
            ):  # a file, found from the folder of the run file
                tables[name] = tables[name] | {key: moved(str(found[key]))}
    tables["training"] = {"seed": asked.training.seed, **file.training}
    tables["auto"] = file.auto
    tables["encoding"] = file.encoding.model_dump(mode="json", exclude_unset=True)
    return "\n".join(_lines(name, table) for name, table in tables.items() if table)


def _lines(name: str, table: Mapping[str, Any]) -> str:
    """A table of TOML, tables within it inline."""
    some = {key: value for key, value in table.items() if value is not None}
    return f"[{name}]\n" + "".join(f"{_key(key)} = {_value(value)}\n" for key, value in some.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
