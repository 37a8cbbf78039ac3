"""The commands that learn, once or many times over, and that use, serve and export what was learned."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.errors import ConfigError, Option
from unskew.options import runs as options
from unskew.results import Result
from unskew.settings import listed
from unskew.terminal.flags import CsvFile, Force, Json, PageFile, Quiet, facts_of
from unskew.terminal.output import (
    messages,
    show_facts,
    show_result,
    show_rows,
    show_written,
    tell,
    typed,
    warn,
)

if TYPE_CHECKING:
    from unskew.pages.console import Tell
    from unskew.pages.page import Page
    from unskew.serving.explore import PolicyCost
    from unskew.serving.requests.bodies import ModelAnswer


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
    from unskew.workflows.proofs.measure import ship

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


def demo(asked: options.DemoArguments, quiet: Quiet = False, as_json: Json = False) -> None:
    """Show the difference, and say how to serve the result."""
    from unskew.studies.demo import demo, serving_lines

    try:
        done = demo(**asked.given(), console=messages(quiet=quiet))
    except KeyboardInterrupt:
        tell("Interrupted; nothing was written.")
        raise typer.Exit(130) from None
    _show_study((done.page, asked.out, "results.json", done), quiet, as_json)
    for line in () if quiet else serving_lines(asked.out):
        tell(line)


def plan(asked: options.PlanArguments, out: PageFile = None, force: Force = False, as_json: Json = False) -> None:
    """Print what was tried, and write its page."""
    from unskew.pages.page_files import page_place
    from unskew.studies.plan import plan, plan_page

    place = page_place(out, force=force)
    found = plan(**asked.given())
    page = plan_page(found, f"Tried on a twin fitted to {asked.log}; no real user was involved.", typed())
    show_written(found, as_json, page, place)


def compare(asked: options.CompareArguments, quiet: Quiet = False, as_json: Json = False) -> None:
    """Show the cells as they end, then the comparison."""
    from unskew.studies.compare.compare import compare
    from unskew.studies.compare.report import comparison_page

    def run(tell: Tell | None) -> Done:
        result = compare(**asked.given(), tell=tell)
        return comparison_page(result), result.out, "results.parquet", result

    study(run, force=asked.force, quiet=quiet, as_json=as_json)


Done = tuple["Page", Path, str, Result]
"""What a study came to: its page, its folder, the file of all numbers, and what it found."""


def study(run: Callable[[Tell | None], Done], *, force: bool, quiet: bool, as_json: bool) -> None:
    """Run a study with a bar over its cells, and show it; it fails where a cell did."""
    from unskew.pages.console import grid_bar

    try:
        with grid_bar(messages(quiet=quiet)) as told:
            page, out, numbers, found = run(told)
    except KeyboardInterrupt:
        again = "without --force to go on" if force else "again to go on"
        tell(f"Interrupted. What is done is kept: run the same command {again}.")
        raise typer.Exit(130) from None
    _show_study((page, out, numbers, found), quiet, as_json)
    if page.failed:
        raise typer.Exit(1)


def _show_study(done: Done, quiet: bool, as_json: bool) -> None:
    """A study as its page or as JSON, and where it lies."""
    page, out, numbers, found = done
    show_result(found, as_json, lambda _: page)
    if not quiet:
        tell(f"Open {out / 'report.html'}; all numbers are in {out / numbers}.")


def serve(
    asked: options.ServeArguments,
    chance: options.ExploreArguments,
    check: Annotated[
        bool, typer.Option("--check", help="Load the models, say what would be served, and end.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Serve until stopped; say where, and what."""
    from unskew.serving.service.server import build_app, plan_of, reach_store, run_server

    plan = plan_of(asked, _explored(chance))
    if trouble := reach_store(plan):
        warn(f"{trouble}; requests that need it are answered with 503 until it is there")
    _warn_of_others(asked.host, asked.token_file)
    shown = partial(_show_served, cost=plan.cost(), quiet=quiet, as_json=as_json)
    if check:
        shown(None, build_app(plan).state.listed())
        return
    run_server(plan, asked, shown)


def _explored(chance: options.ExploreArguments) -> dict[str, object] | None:
    """What is left to chance, as the server is told of it."""
    given = chance.given()
    if given and "policy" not in given:
        raise ConfigError((Option(next(iter(given))), " is for ", Option("explore", "POLICY")))
    if "swap_plan" in given:
        given["swap_plan"] = str(given["swap_plan"].resolve())
    return given or None


def _warn_of_others(host: str, token_file: Path | None) -> None:
    """Say who else may ask, or may read the token."""
    from unskew.serving.service.server import is_loopback, is_shared

    if token_file is None and not is_loopback(host):
        warn(f"{host} is open to others, and no token is asked for; see --token-file")
    if token_file is not None and is_shared(token_file):
        warn(f"{token_file} can be read by others of this machine; chmod 600 {token_file}")


def _show_served(
    address: str | None, models: list[ModelAnswer], *, cost: PolicyCost | None, quiet: bool, as_json: bool
) -> None:
    """Where what is served, at once and in one line, since a server does not end; and what chance costs."""
    if as_json:
        told = {"address": address, "models": [model.model_dump() for model in models]}
        print(json.dumps(told | ({} if cost is None else {"explore": asdict(cost)})), flush=True)
    elif not quiet:
        names = listed([f"{model.name} ({model.method}, {model.engine})" for model in models])
        tell(f"{names} can be served" if address is None else f"Serving {names} at {address}")
        if cost is not None:
            tell(f"Explored by {cost.policy_id}: {cost.sentence}.")


store = facts_of("store")


def export(asked: options.ExportArguments, as_json: Json = False) -> None:
    """Print what was written, or what can be."""
    from unskew.serving.export import TARGETS, export, possible

    if asked.to is not None:
        show_facts(export(**asked.given()), as_json)
        return
    if asked.out is not None:
        raise ConfigError(("say in which form: ", Option("to"), f" {', '.join(TARGETS)}"))
    show_facts(possible(asked.run), as_json)
    if not as_json:
        tell(f"Write one with: unskew export {asked.run} --to NAME --out PLACE")
