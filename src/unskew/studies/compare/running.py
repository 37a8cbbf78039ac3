"""Cells that are missing, run one after another or in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path

import torch

from unskew.errors import RunError
from unskew.pages.console import Tell
from unskew.studies.compare.keeping import Task, read_cell, run_cell


def run_missing(cells: Sequence[Task], folder: Path, jobs: int, tell: Tell | None = None) -> None:
    """Run the cells that have no result yet; each keeps its own, so an end half-way loses only the unfinished."""
    distinct = {cell.key: cell for cell in cells}  # behaviours share the arms that look at no clicks
    missing = [cell for cell in distinct.values() if (read_cell(folder, cell) or {}).get("status") != "finished"]
    done = len(distinct) - len(missing)
    steps = _inline(missing, folder) if jobs == 1 or len(missing) < 2 else _in_processes(missing, folder, jobs)
    with closing(steps):
        for finished, running in steps:
            done += finished
            if tell is not None:
                tell(done, len(distinct), running)
    if tell is not None and not missing:
        tell(done, done, [])


Steps = Generator[tuple[int, list[str]], None, None]
"""How many cells have just ended, and what is under way."""


def _inline(cells: Sequence[Task], folder: Path) -> Steps:
    """Run one after another."""
    for cell in cells:
        yield 0, [str(cell)]
        run_cell(cell, folder)
        yield 1, []


def _in_processes(cells: Sequence[Task], folder: Path, jobs: int) -> Steps:
    """Run in processes of their own, with no more handed out than are run, so that Ctrl-C leaves little behind."""
    spawn = multiprocessing.get_context("spawn")  # a forked process may hang on torch's threads
    pool = ProcessPoolExecutor(min(jobs, len(cells)), mp_context=spawn, initializer=_start_worker)
    waiting, running = list(cells), dict[Future[str | None], Task]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running[pool.submit(run_cell, cell, folder)] = cell
            yield 0, [str(cell) for cell in running.values()]
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                running.pop(future)
                future.result()
            yield len(ended), [str(cell) for cell in running.values()]
    except BrokenProcessPool as error:
        raise RunError(
            "a process was killed, perhaps for memory; cells that are done are kept: run fewer at once, jobs="
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """One thread for each process; Ctrl-C is the parent's to handle, and the trainer's between two steps."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
