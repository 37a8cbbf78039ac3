"""Options that several commands have, and how groups of them reach a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from unskew.terminal.completing import names_of, one_of
from unskew.terminal.printing import working

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MAYBE_JSON = "[FILE.json]"
"""What an option is told by that takes a file, or nothing to mean standard output."""
JsonFile = Annotated[
    str | None, typer.Option("--json", help="Write JSON to a file, or print it.", metavar=MAYBE_JSON)
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of whatever is drawn.")]
Impressions = Annotated[Path, typer.Argument(help="Parquet file, or a folder of them.")]
OutFolder = Annotated[Path | None, typer.Option("--out", help="Folder to write, instead of the usual one.")]
AnyLists = Annotated[list[str], typer.Option("--lists", help="LETOR file (may be repeated), or synthetic.")]
LogFile = Annotated[Path, typer.Option("--out", help="Parquet file to write.")]
Logger = Annotated[
    str,
    typer.Option(
        "--logger",
        help="What ranked the pages: svm, random, oracle, feature.",
        autocompletion=names_of("loggers"),
    ),
]
Queries = Annotated[int, typer.Option("--queries", min=1, help="Synthetic lists: queries.")]
Features = Annotated[int, typer.Option("--features", min=4, help="Synthetic lists: features.")]
Documents = Annotated[int, typer.Option("--documents", min=2, help="Synthetic lists: documents a query.")]
DocIds = Annotated[bool, typer.Option("--doc-ids", help="Take document ids from the comments of the files.")]
Column = Annotated[
    list[str] | None,
    typer.Option("--column", help="OURS=THEIRS, as position=rank, where a file has other names; repeatable."),
]
Tracked = Annotated[
    Path | None,
    typer.Option("--tracked", help="Store of `unskew track` whose clicks are features, as the run had them."),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Processes; two where processors and memory allow, unless given."),
]


@dataclass(frozen=True)
class EngineOptions:
    """The engine that a log is read with."""

    engine: Annotated[str, typer.Option(help="duckdb or spark.", autocompletion=one_of("duckdb", "spark"))] = (
        "duckdb"
    )
    spark_master: Annotated[str | None, typer.Option(help="local[N], spark://host:port, sc://host:port.")] = None
    memory: Annotated[str | None, typer.Option(help="Memory for the engine, such as 4GB.")] = None
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the engine.")] = None
    scratch: Annotated[Path | None, typer.Option(help="Folder to spill to, instead of the system's.")] = None


def flat(command: Callable[..., None], *, progress: bool = False) -> Callable[..., None]:
    """The command with an option for each field of the groups that it takes.

    With `progress`, a command that shows none of its own says now and then that it is at work, and takes --quiet.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    hushed = progress and "quiet" not in hints

    def run(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        with working(command.__name__, quiet=given.pop("quiet")) if hushed else nullcontext():
            command(**given, **made)

    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        inside = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, parameter.kind, default=f.default, annotation=inside[f.name])
            for f in fields(group)
        ]
    if hushed:
        parameters.append(
            inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
        )
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def passed(given: Mapping[str, Any], *but: str) -> dict[str, Any]:
    """The arguments of a command as its function takes them: groups opened, and none that was not given.

    What `--column` names becomes `columns`.
    """
    opened: dict[str, Any] = {}
    for name, value in given.items():
        opened |= vars(value) if is_dataclass(value) else {name: value}
    if "column" in opened:
        opened["columns"] = renames(opened.pop("column"))
    return {name: value for name, value in opened.items() if value is not None and name not in but}


def renames(given: Sequence[str] | None) -> dict[str, str] | None:
    """Our names to theirs, as `--column` has them; None where it was not given."""
    pairs = [_pair(text) for text in given or ()]
    ours = [name for name, _ in pairs]
    for name in ours:
        if ours.count(name) > 1:
            raise typer.BadParameter(f"{name}: named twice", param_hint="--column")
    return dict(pairs) or None


def _pair(text: str) -> tuple[str, str]:
    """OURS=THEIRS, taken apart."""
    ours, sign, theirs = (part.strip() for part in text.partition("="))
    if not sign or not ours or not theirs:
        raise typer.BadParameter(f"{text}: write it like position=rank", param_hint="--column")
    return ours, theirs
