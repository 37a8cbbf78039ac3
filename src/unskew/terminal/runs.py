"""The commands about a run: learn, measure, ship, importance, predict."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import typer

from unskew.options import runs as options
from unskew.terminal.flags import CsvFile, Json, Quiet
from unskew.terminal.output import messages, show_facts, show_result, show_rows, tell, typed


def learn(asked: options.LearnArguments, quiet: Quiet = False, as_json: Json = False) -> None:
    """Show the training as it goes, then where the run stands."""
    from unskew.pages.console import training_bar
    from unskew.workflows.runs.learn import learn_request
    from unskew.workflows.runs.request import ask
    from unskew.workflows.runs.run import Run

    trained = {name: value for name, value in (("seed", asked.seed), ("steps", asked.steps)) if value is not None}
    asking = ask(asked.log, **asked.given("log", "seed", "steps", "out", "force"), options=trained)
    settings, place = asking.settings, asking.folder(asked.out)
    leads = os.environ.get("RANK", "0") == "0"  # of torchrun's processes the first one speaks
    if leads and (asking.sources.is_log("validation") or asking.sources.is_log("test")):
        tell(str(asking.sources))
    name = "auto" if settings.auto else settings.method.name
    with training_bar(name, settings.steps, messages(quiet=quiet or not leads)) as report:
        done = learn_request(asking, place, force=asked.force, report=report)
    if not leads:
        return
    if done.metrics.auto is not None:
        tell(done.metrics.auto.because)
    status = done.fit.status
    show_result(replace(done, folder=place), as_json, Run.page)
    if status == "interrupted":
        tell(f"Run the same command again {'without --force to go on' if asked.force else 'to go on'}.")
        raise typer.Exit(130)
    if not quiet:
        tell(f"To do it again: unskew learn {place / 'run.toml'} --out FOLDER")


def measure(asked: options.MeasureArguments, as_json: Json = False) -> None:
    """Print how the ranking does, and say where the page is."""
    from unskew.pages.documents.summaries import measure_page
    from unskew.workflows.proofs.measure import measure

    show_result(measure(**asked.given(), command=typed()), as_json, measure_page, asked.out)


def ship(asked: options.ShipArguments, as_json: Json = False) -> None:
    """Print the decision; the status says it too."""
    from unskew.pages.documents.proof import ship_page
    from unskew.workflows.proofs.ship import ship

    found = ship(**asked.given(), command=typed())
    show_result(found, as_json, ship_page, asked.out)
    if found.status:
        raise typer.Exit(found.status)


def predict(asked: options.PredictArguments, as_json: Json = False) -> None:
    """Print scores as CSV or JSON, or say where they are."""
    from unskew.workflows.inspections.predict import predict

    out = asked.out or "-"
    if as_json and out == "-":
        print(json.dumps(predict(**asked.given("out")).table.to_pylist(), indent=2))
        return
    made = predict(**asked.given("out"), out=out)
    if as_json:
        show_facts(made, as_json)
    else:
        where = "" if out == "-" else f", in {out}"
        tell(f"Scored {made.documents:,} documents of {made.queries:,} queries{where}.")


def importance(asked: options.ImportanceArguments, csv: CsvFile = None, as_json: Json = False) -> None:
    """Print what matters, as text, CSV or JSON."""
    from unskew.workflows.inspections.importance import importance

    found = importance(**asked.given())
    by = f", by {found.measured}" if found.measured else ""
    show_rows(found, csv, as_json, f"{len(found.names)} features{by}")
