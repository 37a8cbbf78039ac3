"""Simulate into a file: labelled lists in, a log in Parquet out, and the log in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.checking import checked, known, read_toml, table_of
from unskew.clicks.lists.letor import write_letor
from unskew.clicks.lists.synthetic import make_lists
from unskew.clicks.log import write_log
from unskew.clicks.simulate import BEHAVIOURS, LOGGERS, ScoresLogger, Simulation, Traffic, logging_scores
from unskew.disk import refuse_existing
from unskew.errors import ConfigError
from unskew.measuring import ndcg_metric
from unskew.reporting.origins import behaviour_words
from unskew.running.lists import read_lists
from unskew.types import Array, Lists, Log

SYNTHETIC = "synthetic"


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
    **options: Any,
) -> dict[str, Any]:
    """Simulate a log into a Parquet file; what was written, in numbers. `options` are fields of `Simulation`.

    `lists` are LETOR files, or "synthetic": then lists are made, and written beside the log for training,
    validation and test. `config` is a TOML file with settings of [behaviour] and [logger].
    """
    people = configured(config, behaviour=(behaviour, BEHAVIOURS), logger=(logger, LOGGERS))
    asked = checked(Simulation, people | options, "")
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
    **options: Any,
) -> dict[str, Any]:
    """Simulate the traffic of a search engine into a Parquet file, as `simulate_to`; `options` are of `Traffic`.

    With `truth` the log has the columns true_examined, true_examination and true_relevance.
    """
    asked = checked(Traffic, options | configured(None, logger=(logger, LOGGERS)), "")
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
) -> dict[str, Any]:
    """Draw the log and write it, and lists that were made beside it; what was written, in numbers."""
    if out.suffix != ".parquet":
        raise ConfigError(f"out=: {out} must end in .parquet")
    refuse_existing(out, force=force)
    if SYNTHETIC in lists:
        if len(lists) > 1:
            raise ConfigError("lists=: synthetic stands alone")
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
    write_log(log, out, simulated=_how(asked))
    files = {path.suffixes[-2][1:]: str(path) for path in beside}
    return {"log": str(out)} | files | summary(log, scores)


def _how(asked: Simulation | Traffic) -> str:
    """What was simulated, in words."""
    if isinstance(asked, Traffic):
        return "a search engine with trust bias"
    return behaviour_words(asked.behaviour)


def configured(path: Path | None, **asked: tuple[str, Mapping[str, type[Any]]]) -> dict[str, Any]:
    """What each key names, with the settings of the file's table of that key."""
    tables = {} if path is None else read_toml(path)
    unknown = sorted(set(tables) - set(asked))
    if unknown:
        raise ConfigError(f"{path}: unknown table {', '.join(unknown)}. Known: {', '.join(sorted(asked))}.")
    made = {}
    for key, (name, kinds) in asked.items():
        known(f"{key}=", name, kinds)
        try:
            if not isinstance(tables.get(key, {}), dict):
                raise ConfigError(f"{key}: input should be a table, not {tables[key]!r}")
            made[key] = table_of(key, {"name": name} | tables.get(key, {}), kinds)
        except ConfigError as error:
            place = f"{path}" if key in tables else f"{key} {name} needs a file with its settings, config="
            raise ConfigError(f"{place}: {error}") from None
    return made


def synthetic_parts(queries: int, features: int, documents: int, seed: int) -> dict[str, Lists]:
    """Training, validation and test lists of one world; the latter have a quarter of the queries each."""
    counts = {"train": queries, "validation": max(queries // 4, 1), "test": max(queries // 4, 1)}
    return {
        part: make_lists(count, features, documents, seed=seed * 3 + index)
        for index, (part, count) in enumerate(counts.items())
    }


def summary(log: Log, scores: Array) -> dict[str, Any]:
    """A log in numbers; the result card of a simulation."""
    clicked = np.add.reduceat(log.click.astype(np.int64), log.offsets[:-1]) > 0
    longest = int(log.sizes.max())
    ndcg = ndcg_metric(scores, log.lists.labels, offsets=log.lists.offsets)
    return {
        "pages": len(log),
        "impressions": len(log.row),
        "clicks": int(log.click.sum()),
        "click rate": round(float(log.click.mean()), 4),
        "without a click": round(1 - float(clicked.mean()), 4),
        "short of a page": round(1 - len(log.row) / (len(log) * longest), 4),
        "logging nDCG@10": None if np.isnan(ndcg).all() else round(float(np.nanmean(ndcg)), 4),
    }
