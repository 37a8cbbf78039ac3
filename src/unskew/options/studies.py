"""VerbOptions of what learns many times over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from unskew.options.base import (
    COLUMNS,
    DOC_IDS,
    FORCE,
    LOG,
    SEED,
    Columns,
    Files,
    Place,
    Typed,
    VerbOptions,
    argument,
    option,
)


class DemoArguments(VerbOptions):
    """Make a world where clicks mislead, learn with and without debiasing, and show the difference."""

    out: Place = option(Path("demo-run"), "Folder to write.")
    seed: int = SEED
    queries: int = option(2000, "Training queries.", ge=20)
    pages: int = option(1_000_000, "Result pages shown.", ge=1000)
    steps: int = option(800, "Training steps of each method.", ge=1)
    force: bool = FORCE


class PlanArguments(VerbOptions):
    """Say how many shuffled pages, which method and how long, by trying them on a twin of the log."""

    log: Place = argument(LOG)
    features: Files = option(None, "Features of the log's documents, to try methods; repeatable.")
    shares: Annotated[tuple[float, ...], Typed(str)] = option(
        (0.0, 0.01, 0.05), "Shares of shuffled pages to try, as 0,0.01,0.05."
    )
    pages: Annotated[tuple[int, ...] | None, Typed(str)] = option(
        None, "Numbers of pages, as 10000,50000; the log's, and four times as many."
    )
    methods: Annotated[tuple[str, ...] | None, Typed(list[str])] = option(
        None, "Method to try; repeatable. naive and dla.", flag="--method", table="methods"
    )
    ranker: str = option("linear", "What learns.", table="rankers")
    repeats: int = option(3, "Logs drawn for each line of the table.", ge=1)
    daily: float | None = option(None, "Pages that you show a day, to tell days.")
    seed: int = SEED
    doc_ids: bool = DOC_IDS
    columns: Columns = COLUMNS


class CompareArguments(VerbOptions):
    """Compare methods on simulated clicks or on a real log, and say whether debiasing is worth it."""

    config: Place = argument("TOML compare file.", metavar="COMPARE.toml")
    out: Place = option(None, "Folder to write, instead of the usual one.")
    jobs: int | None = option(None, "Processes; two where processors and memory allow, unless given.", ge=1)
    force: bool = FORCE


class ReproduceArguments(VerbOptions):
    """Try a table or figure of a paper again, and show its numbers beside what comes out."""

    name: str | None = argument("Recipe; without one they are listed.", default=None, table="recipes")
    data: Annotated[tuple[Path | str, ...] | None, Typed(list[Path])] = option(
        None, "Folder with data sets; may be repeated. Without it UNSKEW_DATA names one."
    )
    on: Annotated[tuple[str, ...] | None, Typed(list[str])] = option(
        None,
        "Data set: yahoo, istella, mq2008, mslr, generated; may be repeated.",
        known=("yahoo", "istella", "mq2008", "mslr", "generated"),
    )
    out: Place = option(None, "Folder to write, instead of the usual one.")
    seeds: int | None = option(None, "How many, instead of the recipe's.", ge=1)
    pages: int | None = option(None, "Pages of each log, instead of the recipe's.", ge=1)
    steps: int | None = option(None, "Training steps, instead of the recipe's.", ge=1)
    quick: bool = option(False, "Tiny: see that it runs, not what comes out.")
    queries: int | None = option(None, "Queries of generated lists.", ge=2)
    features: int | None = option(None, "Features of generated lists.", ge=4)
    jobs: int | None = option(None, "Processes; two where processors and memory allow, unless given.", ge=1)
    force: bool = FORCE
