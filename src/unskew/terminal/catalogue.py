"""What there is to set, told from the code: every setting with its type, default, bounds, choices and sentence.

`described` reads one config class, `catalogue` all of them. The commands that list things print what they return,
and the reference of the documentation is made from it, so neither can say what the code does not.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from unskew.learning.descriptions import paper, says
from unskew.options.base import flag_of
from unskew.terminal.flags import known_names

_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}
_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", dict: "table"}
_UNITS = re.compile(
    "bytes|days|documents|features|layers|leaves|pages|probability|queries|results|rounds|rows|seconds|share|steps|"
    "texts|threads|tokens|trees"
)


class Setting(TypedDict):
    """One setting of a config class."""

    name: str
    type: str
    """In words: number, list of whole numbers, table."""
    required: bool
    default: object
    """As JSON has it; null where there is none, or where none is the default."""
    bounds: list[str]
    """Such as >= 1; of each entry, where it is a list."""
    choices: list[object]
    """All that it may be; empty where it is not one of a few."""
    unit: str | None
    """What is counted or measured, where its name or the first word of its help says so."""
    help: str
    settings: NotRequired[list[Setting]]
    """Of a table: what is in it."""


class Described(TypedDict):
    """A config class."""

    name: str
    """By which TOML, the command line and Python's functions know it; else that of the class."""
    python: str
    """The class."""
    about: str
    """The first sentence of its documentation."""
    help: str
    """All of its documentation."""
    reference: str | None
    """The paper, where it is somebody's method."""
    settings: list[Setting]


def described(config: type[BaseModel], name: str | None = None) -> Described:
    """What the config class is for, and its settings.

    >>> from unskew.settings import Config
    >>> class Walk(Config):
    ...     "Go somewhere."
    ...     steps: int = 3
    >>> described(Walk, "walk")["settings"][0]["type"]
    'whole number'
    """
    text = inspect.cleandoc(config.__doc__ or "")
    return {
        "name": name or config.__name__,
        "python": f"{config.__module__}.{config.__qualname__}",
        "about": says(config),
        "help": text,
        "reference": paper(config) or None,
        "settings": settings_of(config),
    }


def settings_of(config: type[BaseModel]) -> list[Setting]:
    """The settings of a config class, besides the name that it is known by."""
    fields = config.model_fields.items()
    return [_setting(config, name, field) for name, field in fields if not _is_its_name(name, field)]


def catalogue() -> dict[str, list[Described]]:
    """All that can be set, by what it is: methods, rankers, behaviours, run files and the like."""
    from unskew.learning.fitting.training import Training
    from unskew.learning.methods import LEARNERS
    from unskew.learning.rankers import RANKERS
    from unskew.simulation import BEHAVIOURS, LOGGERS, Simulation, Traffic
    from unskew.studies.compare.config import CompareFile
    from unskew.tables.reading.options import IngestOptions
    from unskew.workflows.runs.settings import RunFile

    return {
        "methods": described_all(LEARNERS),
        "rankers": described_all(RANKERS),
        "behaviours": described_all(BEHAVIOURS),
        "loggers": described_all(LOGGERS),
        "training": [described(Training, "training")],
        "run file": [described(RunFile, "run file")],
        "compare file": [described(CompareFile, "compare file")],
        "mapping file": [described(IngestOptions, "mapping file")],
        "simulation": [described(Simulation, "simulate"), described(Traffic, "traffic")],
    }


def described_all(configs: Mapping[str, type[BaseModel]]) -> list[Described]:
    """Every config class of a table, under its name."""
    return [described(config, name) for name, config in configs.items()]


