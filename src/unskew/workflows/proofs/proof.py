"""Whether a ranking is better than another, or than what was shown, by the clicks of a log and without labels.

    found = prove("runs/dla", log="parts/test", features="features.parquet")
    found.verdict, found.sentence, found.estimates

The log is one in memory, or files of any size, which are read in parts of whole queries (`joined_log.py`). What is
estimated, and when a verdict is given, is in `measuring/counterfactual`. Examination by rank comes from a file,
from the log itself where it shuffled pages or shows documents at several ranks, or from a run, which never decides
alone.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from unskew.errors import ConfigError, DataError, located, warn
from unskew.examination import Examination
from unskew.learning.scoring.scorer import load_scorer
from unskew.logs.reader import AnyLog, opened
from unskew.measuring import ClickEvidence, Judge, LoggedPages, places, shown_places
from unskew.measuring.counterfactual.evidence import Metric
from unskew.measuring.counterfactual.pages import LARGE, usual_cluster
from unskew.names import CLUSTERS, NO_NAMES, Names
from unskew.options.base import EngineConnection
from unskew.options.runs import MeasureArguments
from unskew.tables.engine.engine import Engine, connect
from unskew.types import Array, Log
from unskew.workflows.inputs.rankings import Ranking, ShownRanking, document_order, model_of, open_ranking
from unskew.workflows.proofs.joined_log import MISSING, HeldLog, JoinedLog, JudgedPart, join_log, tell_lost

Examined = Any
"""An `Examination`, a file of it, a run that learned it, or numbers by rank; None: found in the log."""


def known_examination(given: Examined) -> Examination | None:
    """Examination as a file, a run or the caller tells it; None where the log is to tell."""
    if given is None or isinstance(given, Examination):
        return given
    if (learned := learned_examination(given)) is not None:
        return learned
    return Examination.read(given) if isinstance(given, str | Path) else Examination.of(given, "numbers")


def learned_examination(given: object) -> Examination | None:
    """What the method of a run learned; None of what is no run."""
    folder = given if isinstance(given, str | Path) and (Path(given) / "model.json").exists() else None
    model = model_of(given) if folder is None else load_scorer(folder)
    if model is None:
        return None
    name, theta = model.card.method["name"], model.propensity()
    if theta is None:
        hint = "take a run of dla, ipw or regression_em, or the log itself"
        raise DataError(f"{name} learns no examination by rank", path=folder, hint=hint)
    return Examination.of(theta, f"method {name}")


Watch = Callable[[LoggedPages, Array, Array, Array | None], None]
"""Who looks on: pages of a part, places [N] of the ranking and of what it is held against, and groups [N]."""


def prove(
    run: Any,
    against: Any = "shown",
    *,
    log: AnyLog,
    features: Any = None,
    propensities: Examined = None,
    names: Names = NO_NAMES,
    by: Metric = "dcg",
    at: int = 10,
    level: float = 0.95,
    seed: int = 0,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
    group: str | None = None,
    watch: Watch | None = None,
    engine: Engine | str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> ClickEvidence:
    """Whether a ranking is better than another by the clicks of a log: estimates with intervals, and a verdict.

    Rankings are whatever `open_ranking` takes. `features` are those of the log's documents, where the log is in
    files and a ranking is a model. `by` is DCG@at by relevance, or expected clicks. `watch` is called with the
    pages of each part, both places of their results and their `group`, a column. `connection` says how the engine
    is reached.
    """
    if unknown := sorted(set(connection) - set(EngineConnection.__annotations__)):
        raise TypeError(f"prove() got an unexpected keyword argument {unknown[0]!r}")
    MeasureArguments.check(level=level, at=at)
    how = {"features": features, "names": names, "doc_ids": doc_ids, "tracked": tracked}
    new, other = open_ranking(run, **how), open_ranking(against, **how)
    if isinstance(new, ShownRanking) and isinstance(other, ShownRanking):
        raise ConfigError("what was shown against what was shown: name a ranking")
    known, making = known_examination(propensities), partial(Judge, metric=by, at=at, seed=seed)
    if isinstance(log, Log):
        held = HeldLog(_part(log, new, other, group), usual_cluster(log))
        return _proved(held, making, known, at, level, watch)
    with connect(engine, **connection) if isinstance(engine, str) else nullcontext(engine) as running:
        stored = opened(log, names, shared=True)
        joined = join_log(running, stored, new, other, group=group, features=features)
        with located(stored.place):
            return _proved(joined, making, known, at, level, watch)


def _proved(
    log: HeldLog | JoinedLog,
    making: Callable[..., Judge],
    known: Examination | None,
    at: int,
    level: float,
    watch: Watch | None,
) -> ClickEvidence:
    """What a log says, and what it says without the clusters that hold far more clicks than others."""
    found = _judged(making(examination=known or log.examination()), log.parts(), at, level, watch)
    clusters, heavy = log.heavy()
    if not heavy.count or found.verdict == "cannot tell":  # nothing to be borne out
        return replace(found, heavy=heavy if heavy.count else None)
    rest = log.without(clusters)
    with suppress(DataError):  # nothing is left to judge by
        judge = making(examination=known or rest.examination())
        heavy = replace(heavy, rest=_judged(judge, rest.parts(), at, level, None))
    return found.beside(heavy)


def tell_heavy(found: ClickEvidence) -> None:
    """Warn of a single person, or a single document, that holds a large share of the clicks."""
    heavy = found.heavy
    person = heavy.largest if heavy is not None and f"{heavy.unit}_id" in CLUSTERS else 0.0
    for who, share in ((heavy.unit if heavy else "", person), ("document of a query", found.largest_document)):
        if share >= LARGE:
            warn(f"one {who} holds {share:.0%} of all clicks")


def _judged(
    judge: Judge, parts: Iterable[JudgedPart], at: int, level: float, watch: Watch | None
) -> ClickEvidence:
    """Every part judged, and how much of what the ranking would pick is on no page."""
    lost = wanted = longest = 0
    clicks = 0.0
    for part in parts:
        pages = part.pages
        clicks, longest = clicks + pages.click.sum(), max(longest, int(pages.sizes.max(initial=0)))
        new, other = (
            shown_places(pages) if each is None else places(each, pages) for each in (part.new, part.other)
        )
        judge.add(pages, new, other)
        if watch is not None:
            watch(pages, new, other, part.group)
        if part.order is not None and part.candidates is not None:
            first = np.minimum(pages.sizes, at)[pages.page]
            seen = int((part.order <= first).sum())
            top = np.minimum(first, part.candidates)[pages.offsets[:-1]].sum()
            lost, wanted = lost + int(top) - seen, wanted + int(top)
    if longest < 2 or not clicks:
        what = "nothing was clicked" if longest > 1 else "pages have one result each, and no order to judge"
        raise DataError(what, hint="name a log with clicks on pages of several results")
    return judge.finish(level, missing_overlap=lost / wanted if wanted else None)


def _part(log: Log, new: Ranking, other: Ranking, group: str | None = None) -> JudgedPart:
    known = [each.of_documents(log.lists) for each in (new, other)]
    scores = [None if each is None else np.asarray(each, np.float64)[log.row] for each in known]
    unscored: Array = np.any([np.isnan(each) for each in scores if each is not None], axis=0)
    pages = LoggedPages.from_log(log)
    if unscored.any():
        lost = pages.per_page(unscored) > 0
        tell_lost(int(lost.sum()), len(pages), int(unscored.sum()), len(log.row), f"the log of {log.lists.name}")
        kept = ~lost[pages.page]
        log, scores = log.take(~lost), [None if each is None else each[kept] for each in scores]
        pages = pages.take(~lost)
    order = None if known[0] is None else document_order(known[0], log.lists)[log.row]
    candidates = None if known[0] is None else log.lists.sizes[log.query][pages.page]
    named = None if group is None else groups_of(log, group)
    return JudgedPart(pages, scores[0], scores[1], order, candidates, named)


def groups_of(log: Log, column: str) -> Array:
    """A column of a log in memory, or of the features of its documents, as text, [N]."""
    if column in log.columns:
        return np.asarray(log.columns[column]).astype(str)
    known = log.lists.columns
    if known is None or column not in known.names:
        place = f"the log of {log.lists.name}"
        raise DataError(f"there is no column {column}", path=place, hint="name one of the log, or of its features")
    values = np.asarray(log.lists.features[:, known.names.index(column)])[log.row]
    if column not in known.categories:
        return values.astype(str)
    names = np.array([*known.categories[column], MISSING])
    named: Array = names[np.where(np.isnan(values), len(names) - 1, values).astype(np.int64)]
    return named
