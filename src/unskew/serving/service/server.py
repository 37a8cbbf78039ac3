"""`unskew serve`: what to serve, checked; models opened, the service made, and uvicorn started.

Several processes stand behind one socket: uvicorn starts them, again when they die, and they end with their
parent. What is served is told to them in one environment variable, which names the file of the token, not the
token. Each has models, a store and a log file of its own; counts lie in a folder that all of them write to
(`prometheus_client.multiprocess`), so `/metrics` of any of them speaks for all.
"""

from __future__ import annotations

import errno
import gc
import ipaddress
import math
import multiprocessing
import os
import secrets
import signal
import socket
import stat
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from unskew.errors import ConfigError, Option, StoreError, optional
from unskew.files import scratch_folder
from unskew.options.runs import ServeArguments
from unskew.serving.explore import ExploreSettings, Policy, PolicyCost, policy_cost
from unskew.serving.scoring.models import Models
from unskew.serving.settings import Limits, ServeSettings
from unskew.settings import checked, did_you_mean, read_toml

if TYPE_CHECKING:
    from fastapi import FastAPI

    from unskew.serving.requests.bodies import ModelAnswer

NEEDED = ("fastapi", "uvicorn", "orjson", "prometheus_client")
TOLD, COUNTS = "UNSKEW_SERVE", "PROMETHEUS_MULTIPROC_DIR"
"""Environment variables: what to serve, and where processes count. The second is prometheus_client's own."""
AS_ASKED = ("shadows", "coins", "tell_chances", "signed_pages", "other_features")
"""Settings of a server that are options of the same name."""


class ServePlan(ServeSettings):
    """What a server process is told; dumped it has no token, but the name of its file."""

    models: dict[str, str] = Field(min_length=1)
    """Folders by name; the first answers who asks for none."""
    token_file: str | None = None
    store: str | None = None
    """Where features are looked up."""
    explore: ExploreSettings | None = None
    log: str | None = None
    """Folder where pages and clicks are written."""
    secret_file: str | None = None
    takes: dict[str, frozenset[str]] = Field(default_factory=dict)
    """What callers bring for each model, so that all processes take up the same."""

    def check(self) -> None:
        """Refuse what does not go together."""
        if self.log is not None and Path(self.log).is_file():
            raise ConfigError("it is a file; name a folder", argument="log", value=self.log)
        if self.signed_pages and self.log is None:
            raise ConfigError(
                (Option("signed_pages"), " goes with ", Option("log"), " FOLDER, which clicks are for")
            )
        if self.signed_pages and self.secret_file is None:
            told = " FILE: ids that another start signed would be refused; the file is made where there is none"
            raise ConfigError((Option("signed_pages"), " needs ", Option("secret_file"), told))
        if self.explore is None:
            if self.coins != "request":
                raise ConfigError(("is for ", Option("explore")), argument="coins", value=self.coins)
            return
        if self.log is None:
            told = " FOLDER: chance that is not written down teaches nothing"
            raise ConfigError((Option("explore"), " needs ", Option("log"), told))
        against, others = self.explore.against, list(self.models)[1:]
        if against is not None and against not in others:
            hint = did_you_mean(against, others) if others else "Give its run after the first."
            raise ConfigError(f"no second model is called so. {hint}", argument="against", value=against)

    def policy(self) -> Policy | None:
        """The policy that leaves some pages to chance; None where none was asked for."""
        return None if self.explore is None else self.explore.build(next(iter(self.models)))

    def cost(self) -> PolicyCost | None:
        """What that policy costs in clicks; None without one."""
        policy = self.policy()
        return None if policy is None else policy_cost(policy)


