"""A run as it is asked for: by a run file, by arguments, or by both; its content, checked once, and written.

`examples/run.toml` is a run file. Arguments stand over what a file says, and every key of a run file can be set:
training.batch=256. Unknown keys, wrong types and missing values are errors that name the key, or the argument that
said it.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from unskew.errors import ConfigError, Key, Option, parts_of
from unskew.learning.fitting.training import Training
from unskew.learning.methods import LEARNERS, PACKAGES, Learner, PackageConfig, found_as
from unskew.learning.rankers import RANKERS, Ranker
from unskew.learning.rankers.trees import Growing
from unskew.names import KEYS, Names
from unskew.options.runs import RUN_KEYS, Beginning, DataFiles
from unskew.settings import Table, byte_count, checked, known, read_toml, table_of
from unskew.tables.features.encoding import EncodingRules
from unskew.tables.features.features import several
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.schema import required
from unskew.types import Lists, Log
from unskew.workflows.runs.settings import IN_MEMORY, USUAL_METHOD, Auto, RunFile, Settings, suited
from unskew.workflows.runs.sources import RunSources, in_files

GIVEN = ("features", "validation", "test")
"""Keys whose values may be files or data in memory."""
PATHS = ("log", "counts", "features", "texts", "tracked", "validation", "test")
"""Keys of [data] that name files."""
ARGUMENTS = {key: Option(name) for name, key in RUN_KEYS.items()}
"""What says a key where there is no run file."""


@dataclass(frozen=True)
class Request:
    """A run as it was asked for, checked."""

    file: RunFile
    settings: Settings
    sources: RunSources
    """What it learns from, is chosen by and measured on."""
    base: Path = Path()
    """What the paths of the file are relative to."""
    source: Path | None = None
    """The run file, or the log; None where the data are in memory."""

    def place(self, out: Path | str | None) -> Path | None:
        """Where the run goes, if anywhere: as given, else as its file says."""
        if out is not None:
            return Path(out)
        return None if self.file.out is None else Path(os.path.normpath(self.base / self.file.out))

    def folder(self, out: Path | str | None) -> Path:
        """The folder that the run goes to; an error where neither the run file nor an argument names one."""
        place = self.place(out)
        if place is not None:
            return place
        if self.source is not None and self.source.suffix == ".toml":
            hint = ("say it there, or give ", Option("out"))
            raise ConfigError("missing", path=self.source, argument=Key("out"), hint=hint)
        raise ConfigError("missing", argument="out", hint="say where the run is to be written")

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
        some = {
            name: {key: value for key, value in table.items() if value is not None}
            for name, table in tables.items()
        }
        begun = {"engine": file.engine} if "engine" in file.model_fields_set else {}
        return tomli_w.dumps(begun | {name: table for name, table in some.items() if table})


def ask(
    source: Any,
    method: str | Learner | Auto | None = None,
    ranker: str | Ranker | None = None,
    *,
    encoding: EncodingRules | None = None,
    training: Training | None = None,
    options: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
    **said: Any,
) -> Request:
    """A run from a run file (a name that ends in .toml), from a log, or of data in memory, checked.

    `said` are arguments of `learn` that say a key of a run file (`RUN_KEYS`). `options` are keys of [training];
    `settings` are any keys, {"method.max_weight": 20}. Paths given here are relative to the working folder.
    """
    if training is not None and options:
        raise ConfigError(("give ", Option("training"), f" or {', '.join(options)}, not both"))
    given = {name: said.pop(name, None) for name in GIVEN}
    place = Path(source) if isinstance(source, str | Path) else None
    from_file = place is not None and place.suffix == ".toml"
    in_memory = place is None or not in_files(*given.values())
    tables: Table = {"data": {}}
    if in_memory:
        _check_tables(source, given, said)
    elif place is not None:
        tables = read_toml(place) if from_file else {"data": {"log": str(place)}}
        if not from_file and not said.get("columns") and given["features"] is not None:
            said["columns"] = Names.of(None, place).only(KEYS)  # tables of features are likely to use them, too
        at = os.path.abspath if from_file else str  # the file may lie elsewhere
        said |= {name: [at(path) for path in several(files)] for name, files in given.items() if files is not None}
    asked = _Content(tables)
    asked.name("method", method)
    asked.name("ranker", ranker)
    for name, value in said.items():
        if value not in (None, (), {}):
            asked.say(RUN_KEYS[name], dict(value) if isinstance(value, Mapping) else value, Option(name))
    trained = dict(options or {}) if training is None else training.model_dump(exclude_unset=True)
    for name, setting in trained.items():
        asked.say(asked.rounds if name == "steps" else f"training.{name}", setting, Option(name))
    rules = {} if encoding is None else encoding.model_dump(exclude_unset=True)
    for key, setting in [*((f"encoding.{name}", rule) for name, rule in rules.items()), *(settings or {}).items()]:
        asked.say(key, setting, Option("settings", key))
    try:
        base = place.parent if from_file and place is not None else Path()
        return _checked(asked, base, None if in_memory else place, {"log": source, **given})
    except ConfigError as error:
        error.path = place if from_file and error.path is None else error.path
        tell_as_said(error, asked.said if from_file else ARGUMENTS | asked.said)
        raise


def _check_tables(log: object, given: dict[str, Any], said: dict[str, Any]) -> None:
    """Refuse data in memory beside a run file, or beside a log that has them, and columns that no table has."""
    if isinstance(log, str | Path) and Path(log).suffix == ".toml":
        named = [part for name in GIVEN for part in (", ", Option(name))][1:]
        raise ConfigError((f"{log}: a run file takes files: name them in ", *named))
    if isinstance(log, Log):
        for name in ("features", "feedback"):
            if (given | said).get(name) is not None:
                raise ConfigError("the log has it already; give it where the log is read", argument=name)
    each = [one for some in (log, *given.values()) for one in several(some)]
    tables = [one for one in each if not (one is None or isinstance(one, Lists | Log))]
    if tables and all(is_frame(one) for one in tables):
        Names.of(said.get("columns")).check_some(arrow_table(one) for one in tables)


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
            name = found_as(given) if isinstance(given, Learner) else given.name
            table = {**given.model_dump(mode="json", exclude_unset=True), "name": name}
            self.kinds[key] |= {name: type(given)}
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


def _checked(asked: _Content, base: Path, source: Path | None, given: Mapping[str, Any]) -> Request:
    """The content of a run, checked; `given` are data in memory, where there is no `source` in files."""
    file = checked(RunFile, asked.tables, "")
    if "name" in file.method and ":" not in str(file.method["name"]):
        known(Key("method.name"), file.method["name"], (*asked.kinds["method"], "auto"))
    auto = checked(Auto, file.method, "method") if file.method.get("name") == "auto" else None
    if auto is not None and file.ranker is not None:
        auto = auto.model_copy(update={"rankers": ()})
    table = file.method if auto is None else {"name": USUAL_METHOD}
    method: Learner = table_of("method", table, asked.kinds["method"], Learner).located(base)
    ranker = None if file.ranker is None else table_of("ranker", file.ranker, asked.kinds["ranker"]).located(base)
    reads = ranker is not None and ranker.reads
    if source is None:
        factors = () if auto is None else auto.factors
        keep = (*factors, *getattr(method, "serp", ()), *getattr(method, "averages", ()))
        sources = RunSources.of(given, file.data, reads=reads, keep=keep)
    else:
        sources = RunSources.of_files(file.data, base, reads=reads)
    clicks = sources.is_log("validation")
    labels = sources.validation is not None and not clicks
    on = method.usual_choice(labels=labels, clicks=clicks)
    training = checked(Training, {"validate_on": on} | file.training, "training")
    settings = suited(method, ranker, file.data.scaling, training, Key("data.scaling"))
    engine: Beginning = file.engine if method.target == "clicks" else "none"
    settings = settings.model_copy(update={"encoding": file.encoding, "auto": auto, "engine": engine})
    if source is not None:
        check_data_files(file.data, settings)
    chosen = Option(Key("training.validate_on"), training.validate_on)
    if training.validate_on == "labels" and not labels and method.target == "clicks":
        raise ConfigError((chosen, " needs ", Option(Key("data.validation")), " to be labelled lists"))
    if training.validate_on == "clicks" and source is None and labels:
        raise ConfigError((chosen, " needs ", Option("validation"), " to be a log, not lists"))
    return Request(file, settings, sources, base, source)


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
