"""The commands that serve a run, fill its store, or write it for others: serve, store, export."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.errors import ConfigError, Option
from unskew.options import serving as options
from unskew.settings import listed
from unskew.terminal.flags import Json, Quiet, facts_of
from unskew.terminal.output import show_facts, tell, warn

if TYPE_CHECKING:
    from unskew.serving.explore import PolicyCost
    from unskew.serving.requests.bodies import ModelAnswer


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
    shown = partial(_show, cost=plan.cost(), quiet=quiet, as_json=as_json)
    if check:
        shown(None, build_app(plan).state.listed())
        return
    run_server(plan, asked, shown)


def _explored(chance: options.ExploreArguments) -> dict[str, object] | None:
    """What is left to chance, as the server is told of it."""
    given = chance.given()
    if given and "explore" not in given:
        raise ConfigError((Option(next(iter(given))), " is for ", Option("explore", "POLICY")))
    if "swap_plan" in given:
        given["swap_plan"] = str(given["swap_plan"].resolve())
    return {"policy": given.pop("explore"), **given} if given else None


def _warn_of_others(host: str, token_file: Path | None) -> None:
    """Say who else may ask, or may read the token."""
    from unskew.serving.service.server import is_loopback, is_shared

    if token_file is None and not is_loopback(host):
        warn(f"{host} is open to others, and no token is asked for; see --token-file")
    if token_file is not None and is_shared(token_file):
        warn(f"{token_file} can be read by others of this machine; chmod 600 {token_file}")


def _show(
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
