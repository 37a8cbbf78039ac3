"""The commands on logs: those that make, reduce and track them, look into them, and join what was found."""

from functools import partial

import typer

from unskew.errors import CANNOT_TELL, NO
from unskew.options import logs as options
from unskew.terminal.flags import CsvFile, Force, Json, JsonFile, PageFile, facts_of, in_flags
from unskew.terminal.output import show_facts, show_result, show_rows, show_written, tell, typed, warn


def ingest(asked: options.IngestArguments, as_json: Json = False) -> None:
    """Print what was read, after warnings of what its reader should not miss."""
    from unskew.logs.ingest.ingest import ingest
    from unskew.pages.ingested import ingest_page

    made = ingest(**asked.given())
    for warning in made.warnings:
        warn(in_flags(warning))
    show_result(made, as_json, partial(ingest_page, asked.out))


def split(asked: options.SplitArguments, as_json: Json = False) -> None:
    """Print the sizes of the parts."""
    from unskew.logs.split import split

    found = split(**asked.given())
    show_facts(found, as_json)
    if not found.parts["train"]:
        unit = found.split_by.replace("_id", "s")
        warn(f"train has no {unit}: too few, or too many began in one second; `learn` takes a whole log too")


def simulate(asked: options.SimulateArguments, as_json: Json = False) -> None:
    """Print what was written."""
    from unskew.workflows.twins.simulate import simulate_to

    show_facts(simulate_to(asked), as_json)


def twin(asked: options.TwinArguments, as_json: Json = False) -> None:
    """Print what was fitted and written."""
    from unskew.workflows.twins.simulate import twin_to

    show_facts(twin_to(asked, typed()), as_json)


def traffic(asked: options.TrafficArguments, as_json: Json = False) -> None:
    """Print what was written."""
    from unskew.workflows.twins.simulate import traffic_to

    show_facts(traffic_to(asked), as_json)


def display_times(asked: options.DisplayTimesArguments, as_json: Json = False) -> None:
    """Print the page of the model, and write it beside it."""
    from unskew.pages.documents.inspections import examination_page
    from unskew.pages.origins import log_origin
    from unskew.tracking.display_times import display_times

    found = display_times(**asked.given())
    show_written(found, as_json, examination_page(found, log_origin(asked.log), typed()), asked.out)


def diagnose(asked: options.DiagnoseArguments, as_json: JsonFile = None) -> None:
    """Print the verdict in short, or all of it as JSON."""
    from unskew.workflows.inspections.diagnosis import brief, diagnose

    found = diagnose(**asked.given(), json=None if as_json == "-" else as_json, command=typed())
    show_result(found, as_json == "-", brief, asked.out)


def causes(asked: options.CausesArguments, as_json: Json = False) -> None:
    """Print the graph, and write its page."""
    from unskew.pages.documents.inspections import causes_page
    from unskew.pages.origins import log_origin
    from unskew.workflows.inspections.causes import causes

    graph = causes(**asked.given())
    show_written(graph, as_json, causes_page(graph, log_origin(asked.log), typed()), asked.out)


def compare_click_models(asked: options.ClickModelsArguments, as_json: Json = False) -> None:
    """Print the table of models, and write its page."""
    from unskew.pages.documents.inspections import click_models_page
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
    from unskew.workflows.inspections.report import report

    page = report(**asked.given(), command=typed())
    show_result(page, as_json, lambda page: page, asked.out)


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


counts, track, judge, impute = map(facts_of, ("counts", "track", "judge", "impute"))
