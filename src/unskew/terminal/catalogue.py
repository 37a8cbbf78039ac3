"""What there is to set, told from the code: every setting with its type, default, bounds, choices and sentence.

`described` reads one config class by its JSON schema, `catalogue` all of them. The command of that name prints
what it returns, and the reference of the documentation is made from it, so neither can say what the code does not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict

from pydantic import BaseModel

from unskew.results import plain
from unskew.settings import known, paper, says
from unskew.terminal.flags import known_names

_SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_LENGTHS = {"minItems": "at least", "maxItems": "at most", "minLength": "at least", "maxLength": "at most"}
_WORDS = {"boolean": "true or false", "integer": "whole number", "string": "text", "object": "table"}
Schema = Mapping[str, Any]
"""A part of a JSON schema."""


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


def catalogue(kind: str | None = None, name: str | None = None) -> dict[str, list[Described]]:
    """All that can be named and set, by what it is: methods, rankers, behaviours, scalings, run files and so on.

    `kind` asks for one of these alone, and `name` for one of its kind.
    """
    from unskew.learning.fitting.training import Training
    from unskew.learning.methods import LEARNERS
    from unskew.learning.rankers import RANKERS
    from unskew.simulation import BEHAVIOURS, LOGGERS, Simulation, Traffic
    from unskew.studies.compare.config import CompareFile
    from unskew.tables.reading.options import IngestOptions
    from unskew.workflows.runs.settings import RunFile

    configs: dict[str, Mapping[str, type[BaseModel]]] = {
        "methods": LEARNERS,
        "rankers": RANKERS,
        "behaviours": BEHAVIOURS,
        "loggers": LOGGERS,
        "training": {"training": Training},
        "run file": {"run file": RunFile},
        "compare file": {"compare file": CompareFile},
        "mapping file": {"mapping file": IngestOptions},
        "simulation": {"simulate": Simulation, "traffic": Traffic},
    }
    if kind is not None and known("kind", kind, [*configs, "scalings"]) in configs:
        configs = {kind: configs[kind]}
    found = {
        each: [described(config, name) for name, config in all_of.items()] for each, all_of in configs.items()
    }
    found = found | {"scalings": _scalings()} if kind is None else {kind: found.get(kind) or _scalings()}
    if kind is not None and name is not None:
        known("name", name, [each["name"] for each in found[kind]])
        found = {kind: [each for each in found[kind] if each["name"] == name]}
    return found


def _scalings() -> list[Described]:
    """The ways to scale features, and what a value v becomes: rows of a table in their documentation."""
    from unskew.tables.lists import scaling

    rows = re.findall(r"^\| `(\w+)` +\| (.+?) +\|$", scaling.__doc__ or "", re.MULTILINE)
    return [
        {
            "name": name,
            "python": scaling.__name__,
            "about": about,
            "help": about,
            "reference": None,
            "settings": [],
        }
        for name, about in rows
    ]


def described(config: type[BaseModel], name: str | None = None) -> Described:
    """What the config class is for, and its settings.

    >>> from unskew.settings import Config
    >>> class Walk(Config):
    ...     "Go somewhere."
    ...     steps: int = 3
    >>> described(Walk, "walk")["settings"][0]["type"]
    'whole number'
    """
    return {
        "name": name or config.__name__,
        "python": f"{config.__module__}.{config.__qualname__}",
        "about": says(config),
        "help": inspect.cleandoc(config.__doc__ or ""),
        "reference": paper(config) or None,
        "settings": settings_of(config),
    }


def settings_of(config: type[BaseModel]) -> list[Setting]:
    """The settings of a config class, besides the name that it is known by."""
    schema = config.model_json_schema()
    told = _settings(schema, schema.get("$defs", {}))
    for setting in told:
        if made := config.model_fields[setting["name"]].default_factory:
            setting["default"] = plain(made())  # type: ignore[call-arg]
        # one that only has another default is told by the class that it comes from
        inherited = (
            each.model_fields.get(setting["name"]) for each in config.__mro__ if issubclass(each, BaseModel)
        )
        sentences = (field.description for field in inherited if field is not None and field.description)
        setting["help"] = setting["help"] or _one_line(next(sentences, ""))
    return told


def _settings(schema: Schema, inner: Schema) -> list[Setting]:
    required = schema.get("required", ())
    return [
        _setting(name, field, inner, name in required)
        for name, field in schema["properties"].items()
        if name != "name" or "const" not in field
    ]


def _setting(name: str, field: Schema, inner: Schema, required: bool) -> Setting:
    kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
    in_words = " or ".join(dict.fromkeys(map(_in_words, kinds)))
    text = _one_line(field.get("description", ""))
    told: Setting = {
        "name": name,
        "type": in_words,
        "required": required,
        "default": field.get("default", None if required or in_words != "table" else {}),
        "bounds": list(dict.fromkeys(bound for kind in kinds for bound in _bounds(kind))),
        "choices": [choice for kind in kinds for choice in _choices(kind)] or _names(field),
        "help": text,
    }
    table = next((inner[kind["$ref"].rpartition("/")[2]] for kind in kinds if "$ref" in kind), None)
    if table is not None and "properties" in table:
        told["help"] = told["help"] or _one_line(table.get("description", "").split("\n\n")[0])
        told["settings"] = _settings(table, inner)
    return told


def _choices(kind: Schema) -> list[object]:
    return list(kind.get("enum", [kind["const"]] if "const" in kind else []))


def _names(field: Schema) -> list[object]:
    """The names of a table that a text must be one of, where the field says so."""
    table = field.get("flag", {}).get("table")
    return [*known_names(table)] if table else list(field.get("choices", ()))


def _in_words(kind: Schema) -> str:
    """What a value may be: number, list of whole numbers, table."""
    if _choices(kind):
        return "choice"
    if entries := _entries(kind):
        first, of, rest = _in_words(entries).partition(" of ")
        return f"list of {first}{'s' * (first not in ('true or false', 'text'))}{of}{rest}"
    if "$ref" in kind:
        return "table"
    named: str = kind.get("format") or kind.get("type", "anything")
    return _WORDS.get(named, named)


def _entries(kind: Schema) -> Schema:
    """What the entries of a list may be; of several kinds the first."""
    found: Schema = kind.get("items") or next(iter(kind.get("prefixItems", ())), {})
    return found


def _bounds(kind: Schema) -> Iterator[str]:
    """Such as >= 1, of a value and of the entries of a list."""
    yield from (f"{sign} {kind[key]:g}" for key, sign in _SIGNS.items() if key in kind)
    if entries := _entries(kind):
        yield from _bounds(entries)
    if "prefixItems" not in kind:
        yield from (f"{words} {kind[key]} long" for key, words in _LENGTHS.items() if key in kind)


def _one_line(text: str) -> str:
    return " ".join(text.split())
