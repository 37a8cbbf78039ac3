"""The commands about what a run learned: importance and export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.errors import ConfigError
from unskew.terminal.completing import names_of
from unskew.terminal.flags import Column, DocIds, Force, Json, Seed, Tracked, passed
from unskew.terminal.printing import show_facts, tell

if TYPE_CHECKING:
    from unskew.workflows.inspections.importance import Importances


def importance(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    log: Annotated[
        Path | None,
        typer.Option(help="Log that the run did not learn from, to shuffle each feature on its pages."),
    ] = None,
    features: Annotated[
        list[str] | None, typer.Option(help="Features of its documents, tables or LETOR files; repeatable.")
    ] = None,
    column: Column = None,
    tracked: Tracked = None,
    doc_ids: DocIds = False,
    repeats: Annotated[int, typer.Option(min=1, help="How often each feature is shuffled.")] = 5,
    pages: Annotated[int, typer.Option(min=1, help="Most distinct pages, drawn at random of more.")] = 20_000,
    seed: Seed = 0,
    csv: Annotated[
        str | None, typer.Option(help="Write CSV to this file, - for standard output.", metavar="FILE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a run looks at, by feature: gains of trees, weights, and what clicks of a log say."""
    given = passed(locals(), "as_json", "csv")
    from unskew.workflows.inspections.importance import importance

    found = importance(**given)
    if csv is not None:
        show_csv(found, csv)
    if as_json:
        show_facts(found.to_dict(), as_json)
    elif csv is None:
        if found.measured:
            tell(f"By {found.measured}.")
        wide = max(len(name) for name in ("feature", *found.names))
        print("  ".join(["feature".ljust(wide), *(f"{name:>11}" for name in found.columns)]))
        for row in found.rows():
            cells = ("" if row[name] is None else f"{row[name]:.5f}" for name in found.columns)
            print("  ".join([row["feature"].ljust(wide), *(cell.rjust(11) for cell in cells)]))


def show_csv(found: Importances, place: str) -> None:
    """CSV to a file, or to standard output."""
    if place == "-":
        sys.stdout.write(found.csv_text())
    else:
        found.write_csv(place)
        tell(f"{len(found.names)} features, in {place}.")


def export(
    run: Annotated[Path, typer.Argument(help="Run folder; or a log, or a table of judgments.")],
    out: Annotated[Path | None, typer.Option(help="File to write, or folder for an engine.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="lightgbm, onnx, solr, opensearch, elasticsearch, vespa, propensities, quepid or workbench; "
            "without it, what is possible is told.",
            autocompletion=names_of("exports"),
        ),
    ] = None,
    lists: Annotated[
        list[Path] | None,
        typer.Option(help="Documents that trees learn the scores of, where an engine cannot run the model."),
    ] = None,
    candidates: Annotated[
        list[str] | None,
        typer.Option(help="Log or table with query_id and doc_id, where --lists are features of items alone."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the model is called in the engine.")] = None,
    rows: Annotated[
        Path | None,
        typer.Option(help="Log whose rows get weights, in files beside OUT that LightGBM and XGBoost read."),
    ] = None,
    max_weight: Annotated[float | None, typer.Option(min=1, help="Clip weights at this value.")] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Leave out grades that are less likely right; 0.5 unless given.")
    ] = None,
    top: Annotated[
        float | None, typer.Option(help="Relevance where grades end; its 95th percentile unless given.")
    ] = None,
    column: Column = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model in a form that others run: search engines, LightGBM, ONNX; or judgments as grades."""
    given = passed(locals(), "as_json", "to")
    from unskew.serving.export import TARGETS, export, possible

    if to is not None:
        show_facts(export(to=to, **given), as_json)
        return
    if out is not None:
        raise ConfigError(f"say in which form: --to {', '.join(TARGETS)}")
    show_facts(possible(run), as_json)
    if not as_json:
        tell(f"Write one with: unskew export {run} --to NAME --out PLACE")
