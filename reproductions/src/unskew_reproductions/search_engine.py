"""A whole search engine: a month is tracked, the next is learned from, queries are measured by their frequency.

Tables 2 and 4 of "Approximated Doubly Robust Search Relevance Estimation". Every seed draws traffic of its own
(`Traffic`): which queries are asked often, what is shown and clicked. An examination model is learned from the
first month's display times, its clicks are tracked, and arms learn from the time after it. They see the features
of documents, which stand in for text, tracked clicks, or both. Lists are measured with labels that no arm has
read.

Legend: Q queries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unskew.errors import ConfigError, RunError, UnskewError
from unskew.logs.log import write_log
from unskew.measuring import measure_ranking
from unskew.pages.page import Term
from unskew.simulation import Traffic, TrustBias
from unskew.studies.compare.arms import Point
from unskew.studies.compare.config import Asked
from unskew.studies.compare.simulated import read_data
from unskew.tracking.display_times import display_times
from unskew.tracking.features import FEATURES, with_tracked
from unskew.tracking.track import track
from unskew.types import Array, Columns, Lists, Log
from unskew.workflows.runs.learn import learn
from unskew_reproductions.data import DataSet
from unskew_reproductions.gains import Measured, gain_section
from unskew_reproductions.recipe import Recipe, SearchEngine
from unskew_reproductions.trial import How, Tried, arm_terms


@dataclass(frozen=True)
class World:
    """What one seed draws."""

    sees: Mapping[str, Lists]
    """The documents with features, clicks, or both."""
    log: Log
    """What is learned from, after the tracked time."""
    searches: Array
    """[Q] how often each query was asked while it was tracked."""


def run_search_engine(recipe: Recipe, chosen: Sequence[DataSet], how: How) -> Tried:
    """Every arm with every seed on every data set, in one process."""
    sections, records, judged, failed = [], [], [], list[str]()
    for source in chosen:
        made = gain_section(recipe, source, measured(recipe, source, how, failed))
        sections.append(made.section)
        records += made.records
        judged += made.judged
    return Tried(sections, records, judged, failed, _terms(recipe, how.asked(recipe, chosen[0])))


def _terms(recipe: Recipe, asked: Asked) -> list[Term]:
    """What the arms are, and what they see of a document besides or in the place of its features."""
    sees = {"clicks": " It sees tracked clicks alone.", "both": " It sees tracked clicks too."}
    seen = asked_engine(recipe).sees
    return [
        replace(term, says=term.says + sees.get(seen.get(term.name, ""), ""))
        for term in arm_terms(asked, labels=False)
    ]


def measured(recipe: Recipe, source: DataSet, how: How, failed: list[str]) -> Measured:
    """What every arm is worth on every query, seed by seed; one that fails is left out and told of."""
    asked, engine = how.asked(recipe, source), asked_engine(recipe)
    named = {str(table.get("label", table["name"])) for table in asked.file.methods}
    points = {arm.label: arm.points[0] for arm in asked.arms if arm.label in named}
    lists = read_data(asked.file.data, Path()).train
    found, searches, done = list[dict[str, Mapping[str, Array]]](), list[Array](), 0
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory(prefix="unskew-search-engine-") as folder:
            world = draw_world(traffic_of(asked, engine, seed), lists, engine, Path(folder))
        searches.append(world.searches)
        found.append({})
        for label, point in points.items():
            _tell(how, done, len(asked.seeds) * len(points), f"{label}, seed {seed}")
            sees = world.sees[engine.sees.get(label, "features")]
            try:
                found[-1][label] = arm_values(point, replace(world.log, lists=sees), seed, recipe.metrics)
            except UnskewError as error:
                failed.append(f"{source.title}: {label}, seed {seed}: {error}")
            done += 1
    _tell(how, done, done)
    whole = [label for label in points if all(label in run for run in found)]
    kept = [{label: run[label] for label in whole} for run in found]
    if engine.base not in whole:
        raise RunError(f"{engine.base}, which gains are over, has no result: {failed[0]}")
    return Measured(kept, searches, [label for label in asked.baselines if label in whole])


def _tell(how: How, done: int, total: int, *running: str) -> None:
    if how.tell is not None:
        how.tell(done, total, list(running))


def asked_engine(recipe: Recipe) -> SearchEngine:
    """The part of a recipe that is about the search engine."""
    if recipe.search_engine is None:
        raise ConfigError(f"{recipe.title}: a recipe of this kind has a table [search_engine]")
    return recipe.search_engine


def traffic_of(asked: Asked, engine: SearchEngine, seed: int) -> Traffic:
    """The traffic of a seed: pages, logging ranker and people as the recipe's comparison says."""
    people = next(iter(asked.behaviours.values()))
    if not isinstance(people, TrustBias):
        raise ConfigError("behaviours: a search engine has people of the behaviour trust")
    return Traffic(
        pages=asked.file.pages or 0,
        days=engine.days,
        skew=engine.skew,
        random_top=engine.random_top,
        shuffled=engine.shuffled,
        trust=people,
        logger=asked.logger,
        seed=seed,
    )


def draw_world(traffic: Traffic, lists: Lists, engine: SearchEngine, folder: Path) -> World:
    """Draw a log, learn examination from its first part and track it, in files of the folder."""
    log = traffic.draw(lists)
    end = np.datetime64(traffic.start, "s") + np.timedelta64(round(engine.tracked * 86_400), "s")
    later = log.columns["timestamp"][log.offsets[:-1]] >= end
    before = log.take(~later)
    write_log(before, folder / "log.parquet")
    display_times(folder / "log.parquet", folder / "examination", threads=1)
    judged, until = folder / "examination", f"{end}Z"
    track(folder / "log.parquet", folder / "store", examination=judged, until=until, refresh="all", threads=1)
    both = with_tracked(lists, folder / "store")
    tracked = np.ascontiguousarray(both.features[:, -len(FEATURES) :])
    clicks = replace(both, features=tracked, columns=Columns(FEATURES))
    searches = np.bincount(before.query, minlength=len(lists))
    return World({"features": lists, "clicks": clicks, "both": both}, log.take(later), searches)


def arm_values(point: Point, log: Log, seed: int, metrics: Sequence[str]) -> Mapping[str, Array]:
    """Every metric of an arm on every query, [Q] each; one without a relevant document counts 0."""
    training = point.training.model_copy(update={"seed": seed})
    run = learn(log, point.method, ranker=point.ranker, training=training, engine="none")
    return measure_ranking(run.score(log.lists), log.lists, list(metrics), empty="zero").per_query
