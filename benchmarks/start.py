"""What it takes to begin: `import unskew`, `unskew --help`, `unskew --version`, each in a process of its own."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from common import Options, Row, spread

GOALS = {
    "python -c pass": ("-c", "pass", None),
    "import unskew": ("-c", "import unskew", 100),
    "unskew --help": ("-m", "unskew --help", 300),
    "unskew learn --help": ("-m", "unskew learn --help", 300),
    "unskew catalogue": ("-m", "unskew catalogue", None),
}
"""What is run, and the most milliseconds of processor time that it may take."""


def starting(options: Options) -> list[Row]:
    """Processor time of each, start of Python included."""
    rows = []
    for what, (flag, words, goal) in GOALS.items():
        arguments = [words] if flag == "-c" else words.split()
        times = [spent(flag, *arguments) for _ in range(max(options.repeats, 5))]
        middle = statistics.median(times)
        promised, met = ("", None) if goal is None else (f"under {goal} ms", middle < goal)
        rows.append(Row(what, f"{middle:.0f} ms of processor time", spread(times, 0), promised, met))
    return rows


def spent(*arguments: str) -> float:
    """Milliseconds of processor time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
