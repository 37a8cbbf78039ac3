"""The commands that make, reduce and track logs: ingest, split, counts, simulate, twin, traffic, track, judge."""

from __future__ import annotations

from unskew.options import logs as options
from unskew.terminal.flags import Json, in_flags
from unskew.terminal.output import show_facts, show_result, typed, warn


def ingest(asked: options.IngestArguments, as_json: Json = False) -> None:
    """Print what was read, after warnings of what its reader should not miss."""
    from unskew.logs.ingest.ingest import ingest
    from unskew.pages.ingested import ingest_page

    made = ingest(**asked.given())
    for warning in made.warnings:
        warn(in_flags(warning))
    show_result(made, as_json, lambda made: ingest_page(asked.out, made))


def split(asked: options.SplitArguments, as_json: Json = False) -> None:
    """Print the sizes of the parts."""
    from unskew.logs.split import split

    found = split(**asked.given())
    show_facts(found, as_json)
    if not found.parts["train"]:
        unit = found.split_by.replace("_id", "s")
        warn(f"train has no {unit}: too few, or too many began in one second; `learn` takes a whole log too")


def counts(asked: options.CountsArguments, as_json: Json = False) -> None:
    """Print what was counted."""
    from unskew.logs.counts.rankings import counts

    show_facts(counts(**asked.given()), as_json)


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
    from unskew.pages.page import write_page
    from unskew.tracking.log_examination import display_times

    found = display_times(**asked.given())
    page = examination_page(found, log_origin(asked.log), typed())
    write_page(page, asked.out)
    show_result(found, as_json, lambda _: page)


def track(asked: options.TrackArguments, as_json: Json = False) -> None:
    """Print what was counted."""
    from unskew.tracking.track import track

    show_facts(track(**asked.given()), as_json)


def judge(asked: options.JudgeArguments, as_json: Json = False) -> None:
    """Print what was written."""
    from unskew.tracking.judgments import judge

    show_facts(judge(**asked.given()), as_json)


def impute(asked: options.ImputeArguments, as_json: Json = False) -> None:
    """Print what was written."""
    from unskew.workflows.inspections.impute import impute

    show_facts(impute(**asked.given()), as_json)
