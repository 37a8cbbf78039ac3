"""The command line: which commands there are, and how their errors are told."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from unskew import __version__
from unskew.errors import UnskewError
from unskew.terminal.about import behaviours, methods
from unskew.terminal.flags import flat
from unskew.terminal.logs import counts, ingest, simulate, split
from unskew.terminal.runs import learn, measure
from unskew.terminal.studies import compare, demo, reproduce

COMMANDS = (demo, simulate, ingest, split, counts, learn, measure, compare, reproduce, methods, behaviours)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Unbiased learning to rank: turn biased click logs into rankings you can trust.",
)


class Command(TyperCommand):
    """A command whose errors speak of flags where the library speaks of arguments."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except UnskewError as error:
            error.args = (in_flags(str(error), [name for each in self.params for name in each.opts]),)
            raise


def in_flags(text: str, flags: list[str]) -> str:
    """`force=True` as `--force` and `out=` as `--out`, where the command has such a flag.

    >>> in_flags("choose another out=, or force=True; give validation=", ["--out", "--force"])
    'choose another --out, or --force; give validation='
    """
    known = {flag.lstrip("-").replace("-", "_"): flag for flag in flags}

    def spoken(found: re.Match[str]) -> str:
        return known.get(found[1], found[0])

    return re.sub(r"\b([a-z][a-z_]*)=(?:True\b)?(?=[\s;,:.)]|$)", spoken, text)


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
    except (UnskewError, OSError) as error:
        print(f"unskew: {error}", file=sys.stderr)
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
