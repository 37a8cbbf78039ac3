"""Simulate into a file: labelled lists in, a log in Parquet out, and the log in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from unskew.errors import ConfigError, Key, Option
from unskew.files import complete_file, refuse_existing, write_json, write_text
from unskew.logs.log import write_log
from unskew.measuring import ndcg_metric
from unskew.options.base import VerbOptions
from unskew.options.logs import SimulateArguments, TrafficArguments, TwinArguments
from unskew.pages.documents.inspections import twin_page
from unskew.pages.origins import behaviour_words
from unskew.pages.web import html
from unskew.results import Result
from unskew.settings import checked, kind_of, read_toml, table_of
from unskew.simulation import (
    BEHAVIOURS,
    LOGGERS,
    Behaviour,
    Logger,
    ScoresLogger,
    Simulation,
    Traffic,
    logging_scores,
)
from unskew.simulation.logger import find_logger
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.letor import write_letor
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.lists import read_lists
from unskew.workflows.twins.fitting import shown_order
from unskew.workflows.twins.twin import truth_table, twin

SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class SimulatedLog(Result):
    """A log that was simulated into a file, in numbers; files beside it are None where there are none."""

    log: str
    pages: int
    impressions: int
    clicks: int
    click_rate: float
    without_a_click: float
    """Share of the pages that have no click."""
    short_of_a_page: float
    """Share of the slots that stayed empty, were all pages as long as the longest."""
    logging_ndcg: float | None
    """nDCG@10 of the order that was shown."""
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    """Lists that were made with the log."""
    truth: str | None = None
    """The file with relevance and grades of a twin."""
    fitted: str | None = None
    """What a twin was fitted to be."""
    click_model: str | None = None
    examination_from: str | None = None
    ranks_off: tuple[int, ...] | None = None
    """Ranks at which the twin's click rates are not the log's."""
    notes: tuple[str, ...] | None = None
    absent = (
        *("train", "validation", "test", "truth", "fitted"),
        *("click_model", "examination_from", "ranks_off", "notes"),
    )

    @classmethod
    def of(cls, out: Path, log: Log, scores: Array, **others: Any) -> SimulatedLog:
        """The numbers of a log, whose documents have these logging scores."""
        clicked = np.add.reduceat(log.click.astype(np.int64), log.offsets[:-1]) > 0
        ndcg = ndcg_metric(scores, log.lists.labels, offsets=log.lists.offsets)
        return cls(
            log=str(out),
            pages=len(log),
            impressions=len(log.row),
            clicks=int(log.click.sum()),
            click_rate=round(float(log.click.mean()), 4),
            without_a_click=round(1 - float(clicked.mean()), 4),
            short_of_a_page=round(1 - len(log.row) / (len(log) * int(log.sizes.max())), 4),
            logging_ndcg=None if np.isnan(ndcg).all() else round(float(np.nanmean(ndcg)), 4),
            **others,
        )


def simulate_to(asked: SimulateArguments) -> SimulatedLog:
    """Simulate a log into a Parquet file; what was written, in numbers."""
    people = configured(
        asked.config, behaviour=(asked.behaviour, BEHAVIOURS, Behaviour), logger=(asked.logger, LOGGERS, Logger)
    )
    return _written(asked, checked(Simulation, _fields(Simulation, asked) | people, None))


def traffic_to(asked: TrafficArguments) -> SimulatedLog:
    """Simulate the traffic of a search engine into a Parquet file, as `simulate_to`."""
    world = checked(Traffic, _fields(Traffic, asked) | {"logger": find_logger(asked.logger)}, None)
    return _written(asked, world, () if asked.truth else ("true_examined", "true_examination", "true_relevance"))


def _fields(world: type[Simulation | Traffic], asked: VerbOptions) -> dict[str, Any]:
    return {name: value for name, value in asked.given().items() if name in world.model_fields}


def _written(
    asked: SimulateArguments | TrafficArguments, world: Simulation | Traffic, hidden: Sequence[str] = ()
) -> SimulatedLog:
    """Draw the log and write it, and lists that were made beside it; what was written, in numbers."""
    out = asked.out
    _refuse(out, [out], asked.force)
    if SYNTHETIC in asked.lists:
        if len(asked.lists) > 1:
            raise ConfigError("synthetic stands alone", argument="lists")
        parts = synthetic_parts(asked.queries, asked.features, asked.documents, world.seed)
        beside = {out.with_suffix(f".{name}.txt"): part for name, part in parts.items()}
        _refuse(out, beside, asked.force)
        shown = next(iter(beside.values()))
    else:
        shown, beside = read_lists(asked.lists, asked.doc_ids), {}
    scores = logging_scores(shown, world.logger, world.seed)
    log = world.model_copy(update={"logger": ScoresLogger(values=scores)}).draw(shown)
    log = replace(log, columns={name: column for name, column in log.columns.items() if name not in hidden})
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, part in beside.items():
        write_letor(part, path)
    words = "a search engine with trust bias" if isinstance(world, Traffic) else behaviour_words(world.behaviour)
    write_log(log, out, simulated=words)
    files = {path.suffixes[-2][1:]: str(path) for path in beside}
    return SimulatedLog.of(out, log, scores, **files)


def _refuse(out: Path, written: Iterable[Path], force: bool) -> None:
    """Refuse a log that is no Parquet file, and files that are there."""
    if out.suffix != ".parquet":
        raise ConfigError(f"{out} must end in .parquet", argument="out")
    for path in written:
        refuse_existing(path, force=force)


def twin_to(asked: TwinArguments, command: str = "") -> SimulatedLog:
    """Fit a twin to a log and simulate from it into a Parquet file; what was written, in numbers.

    Beside the log lie the twin's relevance and grades (.truth.parquet) and what was fitted (.twin.json).
    """
    out, report = asked.out, asked.report
    beside = {"truth": out.with_suffix(".truth.parquet"), "fitted": out.with_suffix(".twin.json")}
    _refuse(out, [out, *beside.values(), *([] if report is None else [report])], asked.force)
    given: dict[str, Any] = {"features": asked.features, "doc_ids": asked.doc_ids, "columns": asked.columns}
    made = twin(asked.log, **given, seed=asked.seed)
    drawn, told = made.simulate(asked.pages, randomized=asked.randomized, seed=asked.seed), made.report()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_log(drawn, out, simulated=f"a twin of {asked.log}, click model {made.model.name}")
    with complete_file(beside["truth"]) as ready:
        pq.write_table(truth_table(made), ready)
    write_json(beside["fitted"], told)
    if report is not None:
        write_text(report, html(twin_page(told, f"A twin fitted to {asked.log}.", command)))
    files = {name: str(path) for name, path in beside.items()}
    fitted: dict[str, Any] = {"click_model": told.model, "examination_from": told.examination_from}
    fitted |= {"ranks_off": told.ranks_off, "notes": told.notes}
    return SimulatedLog.of(out, drawn, shown_scores(drawn), **files, **fitted)


def shown_scores(log: Log) -> Array:
    """Documents by how high they were shown on average, [N]; those never shown come last."""
    order = shown_order(log)
    lowest = -float(log.position.max(initial=1)) - 1.0
    return np.where(np.isnan(order), lowest, order)


def configured(path: Path | None, **asked: tuple[str, Mapping[str, type[Any]], type[Any]]) -> dict[str, Any]:
    """What each key names, with the settings of the file's table of that key."""
    tables = {} if path is None else read_toml(path)
    unknown = sorted(set(tables) - set(asked))
    if unknown:
        raise ConfigError(f"unknown table {', '.join(unknown)}. Known: {', '.join(sorted(asked))}.", path=path)
    made = {}
    for key, (name, kinds, own) in asked.items():
        kind_of(key, name, kinds, own)
        try:
            if not isinstance(tables.get(key, {}), dict):
                raise ConfigError(f"input should be a table, not {tables[key]!r}", argument=Key(key))
            made[key] = table_of(key, {"name": name} | tables.get(key, {}), kinds, own)
        except ConfigError as error:
            error.path = path
            if key not in tables:
                error.hint = (f"{key} {name} needs a file with its settings, ", Option("config"))
            raise
    return made


def synthetic_parts(queries: int, features: int, documents: int, seed: int) -> dict[str, Lists]:
    """Training, validation and test lists of one world; the latter have a quarter of the queries each."""
    counts = {"train": queries, "validation": max(queries // 4, 1), "test": max(queries // 4, 1)}
    return {
        part: make_lists(count, features, documents, seed=seed * 3 + index)
        for index, (part, count) in enumerate(counts.items())
    }
