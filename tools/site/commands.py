"""The page of commands, made from the command line's own table of arguments and options."""

from __future__ import annotations

import inspect
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import typer
from markdown_parts import prose, settings, table

from unskew.terminal.main import app, made

WORDS = {Path: "path", str: "text", int: "whole number", float: "number"}


def command_page() -> str:
    """Every command, in the order in which `unskew --help` has them."""
    lines = [
        "# Commands",
        "",
        *prose(app.info.help),
        "Exit statuses are [listed once](exit_statuses.md).",
        "",
    ]
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        lines += _section(name, made(name))
    return "\n".join(lines)


def _section(name: str, command: Any) -> list[str]:
    typed = inspect.signature(command.callback).parameters
    takes = [(param, typed[param.name].annotation) for param in command.params if param.name in typed]
    arguments = [(param, kind) for param, kind in takes if param.param_type_name == "argument"]
    options = [(param, kind) for param, kind in takes if param.param_type_name == "option"]
    needed = [f"{param.opts[0]} {_word(kind)}" for param, kind in options if param.required]
    called = ["unskew", name, *(_called(param) for param, _ in arguments), *needed]
    return [
        f"## {name}",
        "",
        *prose(unmarked(command.help)),
        "```",
        " ".join(called) + (" [OPTIONS]" if len(options) > len(needed) else ""),
        "```",
        "",
        *table(("argument", ""), ((f"`{_metavar(param)}`", unmarked(param.help)) for param, _ in arguments)),
        *settings(("option", "takes", "default", ""), (_row(param, kind) for param, kind in options)),
    ]


def _called(argument: Any) -> str:
    """How an argument stands in the line that calls the command."""
    name = _metavar(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _row(option: Any, annotation: Any) -> tuple[str, str, str, str]:
    names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag else takes_words(annotation) + (", repeatable" if option.multiple else "")
    return names, kind, _default(option), unmarked(option.help)


def takes_words(annotation: Any) -> str:
    """What an option takes: a type in words, and its bounds or choices.

    >>> from typing import Annotated
    >>> takes_words(Annotated[int | None, typer.Option(min=1)])
    'whole number, >= 1'
    """
    kind, info = get_args(annotation)[:2]
    bounds = ((">=", getattr(info, "min", None)), ("<=", getattr(info, "max", None)))
    return ", ".join([_in_words(kind), *(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)])


def _in_words(kind: Any) -> str:
    if isinstance(kind, UnionType) or get_origin(kind) in (Union, list):
        return " or ".join(_in_words(each) for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is tuple:
        return " ".join(_in_words(each) for each in get_args(kind))
    choices = (
        get_args(kind) if get_origin(kind) is Literal else [each.value for each in kind] if _is_enum(kind) else ()
    )
    return " ".join(f"`{choice}`" for choice in choices) or WORDS.get(kind, kind.__name__)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _word(annotation: Any) -> str:
    return _in_words(get_args(annotation)[0]).split()[-1].upper()


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    value = option.default
    empty = value is None or value is False or value == "" or value == () or callable(value)
    return "" if empty else f"`{' '.join(map(str, value)) if isinstance(value, tuple | list) else value}`"


def unmarked(text: str | None) -> str:
    """A help text as it was written, without what keeps rich from taking brackets for markup."""
    return (text or "").replace("\\[", "[")
