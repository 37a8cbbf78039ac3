"""What the commands do, as functions: files in, files and plain results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from unskew.checking import checked, known, read_toml
from unskew.clicks.counts.batches import Batches
from unskew.clicks.counts.reduction import reduce_log
from unskew.clicks.lists.inputs import Vectors
from unskew.clicks.lists.letor import write_letor
from unskew.clicks.lists.synthetic import make_lists
from unskew.clicks.log import read_log, write_log
from unskew.clicks.simulate import BEHAVIOURS, LOGGERS, ScoresLogger, logging_scores, simulate
from unskew.errors import ConfigError, RunError
from unskew.learning.model import Model, load
from unskew.learning.scorer import Scorer
from unskew.measuring import (
    DEFAULT_METRICS,
    Empty,
    auc_metric,
    click_loglikelihood_metric,
    measure_ranking,
    ndcg_metric,
    paired_bootstrap,
    paired_t_test,
    perplexity_by_rank_metric,
    perplexity_metric,
)
from unskew.running.choosing import click_likelihood, click_ndcg
from unskew.running.files import read_lists
from unskew.types import Array, Lists, Log

SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class Pages:
    """What `unskew simulate` was asked for."""

    lists: tuple[str, ...]
    behaviour: str
    logger: str
    config: Path | None
    pages: int | None
    clicks: int | None
    seed: int
    cutoff: int | None
    randomized: float
    drop_clickless: bool
    truth: bool
    synthetic: tuple[int, int, int]
    """Queries, features and documents of synthetic lists."""
    doc_ids: bool


def simulate_to(pages: Pages, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Simulate a log into a Parquet file; what was written, in numbers.

    Synthetic lists are written beside it as LETOR files for training, validation and test.
    """
    if out.suffix != ".parquet":
        raise ConfigError(f"--out {out}: must end in .parquet")
    if out.exists() and not force:
        raise RunError(f"{out} exists and is never overwritten; choose another --out, or use --force")
    if (pages.pages is None) == (pages.clicks is None):
        raise ConfigError("give --pages or --clicks, one of the two")
    behaviour, logger = _behaviour_and_logger(pages)
    lists, beside = _lists(pages, out)
    taken = [path for path in beside if path.exists()]
    if taken and not force:
        raise RunError(f"{taken[0]} exists and is never overwritten; choose another --out, or use --force")
    scores = logging_scores(lists, logger, pages.seed)
    log = simulate(
        lists,
        behaviour,
        pages=pages.pages,
        clicks=pages.clicks,
        seed=pages.seed,
        logger=ScoresLogger(values=scores),
        cutoff="usual" if pages.cutoff is None else pages.cutoff or None,
        drop_clickless=pages.drop_clickless,
        randomized=pages.randomized,
        truth=pages.truth,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, part in beside.items():
        write_letor(part, path)
    write_log(log, out)
    files = {path.suffixes[-2][1:]: str(path) for path in beside}
    return {"log": str(out)} | files | summary(log, scores)


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


def _behaviour_and_logger(pages: Pages) -> tuple[Any, Any]:
    tables: Mapping[str, Any] = {} if pages.config is None else read_toml(pages.config)
    unknown = sorted(set(tables) - {"behaviour", "logger"})
    if unknown:
        raise ConfigError(f"{pages.config}: unknown table {', '.join(unknown)}. Known: behaviour, logger.")
    behaviour = _configured("behaviour", pages.behaviour, BEHAVIOURS, tables, pages.config)
    return behaviour, _configured("logger", pages.logger, LOGGERS, tables, pages.config)


def _configured(
    key: str, name: str, names: Mapping[str, type[Any]], tables: Mapping[str, Any], path: Path | None
) -> Any:
    """What the option --KEY names, with the settings of the file's table."""
    known(f"--{key}", name, names)
    if key not in tables:
        try:
            return checked(names[name], {}, key)
        except ConfigError as error:
            raise ConfigError(f"--{key} {name} needs a --config file: {error}") from None
    try:
        if not isinstance(tables[key], dict):
            raise ConfigError(f"{key}: input should be a table, not {tables[key]!r}")
        content = {"name": name} | tables[key]
        kind = names[known(f"{key}.name", content.pop("name"), names)]
        return checked(kind, content, key)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _lists(pages: Pages, out: Path) -> tuple[Lists, dict[Path, Lists]]:
    """The lists to show, and those to write beside the log."""
    if SYNTHETIC not in pages.lists:
        return read_lists(pages.lists, pages.doc_ids), {}
    if len(pages.lists) > 1:
        raise ConfigError("--lists synthetic stands alone")
    queries, features, documents = pages.synthetic
    made = {}
    for index, part in enumerate(("train", "validation", "test")):
        count = queries if part == "train" else max(queries // 4, 1)
        made[out.with_suffix(f".{part}.txt")] = make_lists(count, features, documents, seed=pages.seed * 3 + index)
    return next(iter(made.values())), made


def measure_run(
    folder: Path,
    lists: Sequence[str],
    *,
    metrics: Sequence[str] | None = None,
    empty: str = "skip",
    against: Path | None = None,
    log: Path | None = None,
    doc_ids: bool = False,
) -> dict[str, Any]:
    """Ranking metrics of a run on labelled lists; a paired comparison and click metrics where asked for."""
    model, data = load(folder), read_lists(lists, doc_ids)
    convention = cast(Empty, known("--empty", empty, dict.fromkeys(("skip", "zero", "one"))))
    names = tuple(metrics) if metrics else DEFAULT_METRICS
    report = measure_ranking(model.score(data), data, names, empty=convention)
    result: dict[str, Any] = {"run": str(folder), "ranking": report.to_dict()}
    if against is not None:
        other = measure_ranking(load(against).score(data), data, names, empty=convention)
        compared = {name: _paired(report.per_query[name], other.per_query[name]) for name in report.per_query}
        result["against"] = {"run": str(against), "metrics": compared}
    if log is not None:
        result["clicks"] = measure_clicks(model, read_log(log, data))
    return result


def _paired(first: Array, second: Array) -> dict[str, Any]:
    test, interval = paired_t_test(first, second), paired_bootstrap(first, second)
    return {
        "difference": _finite(test.difference),
        "interval": [_finite(interval.low), _finite(interval.high)],
        "p": _finite(test.p),
    }


def _finite(value: float) -> float | None:
    """The number, None in the place of NaN, which JSON does not have."""
    return None if np.isnan(value) else float(value)


def measure_clicks(model: Scorer, log: Log) -> dict[str, Any]:
    """How well the run's click model predicts a log; probabilities only where the method has them."""
    if not isinstance(model, Model):  # a package ranks and has no click model
        return {"nDCG@10 of clicks": _finite(click_ndcg(model, log))}
    counts = reduce_log(log, presentation=model.presentation)
    batches = Batches(counts, Vectors.of(model.scaler.apply(log.lists).features), size=4096)
    result: dict[str, Any] = {"log-likelihood of a click in its list": _finite(click_likelihood(model, batches))}
    model.ranker.cpu()
    model.method.cpu()
    with torch.no_grad():
        found = [
            model.method.click_probability(batch.pad(model.ranker(batch.documents)), batch)
            for batch in batches.in_order()
        ]
    parts = [part for part in found if part is not None]
    if len(parts) == len(found):
        p = torch.cat(parts).numpy()
        n, c = counts.impressions, counts.clicks
        by_rank = perplexity_by_rank_metric(p, c, positions=counts.position, impressions=n)
        result |= {
            "log-likelihood of an impression": _finite(click_loglikelihood_metric(p, c, impressions=n)),
            "perplexity": _finite(perplexity_metric(p, c, impressions=n)),
            "perplexity by rank": [_finite(value) for value in by_rank],
            "AUC": _finite(auc_metric(p, c, impressions=n)),
        }
    return result
