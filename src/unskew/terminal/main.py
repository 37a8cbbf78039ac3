"""The command line: which commands there are, and how their errors are told."""

from __future__ import annotations

import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from unskew import __version__
from unskew.errors import STATUSES, UnskewError, printable
from unskew.options import VERBS
from unskew.terminal import logs, runs
from unskew.terminal.flags import FLAGS, MAYBE_JSON, TABLES, Json, as_flag, completes, flags_of, flat
from unskew.terminal.output import show_json, warn

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
        asked = found if kind is None else found.kinds[kind] if name is None else found.kinds[kind][0]
        show_json(asked)
        return
    for title, all_of in found.kinds.items():
        if kind is None:
            print(f"\n{title}\n")
        for each in all_of:
            print(f"{each.name:<{_INDENT}}{each.about}")
            if each.reference:
                print(" " * _INDENT + each.reference)
            if name is not None:
                print("".join(f"\n{line}" for setting in each.settings for line in _lines(setting)))


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
    may = " or ".join(map(str, setting.choices)) if setting.choices else setting.type
    bounds = "".join(f", {bound}" for bound in setting.bounds)
    given = "none" if setting.default is None else json.dumps(setting.default, ensure_ascii=False)
    default = "required" if setting.required else f"default {given}"
    lines = ["", f"{indent}{setting.name}: {may}{bounds}; {default}"]
    lines += [f"{indent}    {line}" for line in wrap(setting.help, 100)]
    for inner in setting.settings or ():
        lines += _lines(inner, indent + "    ")
    return lines


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Begin here": (logs.ingest, logs.diagnose, runs.learn, runs.measure),
    "Decide and watch": (runs.ship, logs.drift, logs.experiment, runs.plan),
    "Use a run": (runs.predict, runs.serve, runs.store, runs.export, runs.importance),
    "Look closer": (logs.propensity, logs.compare_click_models, logs.causes, logs.report),
    "Track clicks and judge": (logs.display_times, logs.track, logs.judge, logs.impute),
    "Make and cut logs": (logs.split, logs.counts, logs.simulate, logs.twin, logs.traffic),
    "Studies": (runs.demo, runs.compare),
    "About": (catalogue, doctor),
}
"""The commands as the help lists them: first the four that a newcomer needs."""
COMMANDS = tuple(command for panel in PANELS.values() for command in panel)


def called(command: Callable[..., None]) -> str:
    """What is typed for a command."""
    return command.__name__.replace("_", "-")


def about(command: Callable[..., None]) -> str:
    """What a command does: the sentence of its options, or its own."""
    return inspect.cleandoc(VERBS.get(command.__name__, command).__doc__ or "")


class Panels(TyperGroup):
    """All commands; the help lists them by stage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # their names are guessed and completed
        self.commands = dict.fromkeys(map(called, COMMANDS))  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, made of its options when it is first asked for."""
        return made(cmd_name) if cmd_name in self.commands else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A section for each panel, the second columns under each other."""
        longest = max(map(len, self.commands))
        for panel, commands in PANELS.items():
            told = [(called(each).ljust(longest), about(each).split("\n\n")[0]) for each in commands]
            with formatter.section(panel):
                formatter.write_dl(told)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The exit statuses of all commands, at the end of the help."""
        with formatter.section("Exit status"):
            formatter.write_dl([(str(status), meaning) for status, meaning in STATUSES.items()])


app = typer.Typer(
    cls=Panels,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes longer to import than all the rest of the help
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 115},
    help="Unbiased learning to rank: turn biased click logs into rankings you can trust.",
)


class Command(TyperCommand):
    """A command whose errors and warnings speak of flags where the library speaks of arguments."""

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """The same whoever asks first: click keeps what it hears then."""
        return ["-h", "--help"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Options that take a file or none, as --json, are given - where none follows."""
        may_lack = {name for option in self.params if option.metavar == MAYBE_JSON for name in option.opts}
        filled = []
        for at, word in enumerate(args):
            filled.append(word)
            if word in may_lack and not "".join(args[at + 1 : at + 2]).endswith(".json"):
                filled.append("-")
        return super().parse_args(ctx, filled)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors are spelled in its flags."""
        FLAGS.set(flags_of(self.params))
        try:
            return super().invoke(ctx)
        except UnskewError as error:
            error.spell = partial(as_flag, FLAGS.get())
            raise


@cache
def made(name: str) -> Any:
    """The command of a name, as click runs it."""
    panel, command = next((panel, each) for panel in PANELS for each in PANELS[panel] if called(each) == name)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command)(flat(command, progress=panel != "About"))
    return typer.main.get_command(alone)


def tell_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line on standard error, without the line of code that it comes from."""
    warn(str(message))


def main(command: typer.Typer = app, name: str = "unskew") -> None:
    """Run a command line; an error is one line on standard error and an exit status, one of `STATUSES`."""
    # threads that spin while they wait make a busy machine many times slower; torch reads this when it is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.environ.get("WORLD_SIZE", "1") != "1":  # torchrun: torch advises on speed, once in every process
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = tell_warning
            command(prog_name=name)  # also where Python was asked to run the module, for completion
    except UnskewError as error:
        print(f"unskew: {error}", file=sys.stderr)
        sys.exit(error.status)
    except OSError as error:
        named = "" if error.filename is None else f"{printable(os.fsdecode(error.filename))}: "
        print(f"unskew: {named}{error.strerror or error}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("unskew: out of memory; give the command fewer rows, or a run file data.memory", file=sys.stderr)
        sys.exit(1)
    except ImportError as error:
        print(f"unskew: {error}; `unskew doctor` says what is missing and how to get it", file=sys.stderr)
        sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        print(f"unskew {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Unbiased learning to rank: turn biased click logs into rankings you can trust."""