def _setting(config: type[BaseModel], name: str, field: FieldInfo) -> Setting:
    kinds = _kinds(field.annotation)
    kind_in_words, text = " or ".join(dict.fromkeys(map(_in_words, kinds))), _help(config, name)
    told: Setting = {
        "name": name,
        "type": kind_in_words,
        "required": field.is_required(),
        "default": None if field.is_required() else _plain(field.get_default(call_default_factory=True)),
        "bounds": _bounds([*field.metadata, *(each for kind in kinds for each in _inside(kind))]),
        "choices": [choice for kind in kinds for choice in _choices(kind)] or _named_choices(field),
        "unit": _unit(name, text) if kind_in_words in ("number", "whole number") else None,
        "help": text,
    }
    inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    if inner:
        told["help"] = told["help"] or _one_line(inspect.cleandoc(inner[0].__doc__ or "").split("\n\n")[0])
        told["settings"] = settings_of(inner[0])
    return told


def _unit(name: str, text: str) -> str | None:
    """What a number counts: its name, or the first word that is said of it.

    >>> _unit("warmup", "Steps over which it rises."), _unit("seconds", "Time limit."), _unit("l2", "Penalty.")
    ('steps', 'seconds', None)
    """
    words = [name, *re.findall(r"\w+", text.lower())[:1]]
    return next((word for word in words if _UNITS.fullmatch(word)), None)


def _is_its_name(name: str, field: FieldInfo) -> bool:
    return name == "name" and len(_choices(field.annotation)) == 1


def _kinds(annotation: Any) -> list[Any]:
    """What a value may be, none left out: X | None is X, with what was written around it."""
    if get_origin(annotation) in (Union, UnionType):
        return [kind for each in get_args(annotation) if each is not NoneType for kind in _kinds(each)]
    return [annotation]


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _in_words(kind: Any) -> str:
    kind = _bare(kind)
    origin = get_origin(kind) or kind
    if origin is Literal:
        return "choice"
    if origin in (tuple, list):
        entries = [_in_words(each) for each in get_args(kind) if each is not Ellipsis]
        return f"list of {_plural(entries[0])}" if entries else "list"
    if isinstance(origin, type) and issubclass(origin, BaseModel):
        return "table"
    return _WORDS.get(origin) or ("anything" if origin is Any else str(origin.__name__))


def _plural(words: str) -> str:
    """Several of them: whole numbers, lists of numbers."""
    first, space, rest = words.partition(" of ")
    return f"{first}s{space}{rest}" if not first.endswith("false") and first != "text" else words


def _inside(kind: Any) -> list[Any]:
    """What is said of a kind, and of its entries where it is a list of them."""
    own = [each for data in getattr(kind, "__metadata__", ()) for each in getattr(data, "metadata", [data])]
    entries = get_args(_bare(kind)) if get_origin(_bare(kind)) in (tuple, list) else ()
    return own + [each for entry in entries[:1] for each in _inside(entry)]


def _bounds(metadata: list[Any]) -> list[str]:
    found = [
        f"{sign} {getattr(each, key):g}" for each in metadata for key, sign in _SIGNS.items() if hasattr(each, key)
    ]
    found += [
        f"{words} {getattr(each, key)} long"
        for each in metadata
        for key, words in _LENGTHS.items()
        if getattr(each, key, None) is not None
    ]
    return list(dict.fromkeys(found))


def _choices(kind: Any) -> list[object]:
    return list(get_args(_bare(kind))) if get_origin(_bare(kind)) is Literal else []


def _named_choices(field: FieldInfo) -> list[object]:
    """The names of a table that a text must be one of, where the field says so."""
    extra = field.json_schema_extra
    found = extra.get("choices", []) if isinstance(extra, dict) else []
    table = flag_of(field).table
    return [*known_names(table)] if table else list(found) if isinstance(found, list) else []


def _plain(value: object) -> object:
    """A default as JSON has it."""
    if isinstance(value, BaseModel):
        return json.loads(value.model_dump_json())
    return json.loads(json.dumps(value, default=str))


def _help(config: type[BaseModel], name: str) -> str:
    """The sentence under a field, or under the one that it stands in for."""
    for each in config.__mro__:
        field = each.model_fields.get(name) if isinstance(each, type) and issubclass(each, BaseModel) else None
        if field is not None and field.description:
            return _one_line(field.description)
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
