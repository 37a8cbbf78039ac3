"""The commands that tell what there is: what can be named and set, and what is installed."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.terminal.flags import TABLES, Json, completes
from unskew.terminal.output import show_json

if TYPE_CHECKING:
    from unskew.terminal.catalogue import Setting

_INDENT = 20


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the kind that was typed before."""
    kind = str(ctx.params.get("kind"))
    return completes(kind)(incomplete) if kind in TABLES else []


def catalogue(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="methods, rankers, behaviours, loggers, scalings, run file, …",
            autocompletion=completes(None, *TABLES),
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="Show the settings of this one.", autocompletion=_names)
    ] = None,
    as_json: Json = False,
) -> None:
    """List methods, each with its paper, rankers, behaviours and what else can be set; or the settings of one."""
    from unskew.terminal.catalogue import catalogue

    found = catalogue(kind, name)
    if as_json:
        asked = found if kind is None else found[kind] if name is None else found[kind][0]
        show_json(asked)
        return
    for title, all_of in found.items():
        if kind is None:
            print(f"\n{title}\n")
        for each in all_of:
            print(f"{each['name']:<{_INDENT}}{each['about']}")
            if each["reference"]:
                print(" " * _INDENT + each["reference"])
            if name is not None:
                print("".join(f"\n{line}" for setting in each["settings"] for line in _lines(setting)))


def doctor(as_json: Json = False) -> None:
    """Say what is installed, what is missing, and how to get it."""
    from unskew.terminal.doctor import doctor, lines

    found = doctor()
    if as_json:
        show_json(found)
    else:
        print("\n".join(lines(found)))
    if not found.ok:
        raise typer.Exit(1)


def _lines(setting: Setting, indent: str = "  ") -> list[str]:
    """A setting: its name, what it may be, its default, and what it does."""
    may = " or ".join(map(str, setting["choices"])) if setting["choices"] else setting["type"]
    bounds = "".join(f", {bound}" for bound in setting["bounds"])
    given = "none" if setting["default"] is None else json.dumps(setting["default"], ensure_ascii=False)
    default = "required" if setting["required"] else f"default {given}"
    lines = ["", f"{indent}{setting['name']}: {may}{bounds}; {default}"]
    lines += [f"{indent}    {line}" for line in wrap(setting["help"], 100)]
    for inner in setting.get("settings", []):
        lines += _lines(inner, indent + "    ")
    return lines
