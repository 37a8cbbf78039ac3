"""Flags of a command from the options of its verb, and arguments of Python spelled as these flags."""

import ast
import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

import unskew
from unskew.errors import Key, Option, Sentence, spelled
from unskew.options import VERBS
from unskew.options.base import OnEngine, Synthetic, Typed, VerbOptions, flag_of
from unskew.settings import checked
from unskew.terminal.output import show_facts, working

# ---- names that a shell completes behind a flag
# The tables are dicts in the sources, whose keys are read from the syntax tree: importing them takes seconds,
# and a shell asks at every tab.

TABLES = {
    "methods": ("learning/methods/__init__.py", ("METHODS", "PACKAGES")),
    "rankers": ("learning/rankers/__init__.py", ("RANKERS",)),
    "scalings": ("tables/lists/scaling.py", ("SCALINGS",)),
    "behaviours": ("simulation/__init__.py", ("BEHAVIOURS",)),
    "loggers": ("simulation/logger.py", ("LOGGERS",)),
    "click_models": ("diagnosis/click_models/fitted.py", ("CLICK_MODELS",)),
    "exports": ("serving/export/__init__.py", ("TARGETS",)),
    "formats": ("logs/ingest/formats/__init__.py", ("READERS",)),
}
"""Where each table of names stands."""


def known_names(what: str) -> list[str]:
    """The names of a table, in its order.

    >>> known_names("scalings")[:3]
    ['none', 'standard', 'minmax']
    """
    path, tables = TABLES[what]
    tree = ast.parse(files("unskew").joinpath(path).read_text(encoding="utf-8"))
    return [name for table in tables for name in _keys(tree, table)]


