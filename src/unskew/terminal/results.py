"""The commands that take something from a run: predict and propensity."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.flags import Column, DocIds, Force, Json, Tracked, passed
from unskew.terminal.printing import show_facts, tell


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    features: Annotated[
        list[str], typer.Option(help="Features as of training: table (Parquet, CSV) or LETOR file; repeatable.")
    ],
    candidates: Annotated[
        list[str] | None,
        typer.Option(help="Table with query_id and doc_id, as a log, where no features have both; repeatable."),
    ] = None,
    out: Annotated[str, typer.Option(help="File to write, .parquet or .csv; - prints CSV.")] = "-",
    column: Column = None,
    doc_ids: DocIds = False,
    tracked: Tracked = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Score and rank the documents of queries with a run."""
    given = passed(locals(), "as_json")
    from unskew.workflows.inspections.predict import predict

    if as_json and out == "-":
        print(json.dumps(predict(**given | {"out": None}).table.to_pylist(), indent=2))
        return
    made = predict(**given)
    if as_json:
        show_facts(made, as_json)
    else:
        where = "" if out == "-" else f", in {out}"
        tell(f"Scored {made.documents:,} documents of {made.queries:,} queries{where}.")


def propensity(
    source: Annotated[Path, typer.Argument(help="Run folder, or a log.", metavar="RUN|LOG")],
    csv: Annotated[
        str | None, typer.Option(help="Write CSV to this file, - for standard output.", metavar="FILE")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="How a log is measured: shuffled (pages), or swaps (of documents).")
    ] = None,
    max_weight: Annotated[float | None, typer.Option(min=1, help="Clip weights at this value.")] = None,
    feedback: Annotated[str | None, typer.Option(help="Column in the place of click.")] = None,
    column: Column = None,
    as_json: Json = False,
) -> None:
    """Say how likely each rank is looked at, by a run or from a log, and what a click there weighs."""
    given = passed(locals(), "as_json", "csv")
    from unskew.files import write_text
    from unskew.workflows.inspections.propensity import propensity

    found = propensity(**given)
    if csv == "-":
        sys.stdout.write(found.csv_text())
        return
    if csv is not None:
        write_text(Path(csv), found.csv_text())
        tell(f"{len(found.position)} ranks, by {found.found_by}, in {csv}.")
    if found.note is not None:
        tell(f"Note: {found.note}.")
    if as_json:
        show_facts(found.to_dict(), as_json)
    elif csv is None:
        tell(f"By {found.found_by}.")
        print(f"{'position':>8}  {'examination':>11}  {'weight':>8}")
        for rank, seen, weight in zip(found.position, found.theta, found.weight, strict=True):
            print(f"{rank:>8}  {seen:>11.4f}  {weight:>8.3f}")
