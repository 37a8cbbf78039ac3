"""Several processes behind one socket: started again when they die, ended with their parent, counted together.

uvicorn starts them. What is served is told to them in one environment variable, which names the file of the token,
not the token. Each has models, a store and a log file of its own; counts lie in a folder that all of them write to
(`prometheus_client.multiprocess`), so `/metrics` of any of them speaks for all.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.errors import optional
from unskew.files import scratch_folder
from unskew.serving.service.impressions import recover
from unskew.serving.service.server import ServePlan, build_app

if TYPE_CHECKING:
    from fastapi import FastAPI

TOLD, COUNTS = "UNSKEW_SERVE", "PROMETHEUS_MULTIPROC_DIR"
"""Environment variables: what to serve, and where processes count. The second is prometheus_client's own."""


def run_workers(plan: ServePlan, heard: socket.socket, workers: int, options: Mapping[str, object]) -> None:
    """Serve in several processes until interrupted."""
    uvicorn = optional("uvicorn", "serve")
    with scratch_folder() as counts:
        os.environ |= {TOLD: plan.model_dump_json(), COUNTS: str(counts)}
        own = "unskew.serving.service.workers:worker"
        uvicorn.run(own, factory=True, workers=workers, fd=heard.fileno(), **options)
    if plan.log is not None:
        recover(Path(plan.log))  # what processes that were killed left open


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
