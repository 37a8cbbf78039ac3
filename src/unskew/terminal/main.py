"""The command line: which commands there are, and how their errors are told."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from unskew import __version__
from unskew.errors import UnskewError, printable
from unskew.terminal.about import behaviours, methods
from unskew.terminal.diagnosis import causes
from unskew.terminal.flags import flat
from unskew.terminal.logs import counts, ingest, simulate, split
from unskew.terminal.runs import learn, measure
from unskew.terminal.studies import compare, demo, reproduce
from unskew.terminal.tracking import examination, impute, judge, track, traffic
from unskew.terminal.translating import as_flags, flags_of

COMMANDS = (
    demo,
    simulate,
    traffic,
    ingest,
    split,
    examination,
    track,
    impute,
    judge,
    counts,
    causes,
    learn,
    measure,
    compare,
    reproduce,
    methods,
    behaviours,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Unbiased learning to rank: turn biased click logs into rankings you can trust.",
)


class Command(TyperCommand):
    """A command whose errors speak of flags where the library speaks of arguments, with help as it is written."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """What stands in brackets in a help text is not markup."""
        super().__init__(*given, **named)
        if self.rich_markup_mode == "rich":
            told: list[Any] = [self, *self.params]
            for one in told:
                one.help = plain(getattr(one, "help", None))

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except UnskewError as error:
            error.args = (as_flags(str(error), flags_of(self.params)),)
            raise


def plain(text: str | None) -> str | None:
    """A text that rich prints as it stands: a backslash before a bracket, so that it opens no tag."""
    return None if text is None else text.replace("[", "\\[")


for command in COMMANDS:
    app.command(cls=Command)(flat(command))


def main() -> None:
    """Run the command line; errors of ours are one line on standard error and exit status 1."""
    # threads that spin while they wait make a busy machine many times slower; torch reads this when it is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.environ.get("WORLD_SIZE", "1") != "1":  # torchrun: torch advises on speed, once in every process
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        app()
    except UnskewError as error:
        print(f"unskew: {error}", file=sys.stderr)
        sys.exit(error.status)
    except OSError as error:
        named = "" if error.filename is None else f"{printable(os.fsdecode(error.filename))}: "
        print(f"unskew: {named}{error.strerror or error}", file=sys.stderr)
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
