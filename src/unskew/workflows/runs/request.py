"""A run as it is asked for: by a run file, by arguments, or by both; its content, checked once, and written.

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

Arguments stand over what a file says, and every key of a run file can be set: training.batch=256. Unknown keys,
wrong types and missing values are errors that name the key, or the argument that said it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from unskew.errors import ConfigError, Key, Option, parts_of
from unskew.learning.fitting.training import Training
from unskew.learning.methods import LEARNERS, PACKAGES, Learner, PackageConfig
from unskew.learning.rankers import RANKERS, Ranker
from unskew.learning.rankers.trees import Growing
from unskew.names import KEYS, Names
from unskew.settings import Table, byte_count, checked, known, read_toml, table_of
from unskew.tables.schema import required
from unskew.types import Lists, Log
from unskew.workflows.inputs.parts import is_log, log_parts
from unskew.workflows.runs.settings import (
    IN_MEMORY,
    USUAL_METHOD,
    Auto,
    DataFiles,
    Paths,
    RunFile,
    Settings,
    auto_of,
    suited,
)

Files = str | Path | Sequence[str | Path]
PATHS = ("log", "counts", "features", "texts", "tracked", "validation", "test")
"""Keys of [data] that name files."""
ARGUMENTS = {f"data.{name}": Option(name) for name in ("features", "validation", "test", "scaling", "feedback")}
"""What says a key where there is no run file."""


@dataclass(frozen=True)
class RunLogs:
    """The logs of a run."""

    train: Path | None = None
    """What is learned from; None where counts are, or data in memory."""
    validation: Path | None = None
    """Whose clicks choose weights; None where labelled lists or pages of `train` do."""
    test: Path | None = None
    """Whose clicks say where the run stands; None where held-out ones do."""

    def __str__(self) -> str:
        train, validation, test = (
            None if path is None else os.path.normpath(path) for path in (self.train, self.validation, self.test)
        )
        said = [f"learning from {train}"]
        said += [] if validation is None else [f"clicks of {validation} choose the weights"]
        said += [] if test is None else [f"clicks of {test} say where it stands"]
        return ", ".join(said)


def logs_of(base: Path, data: DataFiles) -> RunLogs:
    """The logs among the files of a run, whose paths are relative to `base`: as named, or the parts of a split."""
    place = None if data.log is None else base / data.log
    parts = {} if place is None else log_parts(place)
    others = {
        name: parts.get(name) if given is None else _as_log(name, base, given, data.columns)
        for name, given in (("validation", data.validation), ("test", data.test))
    }
    return RunLogs(parts.get("train", place), **others)


def _as_log(name: str, base: Path, given: Paths, columns: Mapping[str, str]) -> Path | None:
    """The path where it is one of a log; None where lists are named."""
    paths = [base / path for path in ([given] if isinstance(given, str) else given)]
    logs = [path for path in paths if is_log(path, columns)]
    if logs and len(paths) > 1:
        raise ConfigError(f"{logs[0]} is a log, and one log is all that it takes", argument=Key(f"data.{name}"))
    return logs[0] if logs else None


@dataclass(frozen=True)
class Request:
    """A run as it was asked for, checked."""

    file: RunFile
    settings: Settings
    logs: RunLogs = RunLogs()
    base: Path = Path()
    """What the paths of the file are relative to."""
    source: Path | None = None
    """The run file, or the log; None where the data are in memory."""
    said: Mapping[str, Option] = field(default_factory=dict)
    """The arguments that said keys."""

    def place(self, out: Path | str | None) -> Path | None:
        """Where the run goes, if anywhere: as given, else as its file says."""
        if out is not None:
            return Path(out)
        return None if self.file.out is None else Path(os.path.normpath(self.base / self.file.out))

    def folder(self, out: Path | str | None) -> Path:
        """Where the run goes; an error where nobody says."""
        place = self.place(out)
        if place is None and self.source is not None and self.source.suffix == ".toml":
            hint = ("say it there, or give ", Option("out"))
            raise ConfigError("missing", path=self.source, argument=Key("out"), hint=hint)
        if place is None:
            raise ConfigError("missing", argument="out", hint="say where the run is to be written")
        return place

    def toml(self, folder: Path) -> str:
        """A run file with paths from the run folder that it lies in; `out` is left to who runs it again."""
        file, asked = self.file, self.settings

        def moved(path: str | Path) -> str:
            return os.path.relpath(os.path.abspath(path), os.path.abspath(folder))

        data = file.data.model_dump(mode="json", exclude_unset=True)
        for name in set(PATHS) & set(data):
            one = isinstance(data[name], str)
            data[name] = moved(self.base / data[name]) if one else [moved(self.base / each) for each in data[name]]
        tables: dict[str, Table] = {"data": data, "method": file.method, "ranker": file.ranker or {}}
        for name, config in (("method", asked.method), ("ranker", asked.ranker)):
            found = {} if config is None else config.model_dump(mode="json")
            for key, value in tables[name].items():
                if isinstance(value, str) and found.get(key, value) != value:  # a file, found from the base
                    tables[name] = tables[name] | {key: moved(str(found[key]))}
        tables["training"] = {"seed": asked.training.seed, **file.training}
        tables |= {"auto": file.auto, "encoding": file.encoding.model_dump(mode="json", exclude_unset=True)}
        some = {name: _without_none(table) for name, table in tables.items()}
        return tomli_w.dumps({name: table for name, table in some.items() if table})


def _without_none(table: Mapping[str, Any]) -> Table:
    return {key: value for key, value in table.items() if value is not None}


def ask(
    source: str | Path | None,
    *,
    features: Files | None = None,
    method: str | Learner | Auto | None = None,
    ranker: str | Ranker | None = None,
    scaling: str | None = None,
    validation: Files | Lists | Log | None = None,
    test: Files | None = None,
    columns: Mapping[str, str] | None = None,
    feedback: str | None = None,
    factors: Sequence[str] = (),
    training: Training | None = None,
    options: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Request:
    """A run from a run file (a name that ends in .toml), from a log, or of data in memory (None), checked.

    `options` are keys of [training]; `settings` are any keys, {"method.max_weight": 20}. Paths given here are
    relative to the working folder.
    """
    if training is not None and options:
        raise ConfigError(("give ", Option("training"), f" or {', '.join(options)}, not both"))
    place = None if source is None else Path(source)
    from_file = place is not None and place.suffix == ".toml"
    given = {} if place is None else {"log": str(place)}
    asked = _Content(read_toml(place) if place is not None and from_file else {"data": given})
    asked.name("method", method)
    asked.name("ranker", ranker)
    if place is not None and not from_file and not columns and features is not None:
        columns = Names.of(None, place).only(KEYS)  # what tables of features are likely to call them, too
    held = None if isinstance(validation, Lists | Log) else validation
    for name, files in (("features", features), ("validation", held), ("test", test)):
        if files is not None:
            asked.say(f"data.{name}", _paths(files, here=not from_file), Option(name))
    for name, value in (("scaling", scaling), ("feedback", feedback), ("columns", dict(columns or {}) or None)):
        if value is not None:
            asked.say(f"data.{name}", value, Option(name))
    if factors:
        asked.say("method.factors", list(factors), Option("factors"))
    trained = dict(options or {}) if training is None else training.model_dump(exclude_unset=True)
    for name, setting in trained.items():
        asked.say(asked.rounds if name == "steps" else f"training.{name}", setting, Option(name))
    for key, setting in (settings or {}).items():
        asked.say(key, setting, Option("settings", key))
    try:
        found = _checked(asked, Path() if place is None or not from_file else place.parent, validation, place)
    except ConfigError as error:
        error.path = place if from_file and error.path is None else error.path
        tell_as_said(error, asked.said if from_file else ARGUMENTS | asked.said)
        raise
    return found


class _Content:
    """What a run file says, or would say, and which argument said it in its place."""

    def __init__(self, tables: Table) -> None:
        self.tables = dict(tables)
        self.said: dict[str, Option] = {}
        self.kinds: dict[str, dict[str, type[Any]]] = {"method": {**LEARNERS}, "ranker": {**RANKERS}}
        """What names stand for; a config that was given stands for its own."""

    def name(self, key: str, given: str | Learner | Auto | Ranker | None) -> None:
        """Another method or ranker, by its name or as a config.

        Where the method is a package, the file's ranker and the training settings that packages do not take are
        left out with the file's method.
        """
        if given is None:
            return
        if isinstance(given, str):
            table: Table = {"name": given}
        else:
            table = {"name": given.name, **given.model_dump(mode="json", exclude_unset=True)}
            self.kinds[key] |= {given.name: type(given)}
        self.tables[key] = table
        self.said[f"{key}.name"] = Option(key)
        if key == "ranker":
            self.said[key] = Option(key)
        if table["name"] in PACKAGES:
            trained = self.tables.get("training")
            if isinstance(trained, dict):
                kept = {name: value for name, value in trained.items() if name in PackageConfig.trains_with}
                self.tables["training"] = kept
            self.tables.pop("ranker", None)

    def say(self, key: str, value: object, argument: Option) -> None:
        """Set a key such as training.steps; tables on the way are made, a method or ranker with its usual name."""
        self.said[key] = argument
        *tables, last = key.split(".")
        usual = {"method": {"name": USUAL_METHOD}, "ranker": {"name": "mlp"}}
        at: Any = self.tables
        for name in tables:
            inside = at.get(name, usual.get(name, {}) if at is self.tables else {})
            if not isinstance(inside, dict):
                return  # the check of the whole says that it must be a table
            at[name] = dict(inside)
            at = at[name]
        if not last or not all(tables):
            raise ConfigError(
                'name a key as run files do, such as "training.batch"', argument="settings", value=key
            )
        at[last] = value

    @property
    def rounds(self) -> str:
        """The key of a number of steps: trees are grown in rounds."""
        for key, growing in (("method", PACKAGES), ("ranker", RANKERS)):
            table = self.tables.get(key)
            kind = growing.get(str(table.get("name"))) if isinstance(table, dict) else None
            if kind is not None and issubclass(kind, Growing):
                return f"{key}.rounds"
        return "training.steps"


def _paths(files: Files, *, here: bool) -> list[str]:
    """Paths as they were given; whole ones where a run file lies elsewhere."""
    several = [files] if isinstance(files, str | Path) else list(files)
    return [str(path) if here else os.path.abspath(path) for path in several]


def parse_setting(text: str) -> tuple[str, object]:
    """Key and value of table.key=value; a value that is no TOML is a text.

    >>> parse_setting("training.batch=256"), parse_setting("ranker.sizes=[64, 32]"), parse_setting("out=runs/a")
    (('training.batch', 256), ('ranker.sizes', [64, 32]), ('out', 'runs/a'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            'write it as table.key=value, such as "training.batch=256"', argument="settings", value=text
        )
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def tell_as_said(error: ConfigError, said: Mapping[str, Option]) -> None:
    """Let an error of a run file's key speak of the argument that said the key.

    >>> error = ConfigError("too few", argument=Key("training.steps"), path="run.toml")
    >>> tell_as_said(error, {"training.steps": Option("steps")})
    >>> str(error)
    'steps=: too few'
    """
    for key in sorted(said, key=len, reverse=True):
        if error.argument is not None and f"{error.argument}.".startswith(f"{key}."):
            inside = error.argument[len(key) + 1 :]
            error.message = (f"{inside}: " * bool(inside), *parts_of(error.message))
            error.argument, error.value, error.path = said[key].name, said[key].value, None
            return


# ---- the one check


def _checked(asked: _Content, base: Path, validation: object, source: Path | None) -> Request:
    """The content of a run, checked; `validation` tells what data in memory are chosen by."""
    file = checked(RunFile, asked.tables, "")
    if "name" in file.method:
        known(Key("method.name"), file.method["name"], (*asked.kinds["method"], "auto"))
    auto = auto_of(file.method)
    table = file.method if auto is None else {"name": USUAL_METHOD}
    method: Learner = table_of("method", table, asked.kinds["method"]).located(base)
    ranker = None if file.ranker is None else table_of("ranker", file.ranker, asked.kinds["ranker"]).located(base)
    logs = RunLogs() if source is None else logs_of(base, file.data)
    clicks = logs.validation is not None or isinstance(validation, Log)
    labels = isinstance(validation, Lists) or (file.data.validation is not None and not clicks)
    on = method.usual_choice(labels=labels, clicks=clicks)
    training = checked(Training, {"validate_on": on} | file.training, "training")
    settings = suited(method, ranker, file.data.scaling, training, Key("data.scaling"))
    settings = settings.model_copy(update={"encoding": file.encoding, "auto": auto})
    if source is not None:
        check_data_files(file.data, settings)
    chosen = Option(Key("training.validate_on"), training.validate_on)
    if training.validate_on == "labels" and not labels and method.target == "clicks":
        raise ConfigError((chosen, " needs ", Option(Key("data.validation")), " to be labelled lists"))
    if training.validate_on == "clicks" and isinstance(validation, Lists):
        raise ConfigError((chosen, " needs ", Option("validation"), " to be a log, not lists"))
    return Request(file, settings, logs, base, source, asked.said)


def check_data_files(data: DataFiles, asked: Settings) -> None:
    """Refuse settings of the data that exclude each other."""
    reads = asked.ranker is not None and asked.ranker.reads
    for name, given in (("log", data.log or data.counts), ("features", data.features or reads)):
        if not given:
            raise ConfigError("missing", argument=Key(f"data.{name}"))
    for one, other in (("log", "counts"), ("shards", "memory")):
        if getattr(data, one) is not None and getattr(data, other) is not None:
            raise ConfigError(f"give data.{one} or data.{other}, not both")
    try:
        required(data.feedback)
    except ConfigError as error:
        error.argument, error.value = Key("data.feedback"), None
        raise
    if data.feedback is not None and data.log is None:
        raise ConfigError("counts have it already; name it where they are counted", argument=Key("data.feedback"))
    if data.memory is not None and byte_count(Key("data.memory"), data.memory) < 2**20:
        raise ConfigError(f"at least 1MB, not {data.memory}", argument=Key("data.memory"))
    on_disk = next((name for name in ("counts", "shards", "memory") if getattr(data, name) is not None), None)
    if on_disk is None:
        return
    for wrong, what in (
        (asked.method.target == "labels", f"{asked.method.name} reads grades of a log in memory, not "),
        (data.tracked is not None, "data.tracked joins a log in memory, not "),
        (reads, "rankers that read take the texts of a log in memory, not "),
        (asked.training.learn_from != "everything", "training.learn_from takes a log in memory, not "),
    ):
        if wrong:
            raise ConfigError(f"{what}data.{on_disk}")
    if asked.fitted_by != "steps":
        raise ConfigError(IN_MEMORY, argument=Key(f"data.{on_disk}"))
