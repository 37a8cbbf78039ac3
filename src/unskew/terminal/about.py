"""The commands that list what there is: methods, rankers, scalings, behaviours, and what is installed."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.terminal.flags import Json, completes
from unskew.terminal.output import show_json

if TYPE_CHECKING:
    from unskew.terminal.catalogue import Described, Setting

_INDENT = 20


def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="Show the settings of this one.", autocompletion=completes("methods")),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods, with the paper of each; with a name, its settings."""
    from unskew.learning.methods import LEARNERS
    from unskew.terminal.catalogue import described_all

    _show(described_all(LEARNERS), name, as_json)


def rankers(
    name: Annotated[
        str | None,
        typer.Argument(help="Show the settings of this one.", autocompletion=completes("rankers")),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the rankers, which score documents; with a name, its settings."""
    from unskew.learning.rankers import RANKERS
    from unskew.terminal.catalogue import described_all

    _show(described_all(RANKERS), name, as_json)


def behaviours(
    name: Annotated[
        str | None,
        typer.Argument(help="Show the settings of this one.", autocompletion=completes("behaviours")),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the behaviours that `simulate` knows; with a name, its settings."""
    from unskew.simulation import BEHAVIOURS
    from unskew.terminal.catalogue import described_all

    _show(described_all(BEHAVIOURS), name, as_json)


def scalings(as_json: Json = False) -> None:
    """List the ways to scale features, and what a value v becomes."""
    from unskew.tables.lists import scaling

    told = re.findall(r"^\| `(\w+)` +\| (.+?) +\|$", scaling.__doc__ or "", re.MULTILINE)
    if as_json:
        show_json([{"name": name, "about": about} for name, about in told])
        return
    for name, about in told:
        print(f"{name:<{_INDENT}}{about}")


def doctor(as_json: Json = False) -> None:
    """Say what is installed, what is missing, and how to get it."""
    from unskew.terminal.doctor import doctor, lines

    found = doctor()
    if as_json:
        show_json(found)
    else:
        print("\n".join(lines(found)))
    if not found["ok"]:
        raise typer.Exit(1)


def _show(all_of_them: list[Described], name: str | None, as_json: bool) -> None:
    """All of them, or one with its settings."""
    from unskew.settings import known

    if name is not None:
        known("name", name, [each["name"] for each in all_of_them])
        all_of_them = [each for each in all_of_them if each["name"] == name]
    if as_json:
        show_json(all_of_them if name is None else all_of_them[0])
        return
    for each in all_of_them:
        print(f"{each['name']:<{_INDENT}}{each['about']}")
        if each["reference"]:
            print(" " * _INDENT + each["reference"])
        if name is not None:
            print("".join(f"\n{line}" for setting in each["settings"] for line in _lines(setting)))


def _lines(setting: Setting, indent: str = "  ") -> list[str]:
    """A setting: its name, what it may be, its default, and what it does."""
    may = " or ".join(map(str, setting["choices"])) if setting["choices"] else setting["type"]
    bounds = "".join(f", {bound}" for bound in setting["bounds"])
    unit = f" ({setting['unit']})" if setting["unit"] else ""
    default = "required" if setting["required"] else f"default {_toml(setting['default'])}"
    lines = ["", f"{indent}{setting['name']}: {may}{unit}{bounds}; {default}"]
    lines += [f"{indent}    {line}" for line in wrap(setting["help"], 100)]
    for inner in setting.get("settings", []):
        lines += _lines(inner, indent + "    ")
    return lines


def _toml(value: object) -> str:
    """A default as it is written in TOML, where it can be.

    >>> _toml(True), _toml("a"), _toml([1, 2]), _toml(None), _toml({"a": 1})
    ('true', '"a"', '[1, 2]', 'none', '{ a = 1 }')
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else f'"{value}"' if isinstance(value, str) else f"{value}"
