"""`method = "auto"`: several methods learn from a part of the pages, the rest judges them, and one is taken.

Pages are dealt out into parts by query. Every candidate learns without a part and is judged on it, so that no page
judges a ranker that has seen it; where clicks are few, part after part. The one that makes held-out clicks most
likely (`judges`), on top of the order shown where scores begin there, is taken. Labels are not looked at. What is
taken then learns from all pages, with all settings of the run.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from unskew.errors import ConfigError, Key, UnskewError
from unskew.examination import Examination
from unskew.learning.fitting.distributed import world
from unskew.learning.methods import LEARNERS, Learner, MethodConfig
from unskew.learning.rankers import RANKERS, Ranker
from unskew.settings import Table, kind_of, listed, table_of
from unskew.types import Array, Log
from unskew.workflows.runs.correction import begins_as, engine_of
from unskew.workflows.runs.data import LogData, TrainingData
from unskew.workflows.runs.judges import Contest, Pick, Ranked
from unskew.workflows.runs.run import run
from unskew.workflows.runs.settings import USUAL_METHOD, Auto, Settings, suited

FEWEST_CLICKS = 100
"""Held-out clicks below which nothing is chosen by them."""
MANY_CLICKS = 500
"""Held-out clicks that judge well enough; parts are judged until there are as many."""
FEW_QUERIES = 10
"""Queries below which pages are dealt out in their place."""


def picked(asked: Settings, data: TrainingData) -> tuple[Settings, Pick | None]:
    """The settings with a method, chosen where that is asked for, and what chose it."""
    if asked.auto is None:
        return asked, None
    if not isinstance(data, LogData) or world()[1] > 1:
        raise ConfigError(
            "method auto compares methods on a log in memory, in one process: name a method for shards, counts or "
            "torchrun"
        )
    pick = choose(asked, data)
    asked = asked if pick.ranker is None else with_ranker(asked, pick.ranker)
    return with_method(asked, pick.method), pick


@dataclass
class Trial:
    """What candidates learn from and are judged by; who could not learn, and why."""

    data: LogData
    parts: list[Array]
    begins: Array | None
    examination: Examination | None
    left_out: dict[str, str] = field(default_factory=dict)

    def learned(self, asked: Mapping[str, Settings]) -> dict[str, list[Array]]:
        """Scores of all documents by those that can learn, without each part of the pages."""
        found = {}
        for label, settings in asked.items():
            try:
                found[label] = [contestant(settings, self.data, part) for part in self.parts]
            except UnskewError as error:
                self.left_out[label] = str(error)
        return found

    def judged(self, learned: Mapping[str, list[Array]]) -> Ranked:
        """What the clicks of the parts say of them."""
        contest = Contest(list(learned), self.begins, self.examination)
        for number, part in enumerate(self.parts):
            contest.add(self.data.train.take(part), {label: scores[number] for label, scores in learned.items()})
        return contest.finish()


def choose(asked: Settings, data: LogData) -> Pick:
    """The candidate that held-out clicks prefer, with the ranker that they prefer for it."""
    auto = asked.auto or Auto()
    methods = candidates(auto)
    parts = parts_of(data.train, auto.parts, asked.training.seed)
    clicks = sum(clicks_of(data.train, part) for part in parts)
    if clicks < FEWEST_CLICKS:
        return usual(f"{clicks:,} held-out clicks are too few to choose by")
    prior, examination, _ = engine_of(data.train, asked.engine)
    begins = None if prior is None else begins_as(asked, data, prior, examination)
    trial = Trial(data, parts, begins, examination)
    learned = trial.learned({label: with_method(asked, each, budget=True) for label, each in methods.items()})
    methods = {label: method for label, method in methods.items() if label in learned}
    if len(methods) < 2:
        return usual(f"{len(methods)} of the candidates can learn from this log", methods, trial.left_out)
    found = trial.judged(learned)
    label, told, ranker = found.order[0], because(found, begins=prior is not None), None
    if asked.ranker is not None and (rankers := rankers_for(auto, asked)):
        others = {
            name: with_method(with_ranker(asked, each), methods[label], budget=True)
            for name, each in rankers.items()
        }
        tried = {asked.ranker.name: learned[label]} | trial.learned(others)
        best = trial.judged(tried).order[0]
        ranker, told = rankers.get(best), f"{told} Of {listed(list(tried))} it ranks best with {best}."
    return Pick(
        label, methods[label], told, found.order, found.values, found.alone, found.clicks, trial.left_out, ranker
    )


def rankers_for(auto: Auto, asked: Settings) -> dict[str, Ranker]:
    """The rankers that the method is also tried with, by name."""
    found = {name: table_of("method.rankers", {"name": name}, RANKERS) for name in auto.rankers}
    return {name: ranker for name, ranker in found.items() if ranker != asked.ranker}


def with_ranker(asked: Settings, ranker: Ranker) -> Settings:
    """The settings with this ranker."""
    return asked.model_copy(update={"ranker": ranker})


def usual(
    why: str, methods: Mapping[str, Learner] | None = None, left_out: Mapping[str, str] | None = None
) -> Pick:
    """The default where nothing can be chosen by; the one candidate that can learn, where there is one."""
    label, method = next(iter((methods or {}).items()), (USUAL_METHOD, None))
    taken = method or table_of("method", {"name": USUAL_METHOD}, LEARNERS)
    return Pick(label, taken, f"auto cannot tell: {why}; it takes {label}.", left_out=left_out or {})


def because(found: Ranked, *, begins: bool) -> str:
    """Why it was taken, and what that was worth, in a sentence."""
    first, second = found.order[:2]
    gain, ahead = found.values[first] - found.alone, found.values[first] - found.values[second]
    what = "on top of the order shown" if begins else "by itself"
    return (
        f"auto took {first}: {what} it makes each of {found.clicks:,} held-out clicks {np.expm1(gain):.1%} more "
        f"likely, {second}, the next, {np.expm1(gain - ahead):.1%}."
    )


def candidates(auto: Auto) -> dict[str, Learner]:
    """The methods to choose from, by label."""
    found: dict[str, Learner] = {}
    for index, given in enumerate(auto.candidates):
        content: Table = {"name": given} if isinstance(given, str) else dict(given)
        key = f"method.candidates.{index}"
        if auto.factors and "name" in content:
            if "factors" not in kind_of(Key(f"{key}.name"), content["name"], LEARNERS, Learner).model_fields:
                continue
            content = {"factors": list(auto.factors)} | content
        method = table_of(key, content, LEARNERS, Learner)
        if not isinstance(method, MethodConfig) or method.target == "labels":
            raise ConfigError(
                f"{method.name} cannot be one; name methods that learn from clicks",
                argument=Key(key),
            )
        more = {name: value for name, value in content.items() if name not in ("name", "factors")}
        found[", ".join([method.name, *(f"{name} = {value}" for name, value in more.items())])] = method
    if not found:
        raise ConfigError(
            "no candidate takes factors; name one that does in method.candidates", argument=Key("method.factors")
        )
    return found


def contestant(asked: Settings, data: LogData, part: Array) -> Array:
    """Scores of all documents by a candidate that learned without a part of the pages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the one that is taken will say it again
        done = run(asked, LogData(data.train.take(~part), data.held_out, data.validation), judged=False)
    if done.fit.status == "interrupted":
        raise KeyboardInterrupt
    return done.model.correction(data.train.lists).astype(float)


