"""Simulate into a file: labelled lists in, a log in Parquet out, and the log in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow.parquet as pq

from unskew.errors import ConfigError, Key, Option
from unskew.files import complete_file, refuse_existing, write_json, write_text
from unskew.logs.log import write_log
from unskew.measuring import ndcg_metric
from unskew.measuring.cmip import shown_order
from unskew.pages.documents.twin import twin_page
from unskew.pages.origins import behaviour_words
from unskew.pages.web import html
from unskew.results import Result
from unskew.settings import checked, known, read_toml, table_of
from unskew.simulation import (
    BEHAVIOURS,
    LOGGERS,
    ScoresLogger,
    Simulation,
    SimulationKeywords,
    Traffic,
    TrafficKeywords,
    logging_scores,
)
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.letor import write_letor
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.lists import read_lists
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
    """Share of the pages."""
    short_of_a_page: float
    """Share of the slots that stayed empty, were all pages as long as the longest."""
    logging_ndcg: float | None
    """nDCG@10 of the order that was shown."""
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    """Lists that were made with the log."""
    truth: str | None = None
    """Relevance and grades of a twin."""
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


def simulate_to(
    out: Path,
    lists: Sequence[str],
    *,
    behaviour: str = "position",
    logger: str = "svm",
    config: Path | None = None,
    queries: int = 2000,
    features: int = 40,
    documents: int = 24,
    doc_ids: bool = False,
    force: bool = False,
    **options: Unpack[SimulationKeywords],
) -> SimulatedLog:
    """Simulate a log into a Parquet file; what was written, in numbers. `options` are fields of `Simulation`.

    `lists` are LETOR files, or "synthetic": then lists are made, and written beside the log for training,
    validation and test. `config` is a TOML file with settings of [behaviour] and [logger].
    """
    people = configured(config, behaviour=(behaviour, BEHAVIOURS), logger=(logger, LOGGERS))
    asked = checked(Simulation, {**people, **options}, None)
    return _written(out, asked, lists, (queries, features, documents), doc_ids, force)


def traffic_to(
    out: Path,
    lists: Sequence[str],
    *,
    logger: str = "svm",
    truth: bool = False,
    queries: int = 2000,
    features: int = 40,
    documents: int = 24,
    doc_ids: bool = False,
    force: bool = False,
    **options: Unpack[TrafficKeywords],
) -> SimulatedLog:
    """Simulate the traffic of a search engine into a Parquet file, as `simulate_to`; `options` are of `Traffic`.

    With `truth` the log has the columns true_examined, true_examination and true_relevance.
    """
    asked = checked(Traffic, {**options, **configured(None, logger=(logger, LOGGERS))}, None)
    hidden = () if truth else ("true_examined", "true_examination", "true_relevance")
    return _written(out, asked, lists, (queries, features, documents), doc_ids, force, hidden)


def _written(
    out: Path,
    asked: Simulation | Traffic,
    lists: Sequence[str],
    sizes: tuple[int, int, int],
    doc_ids: bool,
    force: bool,
    hidden: Sequence[str] = (),
) -> SimulatedLog:
    """Draw the log and write it, and lists that were made beside it; what was written, in numbers."""
    if out.suffix != ".parquet":
        raise ConfigError(f"{out} must end in .parquet", argument="out")
    refuse_existing(out, force=force)
    if SYNTHETIC in lists:
        if len(lists) > 1:
            raise ConfigError("synthetic stands alone", argument="lists")
        parts = synthetic_parts(*sizes, asked.seed)
        beside = {out.with_suffix(f".{name}.txt"): part for name, part in parts.items()}
        for path in beside:
            refuse_existing(path, force=force)
        shown = next(iter(beside.values()))
    else:
        shown, beside = read_lists(lists, doc_ids), {}
    scores = logging_scores(shown, asked.logger, asked.seed)
    log = asked.model_copy(update={"logger": ScoresLogger(values=scores)}).draw(shown)
    log = replace(log, columns={name: column for name, column in log.columns.items() if name not in hidden})
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, part in beside.items():
        write_letor(part, path)
    words = "a search engine with trust bias" if isinstance(asked, Traffic) else behaviour_words(asked.behaviour)
    write_log(log, out, simulated=words)
    files = {path.suffixes[-2][1:]: str(path) for path in beside}
    return SimulatedLog.of(out, log, scores, **files)


def twin_to(
    log: Path,
    out: Path,
    *,
    features: Sequence[str] | None = None,
    pages: int | None = None,
    randomized: float | None = None,
    seed: int = 0,
    doc_ids: bool = False,
    columns: Mapping[str, str] | None = None,
    report: Path | None = None,
    command: str = "",
    force: bool = False,
) -> SimulatedLog:
    """Fit a twin to a log and simulate from it into a Parquet file; what was written, in numbers.

    `features` are those of the log's documents. Beside the log lie the twin's relevance and grades
    (.truth.parquet) and what was fitted (.twin.json); `report` is a page that puts twin and log side by side.
    """
    if out.suffix != ".parquet":
        raise ConfigError(f"{out} must end in .parquet", argument="out")
    beside = {"truth": out.with_suffix(".truth.parquet"), "fitted": out.with_suffix(".twin.json")}
    for path in (out, *beside.values(), *([] if report is None else [report])):
        refuse_existing(path, force=force)
    made = twin(log, features=features, doc_ids=doc_ids, columns=columns, seed=seed)
    drawn, told = made.simulate(pages, randomized=randomized, seed=seed), made.report()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_log(drawn, out, simulated=f"a twin of {log}, click model {made.model.name}")
    with complete_file(beside["truth"]) as ready:
        pq.write_table(truth_table(made), ready)
    write_json(beside["fitted"], told)
    if report is not None:
        write_text(report, html(twin_page(told, f"A twin fitted to {log}.", command)))
    files = {name: str(path) for name, path in beside.items()}
    fitted: dict[str, Any] = {"click_model": told.model, "examination_from": told.examination_from}
    fitted |= {"ranks_off": told.ranks_off, "notes": told.notes}
    return SimulatedLog.of(out, drawn, shown_scores(drawn), **files, **fitted)


def shown_scores(log: Log) -> Array:
    """Documents by how high they were shown on average, [N]; those never shown come last."""
    order = shown_order(log)
    lowest = -float(log.position.max(initial=1)) - 1.0
    return np.where(np.isnan(order), lowest, order)


def configured(path: Path | None, **asked: tuple[str, Mapping[str, type[Any]]]) -> dict[str, Any]:
    """What each key names, with the settings of the file's table of that key."""
    tables = {} if path is None else read_toml(path)
    unknown = sorted(set(tables) - set(asked))
    if unknown:
        raise ConfigError(f"unknown table {', '.join(unknown)}. Known: {', '.join(sorted(asked))}.", path=path)
    made = {}
    for key, (name, kinds) in asked.items():
        known(key, name, kinds)
        try:
            if not isinstance(tables.get(key, {}), dict):
                raise ConfigError(f"input should be a table, not {tables[key]!r}", argument=Key(key))
            made[key] = table_of(key, {"name": name} | tables.get(key, {}), kinds)
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
