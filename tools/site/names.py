"""The page of Python names: everything public of `unskew`, with signatures and docstrings as in the code."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any

from markdown_parts import first, prose, settings, table
from pydantic import BaseModel
from settings import setting_table

import unskew
from unskew.sklearn import Ranker
from unskew.terminal.catalogue import settings_of

LONGEST = 90
"""Letters of a signature on one line."""


def names_page() -> str:
    """Functions first, then classes, then tables and modules of names."""
    found = {name: getattr(unskew, name) for name in dir(unskew)} | {"sklearn.Ranker": Ranker}
    functions = {name: each for name, each in found.items() if inspect.isfunction(each)}
    classes = {name: each for name, each in found.items() if inspect.isclass(each)}
    rest = {name: each for name, each in found.items() if name not in functions and name not in classes}
    lines = ["# Python", "", "`import unskew`; a name is imported when it is first used.", ""]
    for title, things in (("Functions", functions), ("Classes", classes), ("Tables and modules", rest)):
        lines += [f"## {title}", ""]
        for name, thing in things.items():
            lines += [f"### {name}", "", *_described(f"unskew.{name}", thing)]
    return "\n".join(lines)


def _described(name: str, thing: Any) -> list[str]:
    """What stands under the heading of a name."""
    if inspect.isfunction(thing):
        return [*_call(name, thing), *prose(thing.__doc__)]
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        return [*prose(thing.__doc__), *setting_table(settings_of(thing)), *_members(name, thing)]
    if inspect.isclass(thing):
        return [*_call(name, thing), *prose(thing.__doc__), *_fields(thing), *_members(name, thing)]
    if isinstance(thing, ModuleType):
        inside = [(f"`{name}.{each}`", first(getattr(thing, each).__doc__)) for each in _public(thing)]
        return [*prose(thing.__doc__), *table(("name", ""), inside)]
    known = f"By name: {', '.join(f'`{each}`' for each in thing)}." if isinstance(thing, Mapping) else repr(thing)
    return [known, ""]


def _public(module: ModuleType) -> list[str]:
    """Classes and functions that a module offers, by name."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    ours = {
        name: each for name, each in found.items() if str(getattr(each, "__module__", "")).startswith("unskew.")
    }
    return sorted(name for name, each in ours.items() if inspect.isclass(each) or inspect.isfunction(each))


def _fields(thing: type) -> list[str]:
    """The fields of a dataclass that have a sentence below them."""
    if not is_dataclass(thing):
        return []
    body = ast.parse(inspect.cleandoc(inspect.getsource(thing))).body[0]
    rows = []
    for field, below in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
        said = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and said is not None:
            rows.append((f"`{ast.unparse(field.target)}`", f"`{ast.unparse(field.annotation)}`", str(said)))
    return settings(("field", "type", ""), rows)


def _members(name: str, thing: type) -> list[str]:
    """Public methods and properties, inherited ones too, without those that are not ours."""
    lines: list[str] = []
    for each, member in inspect.getmembers_static(thing):
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        home = str(getattr(plain.fget if isinstance(plain, property) else plain, "__module__", ""))
        if each.startswith("_") or not home.startswith("unskew."):
            continue
        heading = [f"#### {name.removeprefix('unskew.')}.{each}", ""]
        if inspect.isfunction(plain):
            lines += [*heading, *_call(f".{each}", plain), *prose(plain.__doc__)]
        elif isinstance(member, property) and member.fget:
            lines += [*heading, f"`.{each}: {_type(inspect.signature(member.fget).return_annotation)}`", ""]
            lines += prose(member.__doc__)
    return lines


def _call(name: str, thing: Any) -> list[str]:
    """The signature as code, an argument on a line where it is long."""
    signature = inspect.signature(thing)
    given, keyword_only = [], False
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            given.append("*")
        given.append(_parameter(each))
    returned = signature.return_annotation
    after = "" if returned is signature.empty or inspect.isclass(thing) else f" -> {_type(returned)}"
    line = f"{name}({', '.join(given)}){after}"
    if len(line) > LONGEST:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in given) + f"){after}"
    return ["```python", *line.splitlines(), "```", ""]


def _parameter(each: inspect.Parameter) -> str:
    stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    kind = "" if each.annotation is each.empty else f": {_type(each.annotation)}"
    default = "" if each.default is each.empty else f" = {each.default!r}" if kind else f"={each.default!r}"
    return f"{stars}{each.name}{kind}{default}"


def _type(annotation: Any) -> str:
    """A type as it was written."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
