"""The command that serves runs over HTTP."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.errors import ConfigError
from unskew.settings import listed
from unskew.terminal.completing import one_of
from unskew.terminal.flags import Json, Quiet, Seed
from unskew.terminal.printing import tell, warn

if TYPE_CHECKING:
    from unskew.serving.explore import PolicyCost
    from unskew.serving.requests.bodies import ModelAnswer


@dataclass(frozen=True)
class ExploreOptions:
    """What is left to chance."""

    explore: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Leave some pages to chance: top_one, swaps, shuffle, plackett_luce, team_draft.",
            autocompletion=one_of("top_one", "swaps", "shuffle", "plackett_luce", "team_draft"),
        ),
    ] = None
    share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of traffic that takes part; 0.05 unless given.")
    ] = None
    cap: Annotated[int | None, typer.Option(min=0, help="Ranks that a result moves at most.")] = None
    depth: Annotated[int | None, typer.Option(min=1, help="First results that take part; 10 unless given.")] = None
    temperature: Annotated[float | None, typer.Option(help="Of plackett_luce: higher is more random.")] = None
    swap_plan: Annotated[
        Path | None, typer.Option(metavar="REPORT.json", help="Of swaps: the file of `unskew diagnose --json`.")
    ] = None
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of team_draft: the model to interleave with.")
    ] = None

    def settings(self) -> dict[str, object] | None:
        """As the server is told of them."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if "explore" not in given:
            if given:
                raise ConfigError(f"--{next(iter(given)).replace('_', '-')} is for --explore POLICY")
            return None
        if self.swap_plan is not None:
            given["swap_plan"] = str(self.swap_plan.resolve())
        return {"policy": given.pop("explore"), **given}


def serve(
    run: Annotated[list[Path], typer.Argument(help="Run folders; the first answers who asks for none.")],
    chance: ExploreOptions,
    name: Annotated[
        list[str] | None, typer.Option(help="What a model is called, in the order of runs; repeatable.")
    ] = None,
    shadow: Annotated[
        list[str] | None,
        typer.Option(help="Name of a model that is scored and logged, and not shown; repeatable."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Store of `unskew store`: a folder, or redis://host:port/db."),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write pages and clicks there, for `unskew ingest`.")
    ] = None,
    seed: Seed = 0,
    host: Annotated[str, typer.Option(help="Address to listen at; the usual one is this machine's alone.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="File with the token that callers must bring.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that answer.")] = 1,
    limits: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Sizes and times past which requests are refused; see the docs."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Load the models, say what would be served, and end.")] = (
        False
    ),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Rank over HTTP: POST /v1/rank, and a page to try it; no torch, reloads when a run changes."""
    from unskew.serving.service.server import build_app, plan_of, reach_store, run_server

    plan = plan_of(
        run,
        names=name or (),
        shadows=shadow or (),
        store=store,
        explore=chance.settings(),
        log=log,
        seed=seed,
        token_file=token_file,
        limits=limits,
    )
    if trouble := reach_store(plan):
        warn(f"{trouble}; requests that need it are answered with 503 until it is there")
    _warn_of_others(host, token_file)
    shown = partial(_show, cost=plan.cost(), quiet=quiet, as_json=as_json)
    if check:
        shown(None, build_app(plan).state.listed())
        return
    run_server(plan, host=host, port=port, workers=workers, tell=shown)


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