def with_method(asked: Settings, method: Learner, *, budget: bool = False) -> Settings:
    """The settings with this method; `budget` with no more steps than a candidate gets."""
    training, auto = asked.training, asked.auto or Auto()
    if budget and asked.fitted_by == "steps":
        fewer = auto.steps if training.steps is None else min(training.steps, auto.steps)
        training = training.model_copy(update={"steps": fewer})
    made = suited(method, asked.ranker, asked.scaling, training, "scaling")
    engine = "none" if budget else asked.engine
    return made.model_copy(update={"encoding": asked.encoding, "engine": engine})


def parts_of(log: Log, count: int, seed: int) -> list[Array]:
    """Flags [S] of the pages of each part that judges: those of its queries, or pages where queries are few."""
    queries = np.unique(log.query)
    rng = np.random.default_rng([seed, 13])
    if len(queries) < FEW_QUERIES:
        dealt = rng.permutation(len(log)) % count
    else:
        dealt = (rng.permutation(len(queries)) % count)[np.searchsorted(queries, log.query)]
    parts = [dealt == number for number in range(count)]
    clicks = np.cumsum([clicks_of(log, part) for part in parts])
    return parts[: 1 + int((clicks[:-1] < MANY_CLICKS).sum())]


def clicks_of(log: Log, part: Array) -> int:
    """Clicks on the pages of a part."""
    return int((log.click[np.repeat(part, log.sizes)] > 0).sum())
