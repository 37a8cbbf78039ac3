"""A ranking measured by the clicks of a log, by labelled lists, or by both; and whether it may replace another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from unskew.errors import ConfigError, Option
from unskew.files import Ours
from unskew.logs.reader import AnyLog
from unskew.measuring import DEFAULT_METRICS
from unskew.measuring.counterfactual.evidence import Metric
from unskew.measuring.measurement import Compared, Measurement
from unskew.measuring.shipping import BOUNDS, Bound, Shipping, Watched, decided
from unskew.names import Names
from unskew.options.base import EngineConnection
from unskew.options.runs import MeasureArguments, ShipArguments
from unskew.pages.documents.proof import ship_page
from unskew.pages.documents.summaries import measure_page
from unskew.pages.origins import log_origin
from unskew.pages.page import PAGE_FILES
from unskew.pages.page_files import page_place, write_found
from unskew.settings import known
from unskew.tables.engine.engine import Engine
from unskew.types import Lists
from unskew.workflows.inputs.rankings import SHOWN, ShownRanking, model_of, open_ranking
from unskew.workflows.proofs.proof import Examined, prove, tell_heavy

MEASURED = Ours("measured.json", PAGE_FILES)
"""What lies in a folder of `measure`."""
NEEDED = (*(("buckets", "by_frequency"), ("by_frequency", "lists")), *(("outcomes", "lists"), ("outcomes", "log")))
"""Options, and what nothing comes of them without."""


@MeasureArguments.checks
def measure(
    run: Any,
    lists: Lists | Path | str | Sequence[Path | str] | None = None,
    *,
    metrics: Sequence[str] | None = None,
    empty: str = "skip",
    against: Any = None,
    log: AnyLog | None = None,
    features: Any = None,
    propensities: Examined = None,
    by: Metric = "dcg",
    at: int = 10,
    level: float = 0.95,
    outcomes: Sequence[str] = (),
    by_frequency: AnyLog | None = None,
    buckets: int | None = None,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    command: str = "",
    force: bool = False,
    engine: Engine | str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Measurement:
    """How good a ranking is: by the clicks of a log, without labels, by labelled lists, or by both.

    `run` and `against` are runs (folders, or what `learn` and `load` return), tables or files of query_id, doc_id
    and score, LightGBM files on features by name, or "shown", the order that people saw.

    With a `log` there is a verdict: better, worse or cannot tell, from several estimates that assume different
    things. `features` are those of its documents, `propensities` a file or a run that tells
    examination by rank, in the place of the log itself; `by` is DCG@at or expected clicks.

    With `lists` there are ranking metrics; `empty` says what a query without a relevant document counts: skip,
    zero or one. `by_frequency` is a log that says how often each query is asked: metrics then come for so many
    `buckets` of queries too. With both, the log is of these lists, and click metrics come too; `outcomes` are its
    columns, such as installs, that pages are measured by besides clicks.

    `tracked` is a tracking store whose clicks are features; `columns` says theirs for ours. `out` is a page
    (.html), or a folder for it; `connection` says how the engine of logs in files is reached.
    """
    if lists is None and log is None:
        raise ConfigError(
            ("nothing to measure by: give ", Option("log"), ", or ", Option("lists"), " with labels")
        )
    place = page_place(out, force=force, ours=MEASURED)
    given: dict[str, Any] = {"lists": lists, "log": log, "outcomes": outcomes or None}
    given |= {"by_frequency": by_frequency, "buckets": buckets}
    for name, needed in NEEDED:
        if given[name] is not None and given[needed] is None:
            raise ConfigError((Option(name), " says nothing alone: give ", Option(needed), " too"))
    told = isinstance(run, str | Path) or model_of(run) is not None  # a run remembers what columns were called
    named, beside = Names.of(columns, run if told else None), None if lists is not None else tracked
    options = {"features": features, "names": Names.of(columns), "doc_ids": doc_ids, "tracked": beside}
    new, other = open_ranking(run, **options), None if against is None else open_ranking(against, **options)
    found = Measurement(new.name, None if other is None else Compared(other.name))
    judged = log
    if lists is not None:
        from unskew.workflows.proofs.measure_lists import measure_lists  # loads torch

        metrics = metrics or DEFAULT_METRICS
        said: dict[str, Any] = {"metrics": metrics, "empty": empty, "outcomes": outcomes, "buckets": buckets}
        said |= {"by_frequency": by_frequency, "names": named, "doc_ids": doc_ids, "tracked": tracked}
        found, judged = measure_lists(new, other, lists, log, **said)
    if judged is not None:
        how: dict[str, Any] = {"propensities": propensities, "by": by, "at": at, "level": level, "seed": seed}
        against = other or ShownRanking()
        evidence = prove(new, against, log=judged, names=named, engine=engine, **how, **connection)
        tell_heavy(evidence)
        found = replace(found, evidence=evidence)
    if place is not None:
        page = measure_page(found, log_origin(log) if isinstance(log, str | Path) else "", command)
        write_found(place, page, found, force=force, ours=MEASURED)
    return found


@ShipArguments.checks
def ship(
    run: Any,
    log: AnyLog,
    *,
    against: Any = SHOWN,
    features: Any = None,
    risk: float = 0.05,
    at_least: float = 0.0,
    bound: Bound = "auto",
    group: str | None = None,
    propensities: Examined = None,
    by: Metric = "dcg",
    at: int = 10,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
    out: Path | str | None = None,
    command: str = "",
    force: bool = False,
    engine: Engine | str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Shipping:
    """Whether a ranking may replace another, or what was shown, by the clicks of a log and without labels.

    `risk` is the chance of shipping what gains no more than `at_least`, a share such as 0.01 for 1 %. `group` is a
    column of the log, or of features, to tell exposure by. `out` is a page (.html). The rest is as for
    `measure`. How it is decided is in `measuring/shipping.py`.
    """
    known("bound", bound, BOUNDS)
    place = page_place(out, force=force)
    watched = Watched(at)
    names = Names.of(columns)
    opened = {"features": features, "names": names, "doc_ids": doc_ids, "tracked": tracked}
    new, other = open_ranking(run, **opened), open_ranking(against, **opened)
    how: dict[str, Any] = {"propensities": propensities, "by": by, "at": at, "seed": seed, "names": names}
    how |= {"features": features, "group": group, "watch": watched, "engine": engine}
    found = prove(new, other, log=log, level=1 - 2 * risk, **how, **connection)
    tell_heavy(found)
    made = decided(found, watched, new.name, other.name, risk=risk, at_least=at_least, bound=bound)
    if place is not None:
        write_found(place, ship_page(made, command=command))
    return made
