"""Measure what unskew promises: `python benchmarks/bench.py [--quick] [names...]`, see BENCHMARKS.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from click_models import click_models
from common import Options, Row, machine
from data import reducing, reopening, simulating
from diagnosis import diagnosis
from ingest import ingesting
from large import large
from proof import proof
from rich.console import Console
from rich.table import Table
from score import score
from serving import serving
from start import starting
from step import one_or_two, step
from store import store
from tracking import tracking
from training import training

PARTS: dict[str, Callable[[Options], list[Row]]] = {
    "start": starting,
    "step": step,
    "threads": one_or_two,
    "score": score,
    "simulate": simulating,
    "reopen": reopening,
    "reduce": reducing,
    "ingest": ingesting,
    "tracking": tracking,
    "store": store,
    "serving": serving,
    "naive": partial(training, method="naive"),
    "dla": partial(training, method="dla"),
    "click_models": click_models,
    "diagnosis": diagnosis,
    "proof": proof,
    "large": large,
}


def main() -> None:
    """Run the parts that were asked for and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PARTS, []], help="parts to run; all without names")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for development")
    parser.add_argument("--full", action="store_true", help="the largest sizes too; takes long")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    asked = parser.parse_args()
    options = Options(asked.quick, asked.threads, asked.repeats, asked.full)
    torch.set_num_threads(options.threads)
    console, results = Console(width=None if sys.stdout.isatty() else 150), {}
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()))
    for name in asked.names or PARTS:
        began = time.perf_counter()
        results[name] = PARTS[name](options)
        console.print(table(name, results[name], time.perf_counter() - began))
    if asked.json is not None:
        rows = {name: [asdict(row) for row in part] for name, part in results.items()}
        asked.json.write_text(
            json.dumps({"machine": machine(), "options": asdict(options), "parts": rows}, indent=2)
        )


def table(name: str, rows: list[Row], seconds: float) -> Table:
    """One part's rows."""
    shown = Table(title=f"{name} ({seconds:.0f} s)", title_justify="left")
    for heading in ("what", "measured", "spread", "goal", "met"):
        shown.add_column(heading)
    for row in rows:
        met = "" if row.met is None else "yes" if row.met else "NO"
        shown.add_row(row.what, row.measured, row.spread, row.goal, met)
    return shown


if __name__ == "__main__":
    main()
