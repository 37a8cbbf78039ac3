"""What `unskew judge` does: relevance per query and document from a tracking store, as judgments anybody can read.

    query_id, doc_id, relevance, standard_error, displays, clicks, click_rate, coec, mean_rank, and imputation

Click rate, COEC (clicks over those that the ranks get on average) and mean rank are what anybody counts. The
imputation is a table of query_id, doc_id and relevance, from any model that reads no clicks of the pair. Pairs
that it has and that were never shown are judged by it alone; a pair that it does not have gets its mean. Without
one, what the order shown says stands for it (`estimators.OrderShown`). The window is joined to the imputation,
sorted by the engine and read a batch at a time, so it may be larger than memory.

Legend: R rows (a query, document and position each), P pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unskew.engine_prior import SAMPLE, Expectation
from unskew.errors import ConfigError, DataError, Option
from unskew.files import complete_file, refuse_existing
from unskew.logs.reader import under_our_names
from unskew.names import Names
from unskew.options.base import EngineConnection
from unskew.options.logs import JudgeArguments
from unskew.results import Result
from unskew.settings import known, require_columns
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table
from unskew.tables.engine.functions import finite
from unskew.tables.engine.parquet import parquet_files
from unskew.tracking.delivery import MILLI
from unskew.tracking.estimators import Estimate, OrderShown, Tallies, TrustCurves, estimate
from unskew.tracking.shrinkage import learn_pull, shrunken
from unskew.tracking.store import TrackingStore, open_tracking
from unskew.tracking.trust import ClicksByRelevance, Looks, RandomSlots, RankSums, read_curves
from unskew.tracking.windows import read_window
from unskew.types import Array

ESTIMATORS = ("ipw", "affine", "doubly_robust")
RANKS = 10
"""Ranks with curves of their own, unless a file gives more; those below count as the last."""
WRITERS = {".csv": pacsv.CSVWriter, ".parquet": pq.ParquetWriter}
"""How judgments are written, by the end of the name."""


@dataclass(frozen=True)
class Judgments(Result):
    """Judgments that were written, in numbers."""

    out: str
    estimator: str
    pairs: int
    """Queries and documents that were judged."""
    never_shown: int
    """Pairs that have the imputation alone."""
    theta: Array
    """Examination by rank."""
    alpha: Array
    """How often a relevant result that is examined is clicked, by rank."""
    beta: Array
    """How often a result that is examined and not relevant is clicked, by rank."""


@JudgeArguments.checks
def judge(
    store: Path | str,
    out: Path | str,
    *,
    estimator: str | None = None,
    window: str = "month",
    curves: str = "shuffled",
    first: Sequence[float] = (1.0, 0.0),
    imputation: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    shrink: bool = True,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Judgments:
    """Estimate the relevance of every query and document that a store has, into a CSV or Parquet file; in numbers.

    `estimator` is ipw, affine or doubly_robust, which needs an `imputation` (Parquet or CSV) and is the usual one
    where there is one. `curves` is shuffled (from random slots; `first` is alpha and beta of rank 1), em, or a
    JSON file with alpha, beta, theta and trust (eps+ - eps-; alpha / theta if left out). With `shrink` an estimate
    is pulled towards the imputation, or what the order shown says, by how little was seen, see `shrinkage`.
    `columns` says theirs for the columns of the imputation. `connection` says how the engine is reached.
    """
    out = Path(out)
    chosen = known("estimator", estimator or ("doubly_robust" if imputation else "affine"), ESTIMATORS)
    if chosen == "doubly_robust" and imputation is None:
        raise needs_imputation("estimator", chosen)
    known("out", out.suffix, WRITERS)
    refuse_existing(out, force=force)
    with connect(engine, **connection) as running:
        given = None if imputation is None else Path(imputation)
        files, ranks, fill = prepared(running, open_tracking(store), window, given, Names.of(columns))
        judging = Judging(files, ranks, fill, chosen, shrink)
        assumed, looks = judging.assumed(curves, (first[0], first[1]))
        out.parent.mkdir(parents=True, exist_ok=True)
        with complete_file(out) as ready:
            pairs, never = write_judgments(judging.judged(assumed, looks), ready, out.suffix)
    curve = (each.round(4) for each in (assumed.theta, assumed.alpha, assumed.beta))
    return Judgments(str(out), chosen, pairs, never, *curve)


def needs_imputation(argument: str, value: str) -> ConfigError:
    """The error of an argument that asks for an imputation, where there is none."""
    asked = (Option(argument, value), " needs ", Option("imputation"))
    return ConfigError((*asked, ", a table of query_id, doc_id and relevance"))


def prepared(
    engine: Engine, store: TrackingStore, window: str, imputation: Path | None, names: Names
) -> tuple[Sequence[Path | str], int, float | None]:
    """Sorted files of a window, its ranks with curves of their own, and the mean imputation, where there is one.

    The files are those of the store, or, joined to the imputation, one in the engine's scratch folder.
    """
    table = read_window(engine, store, window)
    if table is None:
        hint = ("track with ", Option("refresh", "all"))
        raise DataError(f"the window {window} was never written", path=store.path, hint=hint)
    deepest = engine.rows(table.agg(deepest=table.position.max()))[0]["deepest"]
    ranks = int(min(RANKS, deepest or 1))
    if imputation is None:
        return parquet_files(store.window(window)), ranks, None
    guesses = read_imputation(engine, imputation, table, names)
    place, joined = engine.scratch / "judging", with_imputation(table, guesses)
    engine.write_parquet(joined.order_by("query_id", "doc_id", "position"), place, partitions=1)
    mean = engine.rows(guesses.agg(mean=guesses.imputation.mean()))[0]["mean"]
    return parquet_files(place), ranks, float(mean or 0.0)


def read_imputation(engine: Engine, path: Path, window: Table, names: Names) -> Table:
    """query_id, doc_id and imputation, in the types of the window; `names` says theirs for these."""
    if path.suffix == ".csv":
        try:
            read = engine.from_arrow(pacsv.read_csv(path))
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"cannot be read as CSV ({error})", path=path) from error
    else:
        read = engine.read_parquet(path)
    wanted = ("query_id", "doc_id", "relevance")
    read = under_our_names(read, names, path, wanted)
    require_columns(wanted, read.columns, path=path)
    ids = {name: read[name].cast(window[name].type()) for name in ("query_id", "doc_id")}
    guesses = read.select(**ids, imputation=finite(read.relevance, engine.name))
    if engine.count(guesses) != engine.count(guesses.select(*ids).distinct()):
        raise DataError("has a query and document twice", path=path, hint="keep one row of each")
    return guesses


def with_imputation(window: Table, guesses: Table) -> Table:
    """The window with a column `imputation`, and a row without displays for what was never shown."""
    other = guesses.rename(q="query_id", d="doc_id")
    joined = window.outer_join(other, [window.query_id == other.q, window.doc_id == other.d])
    sums = {name: joined[name].fill_null(0) for name in window.columns if name not in ("query_id", "doc_id")}
    ids = {"query_id": joined.query_id.coalesce(joined.q), "doc_id": joined.doc_id.coalesce(joined.d)}
    return joined.select(**ids, **sums, imputation=joined.imputation)


@dataclass(frozen=True)
class Judging:
    """A sorted window, and how it is judged; it is read several times, a batch at once."""

    files: Sequence[Path | str]
    ranks: int
    """Ranks with curves of their own."""
    fill: float | None
    """Imputation of a pair that has none; None where there is no imputation at all."""
    estimator: str = "affine"
    shrink: bool = True

    def parts(self) -> Iterator[tuple[Batch, Tallies, Array | None]]:
        """The window, a batch at once: its sums, and what is imputed to every pair [P], or the mean."""
        for batch in pair_batches(self.files) if self.fill is not None else pair_batches(self.files, by="query"):
            guess = None
            if self.fill is not None:
                guess = batch.imputation()
                guess = np.where(np.isnan(guess), self.fill, guess)
            yield batch, batch.tallies(), guess

    def by_order(self, curves: TrustCurves) -> Callable[[Batch, Tallies], Estimate]:
        """Estimates after what the order shown says, of the pairs of a batch; learned from the first pairs."""
        told, queries, pairs = [], 0, 0
        for batch, tallies, _ in self.parts():
            each = batch.shown(tallies, curves, self.estimator)
            told.append(each._replace(query=each.query + queries))
            queries, pairs = queries + int(each.query.max()) + 1, pairs + tallies.pairs
            if pairs > SAMPLE:
                break
        whole = OrderShown(*(np.concatenate(column) for column in zip(*told, strict=True)))
        order = Expectation.fit(*whole.told)
        worth = whole.worth(order.of(*whole.told))
        return lambda batch, tallies: batch.shown(tallies, curves, self.estimator).estimate(order, worth)

    def assumed(self, curves: str, first: tuple[float, float]) -> tuple[TrustCurves, Looks]:
        """The curves of the window, from random slots, by EM with the imputation, or a file; and ê by rank."""
        if curves == "em" and self.fill is None:
            raise needs_imputation("curves", curves)
        seen, slots, graded = RankSums(self.ranks), RandomSlots(self.ranks), ClicksByRelevance(self.ranks)
        for batch, tallies, guess in self.parts():
            seen.add(tallies)
            if curves == "shuffled":
                slots.add(batch.tallies("random_"))
            elif curves == "em" and guess is not None:
                graded.add(tallies, guess)
        theta = seen.theta()
        if curves == "shuffled":
            found = slots.curves(first, theta)
        else:
            found = graded.curves(theta) if curves == "em" else read_curves(Path(curves), theta)
        return found, seen.looks(found)

    def judged(self, curves: TrustCurves, looks: Looks) -> Iterator[pa.Table]:
        """The judgments of all pairs, as Arrow batches."""
        by_order = self.by_order(curves) if self.shrink and self.fill is None else None
        pull = None
        if self.shrink and self.fill is not None:
            pull = learn_pull(
                lambda: ((tallies, guess) for _, tallies, guess in self.parts() if guess is not None),
                curves,
                looks,
                self.estimator,
            )
        for batch, tallies, guess in self.parts():
            if by_order is not None:
                found = by_order(batch, tallies)
            elif pull is not None and guess is not None:
                found = shrunken(tallies, curves, looks, guess, pull, self.estimator)
            else:
                found = estimate(tallies, curves, self.estimator, guess, looks.mean)
            made = {
                "query_id": batch.ids("query_id"),
                "doc_id": batch.ids("doc_id"),
                "relevance": pa.array(found.relevance, from_pandas=True),
                "standard_error": pa.array(found.standard_error, from_pandas=True),
                "displays": pa.array(tallies.displays.astype(np.int64)),
                "clicks": pa.array(tallies.per_pair(tallies.c).astype(np.int64)),
                **simple(tallies, self.rates),
            }
            if guess is not None:
                made["imputation"] = pa.array(batch.imputation(), from_pandas=True)
            yield pa.table(made)

    @cached_property
    def rates(self) -> Array:
        """Click rates of the ranks."""
        shown = np.zeros((2, self.ranks))
        for _, tallies, _ in self.parts():
            rank = np.minimum(tallies.position, self.ranks) - 1
            shown += [np.bincount(rank, each, self.ranks) for each in (tallies.n, tallies.c)]
        return np.asarray(shown[1] / np.maximum(shown[0], 1))


def simple(tallies: Tallies, rates: Array) -> dict[str, pa.Array]:
    """Click rate, COEC and mean rank shown of every pair; null where nothing was shown, or no click was due."""
    due = rates[np.minimum(tallies.position, len(rates)) - 1]
    sums = (tallies.n, tallies.c, tallies.n * due, tallies.n * tallies.position)
    n, c, expected, ranks = map(tallies.per_pair, sums)
    parts = {"click_rate": (c, n), "coec": (c, expected), "mean_rank": (ranks, n)}
    return {name: pa.array(a / np.where(b > 0, b, np.nan), from_pandas=True) for name, (a, b) in parts.items()}


def write_judgments(tables: Iterator[pa.Table], path: Path, kind: str) -> tuple[int, int]:
    """Write them into a file, one after another; how many there are, and how many were never shown."""
    writer: Any = None
    pairs = never = 0
    for table in tables:
        if writer is None:
            writer = WRITERS[kind](path, table.schema)
        writer.write_table(table)
        pairs += len(table)
        never += int((table["displays"].to_numpy() == 0).sum())
    if writer is None:
        raise DataError("the window is empty", hint="track a log with pages")
    writer.close()
    return pairs, never


ROWS = 2**18
"""Of a batch, and of a pair that lies across its end."""


@dataclass(frozen=True)
class Batch:
    """Some pairs of a window that is sorted by query and document."""

    rows: pa.Table
    starts: Array
    """[P] where each pair begins."""

    def column(self, name: str) -> Array:
        """A column of the rows, [R]."""
        values: Array = self.rows[name].to_numpy(zero_copy_only=False)
        return values

    def ids(self, name: str) -> pa.ChunkedArray:
        """query_id or doc_id of every pair, [P]."""
        return self.rows[name].take(pa.array(self.starts))

    def imputation(self) -> Array:
        """What was imputed to every pair, [P]; NaN where nothing was."""
        return self.column("imputation")[self.starts].astype(float)

    def shown(self, tallies: Tallies, curves: TrustCurves, estimator: str) -> OrderShown:
        """What the order shown is judged by."""
        ids = self.column("query_id")[self.starts]
        query = np.cumsum(np.append(False, ids[1:] != ids[:-1]))
        return OrderShown.of(tallies, query, curves, estimator)

    def tallies(self, kind: Literal["", "random_"] = "") -> Tallies:
        """The sums; `random_` is those of random slots alone, without ê."""
        rows = len(self.rows)
        pair = np.zeros(rows, np.int64)
        pair[self.starts[1:]] = 1
        n, c = (self.column(f"{kind}{name}").astype(float) for name in ("displays", "clicks"))
        seen = np.zeros(rows) if kind else self.column("estimated").astype(float)
        e, ee, ce = (
            np.zeros(rows) if kind else self.column(name) / scale
            for name, scale in (("examined", MILLI), ("examined_squared", MILLI**2), ("examined_clicks", MILLI))
        )
        position = np.maximum(self.column("position").astype(np.int64), 1)
        return Tallies(np.cumsum(pair), position, n, c, seen, e, ee, ce, pairs=len(self.starts))


def batch_of(rows: pa.Table) -> Batch:
    """A batch of sums from rows that are sorted by pair."""
    query, document = (rows[name].to_numpy(zero_copy_only=False) for name in ("query_id", "doc_id"))
    if not len(query):
        return Batch(rows, np.zeros(0, np.int64))
    new = (query[1:] != query[:-1]) | (document[1:] != document[:-1])
    return Batch(rows, np.concatenate([[0], np.flatnonzero(new) + 1]))


def pair_batches(files: Sequence[Path | str], rows: int = ROWS, by: str = "pair") -> Iterator[Batch]:
    """Sorted files, one after another, in batches of about so many rows; no pair, or no query, is cut in two."""
    rest: pa.Table | None = None
    for file in files:
        for part in pq.ParquetFile(file).iter_batches(batch_size=rows):
            table = pa.Table.from_batches([part])
            whole = batch_of(table if rest is None else pa.concat_tables([rest, table]))
            if not len(whole.starts):
                continue
            last = int(whole.starts[-1])
            if by == "query":
                last = int(np.searchsorted(whole.column("query_id"), whole.column("query_id")[-1]))
            rest = whole.rows.slice(last)
            if last:
                yield Batch(whole.rows.slice(0, last), whole.starts[whole.starts < last])
    if rest is not None:
        yield batch_of(rest)
