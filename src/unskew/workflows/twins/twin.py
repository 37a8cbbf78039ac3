"""A twin of a log: fitted to it, simulated from, and with relevance known, to try things before spending traffic.

Pages are drawn from the log's own, and clicked by a click model of (query, document) pairs (`fitting.py`).
docs/how_to/twin.md says what is fitted to what, and what a twin cannot tell; `portrait` puts both side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.diagnosis.click_models import FittedClickModel
from unskew.diagnosis.click_models.pages import ClickPages, pages_of_log
from unskew.diagnosis.evidence.evidence import chosen_curve
from unskew.diagnosis.evidence.tables import open_tables
from unskew.errors import DataError
from unskew.logs.reader import AnyLog, StoredLog, TableLog, opened
from unskew.measuring.portrait import Portrait, TwinReport, off, portrait
from unskew.names import Names
from unskew.options.logs import TwinArguments
from unskew.results import Result
from unskew.tables.joins import encode
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.rankings import documents
from unskew.workflows.twins.fitting import MODELS, chosen_model, drawn_relevance, examined, grades, typical_ranks

CHUNK = 100_000
"""Pages whose clicks are drawn at a time."""
KEPT = ("serp_", "policy_id", "logging_score")
"""What begins like this is kept of a logged page."""
APART = 0.03
"""Difference of the shares of pages without a click that is told."""
PROBE = 20_000
"""Pages, at least, that tell how the twin looks."""


@dataclass(frozen=True)
class Twin(Result):
    """A world that could have made the log."""

    layout: Log
    """The log's pages; its lists have the twin's grades."""
    model: FittedClickModel
    """The click model, with relevance as it was drawn."""
    pair_of_row: Array
    """[N] the model's number of each document of the lists; one past the last for those never shown."""
    relevance: Array
    """[N] of each document of the lists, from 0 to 1."""
    idle: float
    """Share of the pages at which nobody looks."""
    examination_from: str
    """What examination by rank comes from."""
    identified: bool
    """Whether the log tells examination by rank."""
    examination_known: tuple[float | None, ...]
    """Relative to rank 1, as the log tells it; None where it does not."""
    notes: tuple[str, ...]

    def simulate(self, pages: int | None = None, *, randomized: float | None = None, seed: int = 0) -> Log:
        """Draw pages of the twin, as many as the log has unless given.

        `randomized` is the share of pages whose results are shuffled; unless given, pages are as shuffled as the
        log's were.
        """
        TwinArguments.check(pages=pages, randomized=randomized, seed=seed)
        rng = np.random.default_rng(seed)
        wanted = len(self.layout) if pages is None else pages
        some = self._pages(randomized)
        drawn = self.layout.take(some[rng.integers(len(some), size=wanted)])
        if randomized is not None:
            drawn = shuffled(drawn, rng.random(wanted) < randomized, rng)
        click = np.concatenate(
            [
                self._clicks(drawn.take(part), rng)
                for part in np.array_split(np.arange(wanted), -(-wanted // CHUNK))
            ]
        )
        grades = self.layout.lists.labels[drawn.row]
        return replace(drawn, click=click, columns={**drawn.columns, "label": grades})

    def _pages(self, randomized: float | None) -> Array:
        """Numbers of the pages to draw from: those that were not shuffled, where shuffling is up to us."""
        flags = self.layout.randomized
        if randomized is None or flags is None:
            return np.arange(len(self.layout))
        mixed = np.add.reduceat(flags.astype(np.int64), self.layout.offsets[:-1]) > 0
        return np.flatnonzero(~mixed) if not mixed.all() else np.arange(len(self.layout))

    def _clicks(self, part: Log, rng: np.random.Generator) -> Array:
        pages = pages_of_log(part)
        number = np.append(self.pair_of_row[np.unique(part.row)], -1)  # padding has -1
        known = replace(pages, pairs=self.model.pairs, pair=number[pages.pair])
        sampled: ClickPages = self.model.sample(known, seed=int(rng.integers(2**31)))
        looked = rng.random(len(part)) >= self.idle
        return np.asarray((sampled.click & looked[:, None])[sampled.where], np.uint8)

    def examination(self, ranks: int | None = None) -> Array:
        """How often each rank of the twin is clicked relative to rank 1, were its pages shuffled; by drawing."""
        log = self.simulate(PROBE, randomized=1.0, seed=1)
        top = int(log.position.max()) if ranks is None else ranks
        shown, clicked = (np.bincount(log.position, each, top + 1)[1 : top + 1] for each in (None, log.click))
        rate = clicked / np.maximum(shown, 1)
        return np.asarray(rate / max(rate[0], 1e-12))

    def portraits(self, seed: int = 0) -> tuple[Portrait, Portrait]:
        """The log and the twin in the same numbers."""
        return portrait(self.layout), portrait(self.simulate(max(len(self.layout), PROBE), seed=seed))

    def report(self) -> TwinReport:
        """What was fitted, and how the twin looks beside the log."""
        log, twin = self.portraits()
        apart = abs(log.clicks[0] - twin.clicks[0]) > APART
        empty = f"{log.clicks[0]:.1%} of the pages have no click in the log, {twin.clicks[0]:.1%} in the twin"
        more = [f"{empty}: people differ in more than the click model knows."] if apart else []
        return TwinReport(
            model=self.model.name,
            idle_pages=self.idle,
            examination=tuple(round(float(each), 5) for each in self.examination()),
            examination_from=self.examination_from,
            identified=self.identified,
            examination_in_the_log=self.examination_known,
            notes=(*self.notes, *more),
            log=log,
            twin=twin,
            ranks_off=tuple(off(log, twin)),
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return self.report().to_dict()


@TwinArguments.checks
def twin(
    log: AnyLog,
    *,
    features: Lists | Sequence[Path | str] | Path | str | None = None,
    models: Sequence[str] = MODELS,
    doc_ids: bool = False,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Twin:
    """Fit a twin to a log: files, a table in memory, or a `Log`.

    `features` of the log's documents (lists, or files of them) make relevance follow them, and let methods learn
    on the twin. `models` are the click models to choose from.
    """
    if isinstance(log, Log):
        shown = log
    else:
        names = Names.of(columns)
        stored = opened(log, names)
        how: dict[str, Any] = {"candidates": stored.candidates, "doc_ids": doc_ids}
        shown = stored.log(shown_lists(stored) if features is None else documents(None, features, names, **how))
    if shown.weighted:
        raise DataError(f"a twin is of clicks, and {shown.feedback} has weights", hint="read the column click")
    with open_tables(shown) as tables:
        told, reason = chosen_curve(tables)
    pages = pages_of_log(shown)
    model, notes = chosen_model(pages, models, seed)
    typical = typical_ranks(shown)
    model, source, identified = examined(model, told, pages, typical)
    model, relevance, pair_of_row, idle = drawn_relevance(model, pages, shown, typical, seed)
    lists = replace(shown.lists, labels=grades(relevance))
    kept = {name: column for name, column in shown.columns.items() if name.startswith(KEPT)}
    layout = replace(shown, lists=lists, columns=kept)
    known = (1.0,) if told is None else told.theta
    if not identified:
        notes.append(f"Examination by rank is not known from this log ({reason}): {source}.")
    return Twin(layout, model, pair_of_row, relevance, idle, source, identified, tuple(known), tuple(notes))


def shown_lists(log: StoredLog | TableLog) -> Lists:
    """The documents that a log shows for each query, by their ids, as lists without features."""
    table = log.table([])
    # sorted: an engine gives rows in any order, and what is drawn for a document must not depend on it
    (query, query_ids), (document, doc_ids) = (_sorted(*encode(table[name])) for name in ("query_id", "doc_id"))
    pairs = np.unique(query.astype(np.int64) * len(doc_ids) + document)
    sizes = np.bincount(pairs // len(doc_ids), minlength=len(query_ids))
    names = doc_ids[pairs % len(doc_ids)].astype(str)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nothing, labels = np.zeros((len(pairs), 0), np.float32), np.zeros(len(pairs), np.int16)
    return Lists(nothing, offsets, labels, np.asarray(query_ids), names, name=str(log.place))


def _sorted(codes: Array, values: Array) -> tuple[Array, Array]:
    """Codes [N] among the distinct values [U], these in ascending order."""
    found, place = np.unique(values, return_inverse=True)
    return place[codes], found


def shuffled(log: Log, pages: Array, rng: np.random.Generator) -> Log:
    """The log with the results of some pages [S] in a random order, marked so."""
    page = np.repeat(np.arange(len(log)), log.sizes)
    flags = pages[page]
    keys = np.where(flags, rng.random(len(page)), np.arange(len(page)) - log.offsets[page])
    order = np.lexsort((keys, page))
    return replace(log, row=log.row[order], randomized=flags)


def truth_table(made: Twin) -> Any:
    """Relevance and grade of every document of the twin, as an Arrow table."""
    lists = made.layout.lists
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    return pa.table(
        {
            "query_id": pa.array(lists.query_ids[query].tolist()),
            "doc_id": pa.array(lists.document_ids().tolist()),
            "relevance": made.relevance,
            "label": lists.labels,
        }
    )
