"""What there is to set, told from the code: every setting with its type, default, bounds, choices and sentence.

`described` reads one config class by its JSON schema, `catalogue` all of them. The command of that name prints
what it returns, and the reference of the documentation is made from it, so neither can say what the code does not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from unskew.results import Result, plain
from unskew.settings import kind_of, known, paper, says
from unskew.tables.lists import scaling
from unskew.terminal.flags import known_names

_SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_LENGTHS = {"minItems": "at least", "maxItems": "at most", "minLength": "at least", "maxLength": "at most"}
_WORDS = {"boolean": "true or false", "integer": "whole number", "string": "text", "object": "table"}
Schema = Mapping[str, Any]
"""A part of a JSON schema."""


@dataclass(frozen=True)
class Setting(Result):
    """One setting of a config class."""

    name: str
    type: str
    """In words: number, list of whole numbers, table."""
    required: bool
    default: object
    """As JSON has it; None where there is none, or where none is the default."""
    bounds: tuple[str, ...]
    """Such as >= 1; of each entry, where it is a list."""
    choices: tuple[object, ...]
    """All that it may be; empty where it is not one of a few."""
    help: str
    settings: tuple[Setting, ...] | None = None
    """Of a table: what is in it."""
    absent = ("settings",)


@dataclass(frozen=True)
class Described(Result):
    """A config class."""

    name: str
    """By which TOML, the command line and Python's functions know it; else that of the class."""
    python: str
    """The class."""
    about: str
    """The first sentence of its documentation."""
    help: str
    """All of its documentation."""
    reference: str | None = None
    """The paper, where it is somebody's method."""
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Catalogue(Result):
    """What `catalogue` found."""

    kinds: Mapping[str, tuple[Described, ...]]
    """By what it is."""

    def to_dict(self) -> dict[str, Any]:
        """A list for each kind."""
        found: dict[str, Any] = plain(self.kinds)
        return found


def catalogue(kind: str | None = None, name: str | None = None) -> Catalogue:
    """All that can be named and set, by what it is: methods, rankers, behaviours, scalings, run files and so on.

    `kind` asks for one of these alone, and `name` for one of its kind; a method or behaviour of your own is
    `module:Class`.
    """
    from unskew.learning.fitting.training import Training
    from unskew.learning.methods import LEARNERS, Learner
    from unskew.learning.rankers import RANKERS
    from unskew.simulation import BEHAVIOURS, LOGGERS, Behaviour, Simulation, Traffic
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
    own: dict[str, type[BaseModel]] = {"methods": Learner, "behaviours": Behaviour}
    kinds = [*configs, "scalings"] if kind is None else [known("kind", kind, [*configs, "scalings"])]
    found = {}
    for each in kinds:
        if each == "scalings":
            found[each] = [
                one for one in _scalings() if name is None or one.name == known("name", name, scaling.SCALINGS)
            ]
        else:
            asked = [*configs[each]] if kind is None or name is None else [name]
            found[each] = [described(kind_of("name", one, configs[each], own.get(each)), one) for one in asked]
    return Catalogue({each: tuple(all_of) for each, all_of in found.items()})


def _scalings() -> list[Described]:
    """The ways to scale features, and what a value v becomes: rows of a table in their documentation."""
    rows = re.findall(r"^\| `(\w+)` +\| (.+?) +\|$", scaling.__doc__ or "", re.MULTILINE)
    return [Described(name, scaling.__name__, about, about) for name, about in rows]


def described(config: type[BaseModel], name: str | None = None) -> Described:
    """What the config class is for, and its settings.

    >>> from unskew.settings import Config
    >>> class Walk(Config):
    ...     "Go somewhere."
    ...     steps: int = 3
    >>> described(Walk, "walk").settings[0].type
    'whole number'
    """
    return Described(
        name or config.__name__,
        f"{config.__module__}.{config.__qualname__}",
        says(config),
        inspect.cleandoc(config.__doc__ or ""),
        paper(config) or None,
        settings_of(config),
    )


def settings_of(config: type[BaseModel]) -> tuple[Setting, ...]:
    """The settings of a config class, besides the name that it is known by."""
    schema = config.model_json_schema()
    return tuple(_completed(told, config) for told in _settings(schema, schema.get("$defs", {})))


def _completed(told: Setting, config: type[BaseModel]) -> Setting:
    """The setting with what the schema does not say: a default that is made, and the sentence of another class."""
    made = config.model_fields[told.name].default_factory
    default = plain(made()) if made else told.default  # type: ignore[call-arg]
    # one that only has another default is told by the class that it comes from
    inherited = (each.model_fields.get(told.name) for each in config.__mro__ if issubclass(each, BaseModel))
    sentences = (field.description for field in inherited if field is not None and field.description)
    return replace(told, default=default, help=told.help or _one_line(next(sentences, "")))


def _settings(schema: Schema, inner: Schema) -> tuple[Setting, ...]:
    required = schema.get("required", ())
    return tuple(
        _setting(name, field, inner, name in required)
        for name, field in schema["properties"].items()
        if name != "name" or "const" not in field
    )


def _setting(name: str, field: Schema, inner: Schema, required: bool) -> Setting:
    kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
    in_words = " or ".join(dict.fromkeys(map(_in_words, kinds)))
    told = Setting(
        name=name,
        type=in_words,
        required=required,
        default=field.get("default", None if required or in_words != "table" else {}),
        bounds=tuple(dict.fromkeys(bound for kind in kinds for bound in _bounds(kind))),
        choices=tuple([choice for kind in kinds for choice in _choices(kind)] or _names(field)),
        help=_one_line(field.get("description", "")),
    )
    table = next((inner[kind["$ref"].rpartition("/")[2]] for kind in kinds if "$ref" in kind), None)
    if table is None or "properties" not in table:
        return told
    about = told.help or _one_line(table.get("description", "").split("\n\n")[0])
    return replace(told, help=about, settings=_settings(table, inner))


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
