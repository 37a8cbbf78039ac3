"""The commands that make, reduce and track logs: ingest, split, counts, simulate, twin, traffic, track, judge."""

from __future__ import annotations

from functools import partial

from unskew.options import logs as options
from unskew.terminal.flags import Json, facts_of, in_flags
from unskew.terminal.output import show_facts, show_result, show_written, typed, warn


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

    show_facts(simulate_to(**asked.given()), as_json)


def twin(asked: options.TwinArguments, as_json: Json = False) -> None:
    """Print what was fitted and written."""
    from unskew.workflows.twins.simulate import twin_to

    show_facts(twin_to(command=typed(), **asked.given()), as_json)


def traffic(asked: options.TrafficArguments, as_json: Json = False) -> None:
    """Print what was written."""
    from unskew.workflows.twins.simulate import traffic_to

    show_facts(traffic_to(**asked.given()), as_json)


def display_times(asked: options.DisplayTimesArguments, as_json: Json = False) -> None:
    """Print the page of the model, and write it beside it."""
    from unskew.pages.documents.examination import examination_page
    from unskew.pages.origins import log_origin
    from unskew.tracking.log_examination import display_times

    found = display_times(**asked.given())
    show_written(found, as_json, examination_page(found, log_origin(asked.log), typed()), asked.out)


counts, track, judge, impute = map(facts_of, ("counts", "track", "judge", "impute"))
