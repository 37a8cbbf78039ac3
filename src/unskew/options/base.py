"""How a verb's options are declared: a model with a field for each, its default, its sentence and its bounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypedDict, TypeVar

from pydantic import ConfigDict, Field
from pydantic.fields import FieldInfo

from unskew.settings import Config, checked

Given = ParamSpec("Given")
Made = TypeVar("Made")


class VerbOptions(Config):
    """What a verb can be told; the class's sentence is the help of its command."""

    model_config = ConfigDict(use_attribute_docstrings=False, strict=False, defer_build=True)

    def given(self, *but: str) -> dict[str, Any]:
        """The options as keyword arguments, without those that say nothing."""
        said = {name: getattr(self, name) for name in type(self).model_fields if name not in but}
        return {name: value for name, value in said.items() if value is not None}

    @classmethod
    def check(cls, **said: object) -> None:
        """Refuse numbers that are outside of the bounds that these options have."""
        fields = cls.model_fields
        needed: dict[str, object] = {name: None for name, field in fields.items() if field.is_required()}
        numbers = {name: each for name, each in said.items() if name in fields and isinstance(each, int | float)}
        checked(cls, needed | numbers, None)

    @classmethod
    def checks(cls, verb: Callable[Given, Made]) -> Callable[Given, Made]:
        """The verb, whose arguments are checked before it begins."""

        @wraps(verb)
        def run(*given: Given.args, **named: Given.kwargs) -> Made:
            cls.check(**named)
            return verb(*given, **named)

        return run


@dataclass(frozen=True)
class Typed:
    """What is typed for an option that Python takes in several forms."""

    kind: Any
    """The type of the words behind the flag."""


@dataclass(frozen=True)
class Flag:
    """How the command line shows an option."""

    names: tuple[str, ...] = ()
    """The flag, where it is not called as the field is; the first one is the usual one."""
    metavar: str | None = None
    positional: bool = False
    known: tuple[str, ...] = ()
    """What a shell completes."""
    table: str | None = None
    """The table of names that a shell completes, as methods."""
    key: str | None = None
    """The key of a run file that it says, as data.features."""


Place = Annotated[Any, Typed(Path)]
"""A file or folder; Python takes what is in memory as well."""
Text = Annotated[Any, Typed(str)]
"""A name or a place that may be something else than a file."""
Files = Annotated[Any, Typed(list[str])]
"""Files; Python takes a table or one file as well."""
Paths = str | Annotated[tuple[str, ...], Field(strict=False)]
"""One path or several in a TOML file."""
Names = Annotated[tuple[str, ...], Typed(list[str])]
"""Names, one for each time that the flag is given."""


def option(
    default: Any,
    about: str,
    *,
    flag: str | tuple[str, ...] = (),
    metavar: str | None = None,
    known: tuple[str, ...] = (),
    table: str | None = None,
    key: str | None = None,
    **bounds: float,
) -> Any:
    """A field: its default (... where one must be given), its sentence, and bounds as of pydantic's `Field`."""
    shown = Flag((flag,) if isinstance(flag, str) else flag, metavar, known=known, table=table, key=key)
    extra: Any = {"flag": shown}
    said: Any = bounds
    return Field(default, description=about, json_schema_extra=extra, **said)


def argument(about: str, *, metavar: str | None = None, default: Any = ..., table: str | None = None) -> Any:
    """What a verb works on: its first argument, typed without a flag."""
    shown = Flag(metavar=metavar, positional=True, table=table)
    extra: Any = {"flag": shown}
    return Field(default, description=about, json_schema_extra=extra)


def flag_of(field: FieldInfo) -> Flag:
    """How the command line shows a field."""
    extra = field.json_schema_extra
    shown = extra.get("flag") if isinstance(extra, dict) else None
    return shown if isinstance(shown, Flag) else Flag()


LOG = "Parquet file, or a folder of them."
FORCE = option(False, "Overwrite what is there.")
SEED = option(0, "Of whatever is drawn.", ge=0)
DOC_IDS = option(False, "Take document ids from the comments of the files.")
COLUMNS = option(None, "OURS=THEIRS, as position=rank, where a file has other names; repeatable.", flag="--column")
TRACKED = option(None, "Store of `unskew track` whose clicks are features, as the run had them.")
Columns = Annotated[Mapping[str, str] | None, Typed(list[str])]
"""Their names of columns for ours."""


class OnEngine(VerbOptions):
    """Options of verbs that read a log with an engine."""

    columns: Columns = COLUMNS
    engine: str = option("duckdb", "duckdb or spark.", known=("duckdb", "spark"))
    spark_master: str | None = option(None, "local[N], spark://host:port, sc://host:port.")
    memory: Annotated[str | int | None, Typed(str)] = option(None, "Memory for the engine, such as 4GB.")
    threads: int | None = option(None, "Threads of the engine.", ge=1)
    scratch: Place = option(None, "Folder to spill to, instead of the system's.")


class EngineConnection(TypedDict, total=False):
    """How the engine is reached, for who reads a log: the fields of `OnEngine` but columns and its name."""

    spark_master: str | None
    memory: str | int | None
    threads: int | None
    scratch: Path | str | None


class LogReading(EngineConnection, total=False):
    """How a log is read where a function takes no more: the fields of `OnEngine`."""

    columns: Mapping[str, str] | None
    engine: str


class Synthetic(VerbOptions):
    """Options of lists that are generated."""

    queries: int = option(2000, "Synthetic lists: queries.", ge=1)
    features: int = option(40, "Synthetic lists: features.", ge=4)
    documents: int = option(24, "Synthetic lists: documents a query.", ge=2)
