"""A comparison: every behaviour, method, setting and seed, each learned once, then tables and a verdict.

A second call runs only what is missing: cells that were interrupted, that failed, or whose settings changed. Cells
of settings that are no longer asked for stay, for the day they are asked for again. With force a comparison begins
anew beside its place, in `NAME.partial`, and takes the place when it is done; the old one stays until then.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unskew.files import Ours, complete_folder, is_free, locked, publish, refuse_existing, remove, write_text
from unskew.options.runs import CompareArguments
from unskew.pages.console import Tell
from unskew.pages.numbers import command_line
from unskew.pages.origins import log_origin, simulated_on
from unskew.pages.page import PAGE_FILES
from unskew.simulation import ScoresLogger
from unskew.studies.compare.cells import Cell, Comparison, Finding, read_cell, run_missing
from unskew.studies.compare.config import Asked, asked_for, read_compare_file
from unskew.studies.compare.logged import LogComparison, RealLog, judged, log_cells, read_log
from unskew.studies.compare.report import write_report
from unskew.studies.compare.simulated import ListParts, compared, forget, lists_words, make_cell, read_data
from unskew.studies.compare.verdict import log_verdict

COMPARE_MARK = "compare.json"
"""The file by which a folder is known for a comparison."""
COMPARISON = Ours(COMPARE_MARK, ("cells/*.json", "cells/*.npy", "results.parquet", *PAGE_FILES))
"""What lies in the folder of a comparison."""
STARTED = Ours(COMPARE_MARK, ("*",))
"""A comparison that is gone on with, whatever else lies in its folder."""
UNRUN = {"status": "failed", "error": "was not run"}
_MEMORY = 700_000_000  # bytes of a process with torch that has not read anything yet


@CompareArguments.checks
def compare(
    config: Path | str | Mapping[str, Any],
    out: Path | str | None = None,
    *,
    base: Path | str = ".",
    force: bool = False,
    jobs: int | None = None,
    tell: Tell | None = None,
) -> Comparison:
    """Run what a compare file asks for and is not there yet, and write tables and report into `out`.

    `config` is the file, or its content with paths relative to `base`. Cells that fail are in the result's
    `failed`; the others are run all the same. On a real log, `data.log`, nothing is simulated and no label chosen
    by: the result is a `LogComparison`.
    """
    asked = asked_for(config, Path(base)) if isinstance(config, Mapping) else read_compare_file(Path(config))
    place = Path(os.path.normpath(asked.base / asked.file.out)) if out is None else Path(out)
    refuse_existing(place, force=True, ours=COMPARISON if force else STARTED)
    forget()
    data = asked.file.data
    splits = read_data(data, asked.base) if data.log is None else read_log(data, asked.base)
    workers = jobs or _jobs(asked, splits)
    place.parent.mkdir(parents=True, exist_ok=True)
    again = "" if isinstance(config, Mapping) else command_line("compare", config, out=out, jobs=jobs)
    with locked(place):
        afresh = place.with_name(place.name + ".partial")  # beside what force is to replace when all is done
        refuse_existing(afresh, force=True, ours=COMPARISON)
        if force:
            remove(afresh)
        working = afresh if afresh.exists() or (force and not is_free(place)) else place
        result = compared_in(working, asked, splits, workers, tell, again)
        if working != place:
            publish(working, place, force=True, ours=COMPARISON)
    return replace(result, out=place)


def compared_in(
    place: Path, asked: Asked, source: ListParts | RealLog, jobs: int, tell: Tell | None, command: str = ""
) -> Comparison:
    """Run what is missing in a folder, and write what was found."""
    about, folder = asked.file.model_dump_json(indent=2) + "\n", place / "cells"
    with complete_folder(place) if is_free(place) else nullcontext(place) as begun:  # never without its mark
        write_text(begun / COMPARE_MARK, about)
    folder.mkdir(exist_ok=True)
    cells = log_cells(asked, source.hash) if isinstance(source, RealLog) else grid(asked, source)
    run_missing(cells, folder, jobs, tell)
    found = tuple(Finding(cell, read_cell(folder, cell) or UNRUN) for cell in cells)
    result: Comparison
    if isinstance(source, RealLog):
        chosen, rows = judged(source, asked.seeds, found)
        graded = any(row.graded is not None for row in rows)
        beside = "labels lie beside and chose nothing" if graded else "no labels"
        origin = log_origin(asked.base / str(asked.file.data.log), beside)
        notes = tuple(tuning_notes(asked))
        result = LogComparison(place, found, notes, chosen, tuple(rows), log_verdict(rows))
    else:
        origin = simulated_on(asked.behaviours.values(), [lists_words(asked.file.data)])
        labels, told = source.validation is not None, notes_on(asked, source)
        result = compared(place, list(asked.behaviours), found, told, labels=labels, baselines=asked.baselines)
    result = replace(result, origin=origin, command=command)
    write_report(result)
    return result


def grid(asked: Asked, splits: ListParts) -> Sequence[Cell]:
    """Every cell; those that share a log stand together."""
    unlearned = ["random"] if isinstance(asked.logger, ScoresLogger) else ["random", "logging"]
    arms = [(arm.label, len(arm.points)) for arm in asked.arms] + [(name, 1) for name in unlearned]
    return [
        make_cell(asked, splits.hashes, behaviour, label, index, seed)
        for behaviour in asked.behaviours
        for seed in asked.seeds
        for label, points in arms
        for index in range(points)
    ]


def notes_on(asked: Asked, splits: ListParts) -> list[str]:
    """What a reader of the tables should know."""
    notes = []
    if isinstance(asked.logger, ScoresLogger):  # it cannot rank other lists than those it logged
        notes.append("There is no arm `logging`: its scores are given for the training lists only.")
    if splits.validation is None:
        notes.append("There are no validation lists, so settings are chosen on held-out clicks only.")
    if len(asked.seeds) == 2:
        notes.append("Two seeds say little of how seeds differ, so few differences are significant; take more.")
    points = [point for arm in asked.arms for point in arm.points]
    if any(point.training.validate_on == "labels" for point in points):
        notes.append("Weights were chosen on labels of the validation lists, which a log alone does not have.")
    return notes + tuning_notes(asked)


def tuning_notes(asked: Asked) -> list[str]:
    """Which arms were tuned otherwise than the rest."""
    notes = []
    every = {training for arm in asked.arms for training in arm.trainings}
    fewer = [arm.label for arm in asked.arms if arm.trainings and set(arm.trainings) != every]
    if fewer:
        notes.append(
            "Tried with fewer training settings than others, so that a difference may be tuning alone: "
            f"{', '.join(fewer)}."
        )
    apart = [arm.label for arm in asked.arms if arm.trained_apart]
    if apart:
        notes.append(f"Trained with settings of their own: {', '.join(apart)}.")
    return notes


def _jobs(asked: Asked, source: ListParts | RealLog) -> int:
    """Two processes where there are two processors and memory for both, else one."""
    if isinstance(source, RealLog):
        logs = [log for log in (source.train, source.validation, source.test) if log is not None]
        features, pages = source.train.lists.features.nbytes, sum(map(len, logs))
    else:
        features = sum(part.features.nbytes for part in (source.train, source.validation, source.test) if part)
        pages = asked.file.pages or 5 * (asked.file.clicks or 0)
    each, available = _MEMORY + 3 * features + 500 * pages, float("inf")
    with suppress(OSError, StopIteration):  # no limit where the system does not say
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return 2 if (os.cpu_count() or 1) > 1 and available > 2 * each else 1
