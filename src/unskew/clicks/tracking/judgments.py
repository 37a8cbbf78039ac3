"""What `unskew judge` does: relevance per query and document from a tracking store, as judgments anybody can read.

    query_id, doc_id, relevance, standard_error, displays, clicks, and imputation where one was given

The imputation is a table of query_id, doc_id and relevance, from any model that reads no clicks of the pair.
Pairs that it has and that were never shown are judged by it alone; a pair that it does not have gets its mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unskew.checking import known, require_columns
from unskew.clicks.engine.engine import Engine, connect
from unskew.clicks.tracking.estimators import (
    Estimate,
    Tallies,
    TrustCurves,
    affine_estimate,
    doubly_robust_estimate,
    imputed_variance,
    ipw_estimate,
    shrunken,
)
from unskew.clicks.tracking.store import open_tracking
from unskew.clicks.tracking.sums import MILLI
from unskew.clicks.tracking.trust import em_curves, examination_by_rank, read_curves, shuffled_curves
from unskew.clicks.tracking.windows import read_window
from unskew.disk import complete_file, refuse_existing
from unskew.errors import ConfigError, DataError
from unskew.types import Array

if TYPE_CHECKING:
    from ibis.expr.types import Table

ESTIMATORS = ("ipw", "affine", "doubly_robust")
RANKS = 10
"""Ranks with curves of their own, unless a file gives more; those below count as the last."""
WRITERS = {".csv": pacsv.write_csv, ".parquet": pq.write_table}
"""How judgments are written, by the end of the name."""


def judge(
    store: Path | str,
    out: Path | str,
    *,
    estimator: str | None = None,
    window: str = "month",
    curves: str = "shuffled",
    first: Sequence[float] = (1.0, 0.0),
    imputation: Path | str | None = None,
    shrink: bool = True,
    force: bool = False,
    engine: str = "duckdb",
    **options: Any,
) -> dict[str, Any]:
    """Estimate the relevance of every query and document that a store has, into a CSV or Parquet file; in numbers.

    `estimator` is ipw, affine or doubly_robust, which needs an `imputation` (Parquet or CSV) and is the usual one
    where there is one. `curves` is shuffled (from random slots; `first` is alpha and beta of rank 1), em, or a
    JSON file with alpha, beta and theta. With `shrink` an estimate is pulled towards the imputation by how little
    was seen. `options` go to `connect`.
    """
    out = Path(out)
    chosen = known("estimator=", estimator or ("doubly_robust" if imputation else "affine"), ESTIMATORS)
    if chosen == "doubly_robust" and imputation is None:
        raise ConfigError("estimator=doubly_robust needs imputation=, a table of query_id, doc_id and relevance")
    known("out=", out.suffix, WRITERS)
    refuse_existing(out, force=force)
    with connect(engine, **options) as running:
        opened = open_tracking(store)
        table = read_window(running, opened, window)
        if table is None:
            raise DataError(
                f"the window {window} was never written", path=opened.path, hint="track with refresh=all"
            )
        guesses = None if imputation is None else read_imputation(running, Path(imputation), table)
        shown = running.to_arrow(with_imputation(table, guesses).order_by("query_id", "doc_id", "position"))
    judged, assumed = judgments(shown, chosen, curves, (first[0], first[1]), shrink)
    out.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(out) as ready:
        WRITERS[out.suffix](judged, ready)
    told = {name: getattr(assumed, name).round(4).tolist() for name in ("theta", "alpha", "beta")}
    never = int((judged["displays"].to_numpy() == 0).sum())
    return {"out": str(out), "estimator": chosen, "pairs": len(judged), "never shown": never, **told}


def read_imputation(engine: Engine, path: Path, window: Table) -> Table:
    """query_id, doc_id and imputation, in the types of the window."""
    if path.suffix == ".csv":
        try:
            read = engine.from_arrow(pacsv.read_csv(path))
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"cannot be read as CSV ({error})", path=path) from error
    else:
        read = engine.read_parquet(path)
    require_columns(("query_id", "doc_id", "relevance"), read.columns, path=path)
    ids = {name: read[name].cast(window[name].type()) for name in ("query_id", "doc_id")}
    guesses = read.select(**ids, imputation=read.relevance.cast("float64"))
    if engine.count(guesses) != engine.count(guesses.select(*ids).distinct()):
        raise DataError("has a query and document twice", path=path, hint="keep one row of each")
    return guesses


def with_imputation(window: Table, guesses: Table | None) -> Table:
    """The window with a column `imputation`, and a row without displays for what was never shown."""
    if guesses is None:
        return window
    other = guesses.rename(q="query_id", d="doc_id")
    joined = window.outer_join(other, [window.query_id == other.q, window.doc_id == other.d])
    sums = {name: joined[name].fill_null(0) for name in window.columns if name not in ("query_id", "doc_id")}
    ids = {"query_id": joined.query_id.coalesce(joined.q), "doc_id": joined.doc_id.coalesce(joined.d)}
    return joined.select(**ids, **sums, imputation=joined.imputation)


def judgments(
    shown: pa.Table, estimator: str, curves: str, first: tuple[float, float], shrink: bool
) -> tuple[pa.Table, TrustCurves]:
    """Judgments of a window that is sorted by query and document, and the curves that they assume."""
    columns = {name: shown[name].to_numpy(zero_copy_only=False) for name in shown.column_names}
    starts = pair_starts(columns["query_id"], columns["doc_id"])
    tallies = tallies_of(columns, starts)
    guess = columns["imputation"][starts].astype(float) if "imputation" in columns else None
    whole = None if guess is None else np.where(np.isnan(guess), np.nanmean(guess), guess)
    assumed = find_curves(columns, tallies, curves, first, whole)
    found = estimated(tallies, assumed, estimator, whole, shrink)
    made = {
        "query_id": shown["query_id"].take(pa.array(starts)),
        "doc_id": shown["doc_id"].take(pa.array(starts)),
        "relevance": pa.array(found.relevance, from_pandas=True),
        "standard_error": pa.array(found.standard_error, from_pandas=True),
        "displays": pa.array(tallies.displays.astype(np.int64)),
        "clicks": pa.array(tallies.per_pair(tallies.c).astype(np.int64)),
    }
    if guess is not None:
        made["imputation"] = pa.array(guess, from_pandas=True)
    return pa.table(made), assumed


def estimated(
    tallies: Tallies, curves: TrustCurves, estimator: str, imputation: Array | None, shrink: bool
) -> Estimate:
    """What an estimator says, pulled towards the imputation where there is one and it is asked for."""
    if estimator == "doubly_robust" and imputation is not None:
        found = doubly_robust_estimate(tallies, curves, imputation)
    else:
        found = (ipw_estimate if estimator == "ipw" else affine_estimate)(tallies, curves)
    if imputation is None or not shrink:
        return found
    return shrunken(found.relevance, imputed_variance(tallies, curves, imputation), imputation)


def pair_starts(query: Array, document: Array) -> Array:
    """Where each query and document begins in sorted rows, [P]."""
    if not len(query):
        return np.zeros(0, np.int64)
    new = (query[1:] != query[:-1]) | (document[1:] != document[:-1])
    return np.concatenate([[0], np.flatnonzero(new) + 1])


def tallies_of(columns: dict[str, Array], starts: Array, kind: Literal["", "random_"] = "") -> Tallies:
    """The sums of a window as estimators take them; `random_` is those of random slots alone, without ê."""
    rows = len(columns["query_id"])
    pair = np.zeros(rows, np.int64)
    pair[starts[1:]] = 1
    n, c = (columns[f"{kind}{name}"].astype(float) for name in ("displays", "clicks"))
    seen = np.zeros(rows) if kind else columns["estimated"].astype(float)
    e, ee, ce = (
        np.zeros(rows) if kind else columns[name] / scale
        for name, scale in (("examined", MILLI), ("examined_squared", MILLI**2), ("examined_clicks", MILLI))
    )
    position = np.maximum(columns["position"].astype(np.int64), 1)
    return Tallies(np.cumsum(pair), position, n, c, seen, e, ee, ce, pairs=len(starts))


def find_curves(
    columns: dict[str, Array],
    tallies: Tallies,
    curves: str,
    first: tuple[float, float],
    imputation: Array | None,
) -> TrustCurves:
    """The curves of a window: from random slots, by EM with the imputation, or from a file."""
    ranks = int(min(RANKS, tallies.position.max(initial=1)))
    theta = examination_by_rank(tallies, ranks)
    if curves == "em":
        if imputation is None:
            raise ConfigError("curves=em needs imputation=, a table of query_id, doc_id and relevance")
        return em_curves(tallies, ranks, imputation, theta=theta)
    if curves != "shuffled":
        return read_curves(Path(curves), theta)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(tallies.pair)) + 1])
    return shuffled_curves(tallies_of(columns, starts, "random_"), ranks, first=first, theta=theta)