def _keys(tree: ast.Module, table: str) -> Iterator[str]:
    """The keys of the dict that is assigned to a name, where they are written out."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        named = any(isinstance(target, ast.Name) and target.id == table for target in targets)
        if named and isinstance(value := getattr(node, "value", None), ast.Dict):
            yield from (str(key.value) for key in value.keys if isinstance(key, ast.Constant))


def completes(table: str | None, *more: str) -> Callable[[str], list[str]]:
    """From what was typed to the names of a table, and more, that begin with it."""

    def complete(incomplete: str) -> list[str]:
        names = (*more, *(known_names(table) if table else ()))
        return [name for name in names if name.startswith(incomplete)]

    return complete


# ---- flags that are not options of verbs

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MAYBE_JSON = "[FILE.json]"
"""What an option is told by that takes a file, or nothing to mean standard output."""
JsonFile = Annotated[
    str | None, typer.Option("--json", help="Write JSON to a file, or print it.", metavar=MAYBE_JSON)
]
CsvFile = Annotated[
    str | None, typer.Option("--csv", help="Write CSV to this file, - for standard output.", metavar="FILE")
]
PageFile = Annotated[Path | None, typer.Option(help="Page to write (.html).")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


# ---- from options to flags


def flat(command: Callable[..., None], *, progress: bool = False) -> Callable[..., None]:
    """The command with a flag for each option of the models that it takes, and their sentence as its help.

    With `progress`, a command that shows none of its own says now and then that it is at work, and takes --quiet.
    """
    hints = get_type_hints(command, include_extras=True)
    models = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, VerbOptions)
    }
    hushed = progress and "quiet" not in hints

    def run(**given: Any) -> None:
        made = {name: _asked(model, given) for name, model in models.items()}
        with working(command.__name__, quiet=given.pop("quiet")) if hushed else nullcontext():
            command(**given, **made)

    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        model = models.get(parameter.name)
        if model is None:
            parameters.append(_keyword(parameter.name, hints[parameter.name], parameter.default))
        else:
            parameters += [_parameter(name, model.model_fields[name]) for name in _in_order(model)]
    if hushed:
        parameters.append(_keyword("quiet", Quiet, False))
    run.__name__ = command.__name__
    run.__doc__ = next(iter(models.values())).__doc__ if models else command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def facts_of(verb: str) -> Callable[..., None]:
    """A command that calls the function of its name in `unskew`, and prints what it did."""

    def command(asked: VerbOptions, as_json: bool = False) -> None:
        show_facts(getattr(unskew, verb)(**asked.given()), as_json)

    command.__name__ = verb
    command.__annotations__ = {"asked": VERBS[verb], "as_json": Json}
    return command


def _in_order(model: type[VerbOptions]) -> list[str]:
    """Its own options first, then those that it shares with others."""
    shared = [name for base in (Synthetic, OnEngine) if issubclass(model, base) for name in base.model_fields]
    return [*(name for name in model.model_fields if name not in shared), *shared]


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(field: FieldInfo) -> Any:
    return next((each.kind for each in field.metadata if isinstance(each, Typed)), field.annotation)


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """An option as typer takes it."""
    flag, kind = flag_of(field), _kind(field)
    default = inspect.Parameter.empty if field.is_required() else field.default
    if not isinstance(default, bool | int | float | str | type) and kind is not field.annotation:
        default = None  # it is said in several words
    kind = kind if field.is_required() or default is not None else kind | None
    bounds = {
        word: getattr(each, key)
        for each in field.metadata
        for key, word in (("ge", "min"), ("le", "max"))
        if hasattr(each, key)
    }
    said = {"help": field.description, "metavar": flag.metavar, **bounds}
    if flag.known or flag.table:
        said["autocompletion"] = completes(flag.table, *flag.known)
    if flag.positional:
        return _keyword(name, Annotated[kind, typer.Argument(**said)], default)
    names = flag.names or (f"--{name.replace('_', '-')}",)
    return _keyword(name, Annotated[kind, typer.Option(*names, **said)], default)


def _asked(model: type[VerbOptions], given: dict[str, Any]) -> VerbOptions:
    """The options of a verb of what was typed, taken out of it and checked."""
    said = {name: given.pop(name) for name in model.model_fields}
    read = {name: _read(name, model.model_fields[name], value) for name, value in said.items()}
    return checked(model, {name: value for name, value in read.items() if value is not None}, None)


def _read(name: str, field: FieldInfo, value: Any) -> Any:
    """What the words behind a flag mean."""
    if value is None or _kind(field) is field.annotation:
        return value
    if name in ("columns", "shares") and isinstance(value, list):
        return _pairs(value, "position=rank" if name == "columns" else "new=0.1", flag_of(field).names[0]) or None
    if name == "settings":
        from unskew.workflows.runs.request import parse_setting

        return dict(map(parse_setting, value)) or None
    kinds = [get_origin(each) for each in (field.annotation, *get_args(field.annotation))]
    if _kind(field) is str and tuple in kinds:
        return [part.strip() for part in value.split(",") if part.strip()]
    return value or None


def _pairs(given: Sequence[str], like: str, flag: str) -> dict[str, Any]:
    """NAME=VALUE, taken apart, a value of numbers where the example has one."""
    found: dict[str, Any] = {}
    for text in given:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name or not value:
            raise typer.BadParameter(f"{text}: write it like {like}", param_hint=flag)
        if name in found:
            raise typer.BadParameter(f"{name}: named twice", param_hint=flag)
        found[name] = value
    return found


# ---- from arguments of Python to flags

FLAGS: ContextVar[dict[str, str]] = ContextVar("FLAGS", default={})  # noqa: B039
"""The flags of the command that runs."""
KEYS = {
    "validate_on": "training.validate_on",
    "learn_from": "training.learn_from",
    "missing_features": "data.missing_features",
    "doc_ids": "data.doc_ids",
}
"""Arguments of Python that a command line says with --set."""


def as_flag(flags: Mapping[str, str], option: Option) -> str:
    """An argument as the flags of a command spell it; one that it has no flag for stays as it is."""
    value = option.value
    if option.name in flags and not isinstance(option.name, Key):
        flag = flags[option.name]
        if value is None or value is True:
            return flag
        return f"no {flag}" if value is False else " ".join(f"{flag} {word}" for word in _typed(value))
    key = option.name if isinstance(option.name, Key) else KEYS.get(option.name)
    if key is None or value is None or "set" not in flags:
        return str(option)
    return f"--set {key}={' '.join(_typed(value))}"


def _typed(value: object) -> list[str]:
    """A value as it is typed behind a flag: ["a", "b"] as a,b; of {"a": "b"} each pair as a=b."""
    if isinstance(value, dict):
        return [shlex.quote(f"{name}={each}") for name, each in value.items()]
    if isinstance(value, bool):
        return [str(value).lower()]
    return [",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)]


def in_flags(sentence: str) -> str:
    """A sentence of the library in the words of the command that runs."""
    return spelled(sentence.words, partial(as_flag, FLAGS.get())) if isinstance(sentence, Sentence) else sentence


def flags_of(options: Iterable[Any]) -> dict[str, str]:
    """The flags of a command's options, by what they are called in Python."""
    flags: dict[str, str] = {}
    for option in options:
        if option.param_type_name == "argument":
            flags[str(option.name)] = option.metavar or str(option.name).upper()
        for flag in [name for name in option.opts if name[:2] == "--"][:1]:
            flags |= {flag[2:].replace("-", "_"): flag, str(option.name): flag}
    return flags