def read_token(path: Path) -> str:
    """The token or secret in a file, which has at least 16 characters."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: the token or secret cannot be read: {said}") from error
    if len(token) < 16 or any(each.isspace() for each in token):
        raise ConfigError(f"{path}: a token or secret is one word of 16 characters or more")
    return token


def make_secret(path: Path) -> Path:
    """A file with a secret that only its owner can read; one that is there stays."""
    with suppress(OSError):  # who reads it tells
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(file, secrets.token_urlsafe(32).encode())
        os.close(file)
    return path


def is_shared(path: Path) -> bool:
    """Whether others than its owner can read a file."""
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def plan_of(asked: ServeArguments, explore: ExploreSettings | Mapping[str, object] | None = None) -> ServePlan:
    """What a server process is told, checked."""
    limits = asked.limits
    if isinstance(limits, Path | str):
        place = Path(limits)
        try:
            limits = checked(Limits, read_toml(place), "")
        except ConfigError as error:
            error.path = error.path or place
            raise
    content: dict[str, object] = {
        "models": named([Path(run) for run in asked.runs], asked.names),
        "limits": limits or Limits(),
        "explore": dict(explore) if isinstance(explore, Mapping) else explore,
        **{name: getattr(asked, name) for name in AS_ASKED},
        "store": None if asked.store is None else str(asked.store),
    }
    for name in ("token_file", "secret_file", "log"):
        path = getattr(asked, name)
        content[name] = None if path is None else str(Path(path).resolve())
    plan = checked(ServePlan, content, "")
    plan.check()
    return plan


def named(runs: Sequence[Path], names: Sequence[str]) -> dict[str, str]:
    """Folders by name: the names given, then those of the folders."""
    if len(names) > len(runs):
        told = f"{len(names)} names, and {len(runs)} run{'s' * (len(runs) > 1)}"
        raise ConfigError(told, argument="names")
    found: dict[str, str] = {}
    for at, run in enumerate(runs):
        name = names[at] if at < len(names) else Path(os.path.abspath(run)).name
        if name in found:
            raise ConfigError(f"two models are called {name}; give each a name")
        found[name] = str(run.absolute())  # a link may be switched
    return found


def build_app(plan: ServePlan, *, patience: float = 0.0) -> FastAPI:
    """The application of a plan, its models loaded; for so many seconds it waits for those that cannot be."""
    for package in NEEDED:
        optional(package, "serve")
    hidden: dict[str, object] = {}
    if plan.token_file is not None:
        hidden["token"] = read_token(Path(plan.token_file))
    if plan.secret_file is not None:
        hidden["secret"] = read_token(make_secret(Path(plan.secret_file))).encode()
    policy = plan.policy()
    from unskew.serving.service.answers import Answering
    from unskew.serving.service.app import make_app
    from unskew.serving.service.impressions import ImpressionLog
    from unskew.serving.store import open_store
    from unskew.serving.telemetry import log_to_stderr

    store = None if plan.store is None else open_store(plan.store)
    log_to_stderr()
    folders = {name: Path(each) for name, each in plan.models.items()}
    models = Models.open(folders, patience=patience, takes=plan.takes, other_features=plan.other_features)
    warnings.simplefilter("ignore")  # of single requests; what they bring is answered, not warned of
    impressions = None if plan.log is None else ImpressionLog(plan.log)
    settings = plan.model_copy(update=hidden)
    against = None if plan.explore is None else plan.explore.against
    app = make_app(Answering(models, settings, store, policy, impressions, against))
    gc.collect()
    gc.freeze()  # what is here stays; looking at it again and again would hold requests up
    return app


def reach_store(plan: ServePlan) -> str | None:
    """What is wrong with the store now, where it may come back; a folder that is none is an error."""
    if plan.store is None:
        return None
    for package in NEEDED:
        optional(package, "serve")
    from unskew.serving.store import open_store

    with open_store(plan.store) as store:
        try:
            store.view()
        except StoreError as error:
            if "://" not in plan.store:
                raise
            return str(error)
    return None


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        busy = getattr(error, "errno", 0) == errno.EADDRINUSE
        hint = ("take another with ", Option("port"), ", or 0 for any") if busy else None
        raise ConfigError(f"cannot listen at {host}:{port}: {said}", hint=hint) from error


def serve(
    runs: Path | str | Sequence[Path | str],
    *,
    names: Sequence[str] = (),
    shadows: Sequence[str] = (),
    store: Path | str | None = None,
    log: Path | str | None = None,
    secret_file: Path | str | None = None,
    coins: Literal["request", "user"] = "request",
    tell_chances: bool = False,
    signed_pages: bool = False,
    other_features: bool = False,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | str | None = None,
    workers: int = 1,
    limits: Path | str | None = None,
    explore: ExploreSettings | Mapping[str, object] | None = None,
    tell: Callable[[str, list[ModelAnswer]], None] | None = None,
) -> None:
    """Serve run folders over HTTP until interrupted, as `unskew serve` does.

    The first of several answers who asks for none. `explore` is such as {"policy": "shuffle", "share": 0.05}.
    `tell` is called with the address and the models once requests are taken; it prints the address unless given.
    The rest are the fields of `ServeArguments`, as the command's flags say them.
    """
    given = {name: value for name, value in locals().items() if name in ServeArguments.model_fields}
    several = (runs,) if isinstance(runs, Path | str) else tuple(runs)
    asked = checked(ServeArguments, given | {"runs": several}, None)
    said = tell or (lambda address, _: print(address, flush=True))
    run_server(plan_of(asked, explore), asked, said)


def run_server(plan: ServePlan, asked: ServeArguments, tell: Callable[[str, list[ModelAnswer]], None]) -> None:
    """Serve until interrupted; `tell` is called with the address once all is loaded and requests are taken."""
    app = build_app(plan)
    uvicorn = optional("uvicorn", "serve")
    options = uvicorn_options(plan.limits)
    with listen(asked.host, asked.port) as heard:
        host = f"[{asked.host}]" if ":" in asked.host else asked.host
        tell(f"http://{host}:{heard.getsockname()[1]}/", app.state.listed())
        with suppress(KeyboardInterrupt):  # which ends a server in good order
            if asked.workers == 1:
                uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[heard])
                return
            with scratch_folder() as counts:
                plan = plan.model_copy(update={"takes": app.state.takes})
                if plan.secret_file is None:  # the same page from every process
                    plan = plan.model_copy(update={"secret_file": str(make_secret(counts / "secret"))})
                os.environ |= {TOLD: plan.model_dump_json(), COUNTS: str(counts)}
                own = "unskew.serving.service.server:worker"
                uvicorn.run(own, factory=True, workers=asked.workers, fd=heard.fileno(), **options)
            if plan.log is not None:
                from unskew.serving.service.impressions import recover

                recover(Path(plan.log))  # what processes that were killed left open


def uvicorn_options(limits: Limits) -> dict[str, Any]:
    """How uvicorn is run."""
    from unskew.serving.service.connections import Connection, most_connections

    return {
        "http": Connection,  # of httptools, a tenth faster than h11
        "backlog": min(2048, most_connections()),  # as many are accepted at once
        "ws": "none",
        "proxy_headers": False,  # who asks is not looked at
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "limit_concurrency": limits.connections,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": 10,
        "timeout_worker_healthcheck": 10,  # a busy machine takes its time to start one
    }


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---- processes


def worker() -> FastAPI:
    """The application in a process that uvicorn started, perhaps in the place of one that died: others answer."""
    _follow_parent()
    _forget_dead(Path(os.environ[COUNTS]))
    with _ended_by_signals():
        return build_app(ServePlan.model_validate_json(os.environ[TOLD]), patience=math.inf)


def _follow_parent() -> None:
    """End, in good order, when the parent is gone, killed or not."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Signals end the process at once while it loads, which may wait for ever; uvicorn would only note them."""
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _forget_dead(folder: Path) -> None:
    """Take what dead processes are doing out of the counts; what they did stays."""
    multiprocess = optional("prometheus_client.multiprocess", "serve")
    for path in folder.glob("gauge_live*.db"):
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            multiprocess.mark_process_dead(pid, str(folder))
