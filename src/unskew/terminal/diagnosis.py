"""The commands that look into a log, compare logs, and join what was found into a page."""

from __future__ import annotations

import typer

from unskew.errors import CANNOT_TELL, NO
from unskew.options import logs as options
from unskew.terminal.flags import CsvFile, Force, Json, JsonFile, PageFile
from unskew.terminal.output import show_result, show_rows, show_written, tell, typed


def diagnose(asked: options.DiagnoseArguments, as_json: JsonFile = None) -> None:
    """Print the verdict in short, or all of it as JSON."""
    from unskew.workflows.inspections.diagnosis import brief, diagnose

    found = diagnose(**asked.given(), json=None if as_json == "-" else as_json, command=typed())
    show_result(found, as_json == "-", brief, asked.out)


def causes(asked: options.CausesArguments, as_json: Json = False) -> None:
    """Print the graph, and write its page."""
    from unskew.pages.documents.causes import causes_page
    from unskew.pages.origins import log_origin
    from unskew.workflows.inspections.causes import causes

    graph = causes(**asked.given())
    show_written(graph, as_json, causes_page(graph, log_origin(asked.log), typed()), asked.out)


def compare_click_models(asked: options.ClickModelsArguments, as_json: Json = False) -> None:
    """Print the table of models, and write its page."""
    from unskew.pages.documents.click_models import click_models_page
    from unskew.pages.origins import log_origin
    from unskew.workflows.inspections.click_models import compare_click_models

    found = compare_click_models(**asked.given())
    show_written(found, as_json, click_models_page(found, log_origin(asked.log), typed()), asked.out)


def propensity(asked: options.PropensityArguments, csv: CsvFile = None, as_json: Json = False) -> None:
    """Print examination and weight by rank, as text, CSV or JSON."""
    from unskew.workflows.inspections.propensity import propensity

    found = propensity(**asked.given())
    show_rows(found, csv, as_json, f"{len(found.position)} ranks, by {found.found_by}")
    if found.note is not None:
        tell(f"Note: {found.note}.")


def drift(asked: options.DriftArguments, as_json: Json = False) -> None:
    """Print what changed; the status says whether it matters."""
    from unskew.pages.documents.drift import drift_page
    from unskew.workflows.inspections.diagnosis import drift

    found = drift(**asked.given(), command=typed())
    show_result(found, as_json, drift_page, asked.out)
    if found.changed:
        raise typer.Exit(NO)
    if found.propensities == "cannot tell":
        raise typer.Exit(CANNOT_TELL)


def report(asked: options.ReportArguments, as_json: Json = False) -> None:
    """Say where the page is, and print it."""
    from unskew.pages.page_files import page_dict
    from unskew.workflows.inspections.report import report

    page = report(**asked.given(), command=typed())
    show_result(page_dict(page) if as_json else {}, as_json, lambda _: page, asked.out)


def experiment(
    asked: options.ExperimentArguments, out: PageFile = None, force: Force = False, as_json: Json = False
) -> None:
    """Print the verdict, and write its page."""
    from unskew.pages.documents.experiment import experiment_page
    from unskew.pages.origins import log_origin
    from unskew.pages.page_files import page_place
    from unskew.workflows.proofs.experiment import experiment

    place = page_place(out, force=force)
    found = experiment(**asked.given())
    show_written(found, as_json, experiment_page(found, log_origin(asked.log), typed()), place)
