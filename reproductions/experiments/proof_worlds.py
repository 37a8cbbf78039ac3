"""Two hundred simulated worlds in which the truth about a ranking is known: are proofs without labels right?

    python reproductions/experiments/proof_worlds.py    # worlds 0 to 199, which choose nothing; run once
    python reproductions/experiments/proof_worlds.py --worlds 1000 1072   # others, to try things
    python reproductions/experiments/proof_worlds.py --worlds 1100 1130 --shuffled 1.0

    from proof_worlds import World                          # for other experiments
    world = World(1000)
    world.train, world.held_out, world.test, world.truth(scores).dcg

A world is a way of clicking (position, trust, matrix, mixture, individual, paged), steep or flat, a strong or a
weak logging ranker that stays or changes from week to week, 0, 1 or 5 % shuffled pages, ten shown of 15 to 60, and
a number of pages. Held-out pages are other visits to the same queries, or other queries. The truth comes from the
simulator's own probabilities:

    clicks of a page in the order of the scores      sum_i P(click on i at place(i))
    DCG@10 of it                                     sum_i disc(place(i)) P(click on i at rank 1)
    the same, flat                                   sum_i disc(place(i)) mean_k P(click on i at rank k)

Legend: Q queries, K results of a page, N documents.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unskew.measuring import Judge, LoggedPages, examination_of, places, shown_places
from unskew.simulation import (
    Behaviour,
    LinearRanker,
    PositionBias,
    ScoresLogger,
    Shown,
    SvmLogger,
    TrustBias,
    simulate,
)
from unskew.simulation.simulation import lay_out
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Lists, Log
from unskew_reproductions.behaviours import ClickMatrix, IndividualBias, Mixture

BEHAVIOURS = ("position", "trust", "matrix", "mixture", "individual", "paged")
LOGGERS = ("strong", "weak")
SHUFFLED = (0.0, 0.01, 0.05)
PAGES = (1_000, 3_000, 10_000, 30_000)
WORLDS = range(200)
"""Worlds that choose nothing. Those from 1000 on are for trying things."""
SHOWN_RESULTS = 10
FEATURES = 12
GRADES = (0.35, 0.25, 0.2, 0.12, 0.08)
Ranker = Callable[[Lists], Array]
"""From lists to a score for every document, [N]."""


@dataclass(frozen=True)
class Truth:
    """What an order is worth, on average over pages."""

    clicks: float
    dcg: float
    """By click rates at rank 1."""
    flat: float
    """By click rates averaged over ranks."""
    share: float
    """DCG over the sum of click rates at rank 1, all pages together."""

    def minus(self, other: Truth) -> Truth:
        """The gain over another."""
        return Truth(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))


class World:
    """A world of this number; everything in it follows from the number."""

    def __init__(self, seed: int, *, shuffled: float | None = None) -> None:
        self.seed = seed
        rng = np.random.default_rng([seed, 17])
        self.behaviour = BEHAVIOURS[seed % 6]
        self.logger = LOGGERS[seed // 6 % 2]
        self.shuffled = SHUFFLED[seed // 12 % 3] if shuffled is None else shuffled
        self.pages = PAGES[seed // 36 % 4] if seed < 1000 else PAGES[int(rng.integers(4))]
        self.steep = bool(rng.random() < 0.5)
        self.weeks = int(rng.choice([1, 3])) if self.shuffled < 1 else 1
        """Versions of the logging ranker; with several, documents move without being shuffled."""
        # an individual world scales features by their range in the lists, so these must be the same ones
        self.same_queries = bool(rng.random() < 0.5) or self.behaviour == "individual"
        self.queries = int(rng.integers(80, 300))
        self.people = people(self.behaviour, self.steep)
        self._lists_seed = int(rng.integers(2**31))

    def __repr__(self) -> str:
        kind = (
            f"{self.behaviour}, {'steep' if self.steep else 'flat'}, {self.logger}, {self.shuffled:.0%} shuffled"
        )
        held = "visits" if self.same_queries else "queries"
        return f"World({self.seed}: {kind}, {self.pages} pages, {self.weeks} weeks, held-out {held})"

    def _make(self, number: int, queries: int) -> Lists:
        seed = self._lists_seed + number
        return make_lists(queries, FEATURES, (15, 60), seed=seed, world=self.seed, grades=GRADES)

    @cached_property
    def lists(self) -> Lists:
        """The queries that the training log has."""
        return self._make(0, self.queries)

    @cached_property
    def held_lists(self) -> Lists:
        """The queries that the held-out log has."""
        return self.lists if self.same_queries else self._make(1, self.queries)

    @cached_property
    def test(self) -> Lists:
        """Many other queries of this world, with labels."""
        return self._make(2, 1500)

    @cached_property
    def population(self) -> Lists:
        """What held-out pages are a sample of: the same queries, or many others."""
        return self.held_lists if self.same_queries else self._make(4, 5000)

    @cached_property
    def train(self) -> Log:
        """Pages to learn from."""
        return self._log(self.lists, 0)

    @cached_property
    def held_out(self) -> Log:
        """Pages to judge by, as many."""
        return self._log(self.held_lists, 1)

    def logging_scores(self, lists: Lists, week: int = 0) -> Array:
        """What ordered the pages in a week."""
        scores = self._logging_ranker.scores(lists)
        noise = np.random.default_rng([self.seed, week, len(lists.features)]).standard_normal(len(scores))
        return scores + 0.4 * scores.std() * noise * (self.weeks > 1)

    @cached_property
    def _logging_ranker(self) -> LinearRanker:
        """Trained on a few labelled queries of its own; a weak one has a wrong favourite."""
        strong = self.logger == "strong"
        svm = SvmLogger(share=0.5 if strong else 0.03, pairs=2000, favourite=0.0 if strong else 1.5)
        return svm.fit(self._make(3, 100), self.seed)

    def _log(self, lists: Lists, number: int) -> Log:
        """Pages of all weeks, in visits of two where visits are drawn again."""
        weeks = [
            simulate(
                lists,
                self.people,
                logger=ScoresLogger(values=self.logging_scores(lists, week)),
                pages=self.pages // self.weeks,
                randomized=self.shuffled,
                cutoff=SHOWN_RESULTS,
                seed=10 * self.seed + 5 * number + week,
            )
            for week in range(self.weeks)
        ]
        log = join(weeks)
        if not self.same_queries:
            return log
        visit = np.repeat(np.arange(len(log)) // 2, log.sizes)
        return replace(log, columns={**log.columns, "visit_id": visit})

    def truth(self, scores: Array | None = None, lists: Lists | None = None) -> Truth:
        """What the order by scores [N] of documents is worth on held-out (or these) queries; None: as shown."""
        lists = self.held_lists if lists is None else lists
        found = [self._truth_of(lists, scores, week) for week in range(self.weeks)]
        clicks, dcg, flat, total = np.mean(found, axis=0).tolist()
        return Truth(clicks, dcg, flat, dcg / total)

    def _truth_of(self, lists: Lists, scores: Array | None, week: int) -> tuple[float, ...]:
        """Clicks, DCG, flat DCG and click rates at rank 1, of a page on average."""
        shown = lay_out(lists, self.logging_scores(lists, week), SHOWN_RESULTS)
        chance = rank_chances(self.people.prepare(lists), shown)  # [Q, K results, K ranks]
        keys = np.arange(SHOWN_RESULTS) if scores is None else -np.append(scores, -np.inf)[shown.rows]
        place = np.argsort(np.argsort(np.broadcast_to(keys, shown.rows.shape), axis=1, kind="stable"), axis=1)
        at_place = np.take_along_axis(chance, place[:, :, None], axis=2)[:, :, 0]
        discount = 1 / np.log2(place + 2.0)
        values = at_place, discount * chance[:, :, 0], discount * chance.mean(axis=2), chance[:, :, 0]
        return tuple(float(value.sum(axis=1).mean()) for value in values)


def people(behaviour: str, steep: bool) -> Behaviour:
    """How people click in a world."""
    if behaviour == "position":
        return PositionBias(severity=1.3 if steep else 0.5)
    if behaviour == "paged":
        return PositionBias(page_size=5, next_page=0.3 if steep else 0.7, severity=1.0 if steep else 0.5)
    if behaviour == "trust":
        return TrustBias(severity=1.0 if steep else 0.4)
    if behaviour == "mixture":
        return Mixture(ratio=(1.0, 2.0, 1.0, 3.0) if steep else (1.0, 1.0, 2.0, 1.0))
    if behaviour == "individual":
        return IndividualBias(severity=0.6 if steep else 0.3, features=tuple(range(10)))
    table = np.asarray(ClickMatrix().matrix)
    flat = 0.5 * table + 0.5 * table.mean(axis=1, keepdims=True)
    return ClickMatrix(matrix=tuple(map(tuple, (table if steep else flat).tolist())))


def rank_chances(behaviour: Behaviour, shown: Shown) -> Array:
    """P(click) of every result of a page at every rank of it, [Q, K, K]; users look at one result at a time."""
    width = shown.rows.shape[1]
    shown = replace(shown, terms=behaviour.document_terms(shown.lists))
    found = np.zeros((len(shown.rows), width, width))
    for turn in range(width):
        order = (np.arange(width) + turn) % width  # result `order[k]` at rank k
        turned = replace(shown, rows=shown.rows[:, order], labels=shown.labels[:, order])
        found[:, order, np.arange(width)] = behaviour.click_probability(turned)
    return found


def join(logs: list[Log]) -> Log:
    """Logs over the same lists as one."""
    sizes = np.concatenate([log.sizes for log in logs])
    random = [log.randomized for log in logs if log.randomized is not None]
    return replace(
        logs[0],
        query=np.concatenate([log.query for log in logs]),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        row=np.concatenate([log.row for log in logs]),
        position=np.concatenate([log.position for log in logs]),
        click=np.concatenate([log.click for log in logs]),
        randomized=np.concatenate(random) if random else None,
    )


# ---- rankings to judge ----


def rankers(world: World) -> dict[str, Ranker]:
    """Rankings of which some are better than what was shown and some worse."""
    theta = np.maximum(rank_chances(world.people, lay_out(*_logged(world))).mean(axis=(0, 1)), 1e-3)
    return {
        "naive": least_squares(world.train, np.ones(SHOWN_RESULTS)),
        "debiased": least_squares(world.train, theta / theta[0]),
        "relevant": lambda lists: lists.labels + 0.7 * _noise(world, lists, 1),
        "nudged": lambda lists: _nudged(world, lists),
        "shuffled": lambda lists: _noise(world, lists, 2),
        "reversed": lambda lists: -world.logging_scores(lists),
    }


def least_squares(log: Log, theta: Array) -> Ranker:
    """A linear ranker by ridge regression of weighted clicks on standardised features."""
    x = np.asarray(log.lists.features, float)
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    seen = (x[log.row] - mean) / scale
    wanted = log.click / theta[log.position - 1]
    level = wanted.mean()
    weights = np.linalg.solve(seen.T @ seen + 10 * np.eye(x.shape[1]), seen.T @ (wanted - level))
    return lambda lists: (np.asarray(lists.features, float) - mean) / scale @ weights


def _logged(world: World) -> tuple[Lists, Array, int]:
    return world.lists, world.logging_scores(world.lists), SHOWN_RESULTS


def _noise(world: World, lists: Lists, number: int) -> Array:
    return np.random.default_rng([world.seed, number, len(lists.features)]).standard_normal(len(lists.features))


def _nudged(world: World, lists: Lists) -> Array:
    scores = world.logging_scores(lists)
    return scores + 0.3 * scores.std() * _noise(world, lists, 3)


# ---- what is said of them ----

HOLDS = {
    "direct": ("flat", BEHAVIOURS),
    "pseudo-inverse": ("clicks", BEHAVIOURS),
    "ips": ("dcg", ("position", "paged")),
    "snips": ("share", ("position", "paged")),
    "item-position": ("clicks", BEHAVIOURS),
    "dr": ("clicks", ("position", "paged")),
}
"""What an estimate means, and the worlds in which what it assumes is true."""
COVERED = 0.95
"""Overlap from which item-position speaks of the whole difference."""


def judge_world(world: World) -> list[dict[str, Any]]:
    """Every ranking of a world judged, beside the truth."""
    pages = LoggedPages.from_log(world.held_out)
    examination = examination_of(LoggedPages.from_log(world.train))
    usual, lists = shown_places(pages), world.held_lists
    if world.shuffled == 1:  # nobody saw it, but it is what the truth is told against
        usual = places(world.logging_scores(lists)[world.held_out.row], pages)
    shown = world.truth(None, world.population)
    found = []
    for name, ranker in rankers(world).items():
        judge = Judge(examination=examination)
        judge.add(pages, places(ranker(lists)[world.held_out.row], pages), usual)
        told = judge.finish()
        gain = world.truth(ranker(world.population), world.population).minus(shown)
        found.append(
            {
                "world": world.seed,
                "behaviour": world.behaviour,
                "pages": world.pages,
                "shuffled": world.shuffled,
                "weeks": world.weeks,
                "ranker": name,
                "truth": asdict(gain),
                "relative": gain.dcg / shown.dcg,
                "verdict": told.verdict,
                "decided_by": told.decided_by,
                "estimates": {one.name: (one.difference, one.interval, one.overlap) for one in told.estimates},
            }
        )
    return found


def covers(row: dict[str, Any], name: str) -> bool | None:
    """Whether an interval covers the truth; None where there is none, or its assumption does not hold."""
    _, interval, overlap = row["estimates"][name]
    meant, where = HOLDS[name]
    if interval is None or row["behaviour"] not in where or (name == "item-position" and overlap < COVERED):
        return None
    return bool(interval[0] <= row["truth"][meant] <= interval[1])


def right(row: dict[str, Any]) -> bool | None:
    """Whether a verdict has the sign of the true difference in DCG; None where there is none."""
    if row["verdict"] == "cannot tell":
        return None
    return bool((row["verdict"] == "better") == (row["truth"]["dcg"] > 0))


def share(values: Iterable[bool | None]) -> str:
    """How many of those that say something are true."""
    told = [value for value in values if value is not None]
    return f"{np.mean(told):.1%} of {len(told)}" if told else "none"


def report(rows: list[dict[str, Any]]) -> None:
    """Print coverage, signs, and how often nobody can tell."""
    print("\n| estimate | intervals that cover, where it holds |\n|---|---|")
    for name in HOLDS:
        print(f"| {name} | {share(covers(row, name) for row in rows)} |")
    for key in ("shuffled", "pages", "behaviour", "ranker"):
        print(f"\n| {key} | cannot tell | verdicts with the right sign |\n|---|---|---|")
        for value in dict.fromkeys(row[key] for row in sorted(rows, key=lambda row: str(row[key]).zfill(8))):
            some = [row for row in rows if row[key] == value]
            untold = share(row["verdict"] == "cannot tell" for row in some)
            print(f"| {value} | {untold} | {share(map(right, some))} |")
    print(f"\nall: cannot tell {share(row['verdict'] == 'cannot tell' for row in rows)}", end=", ")
    print(f"right sign {share(map(right, rows))}")


def main() -> None:
    """Judge the worlds and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs=2, default=(WORLDS.start, WORLDS.stop))
    parser.add_argument("--out", type=Path, help="what was found, one line of JSON for each ranking of a world")
    parser.add_argument("--shuffled", type=float, help="share of shuffled pages, in place of 0, 1 and 5 %%")
    asked = parser.parse_args()
    rows = []
    for seed in range(*asked.worlds):
        rows += judge_world(World(seed, shuffled=asked.shuffled))
        print(f"\rworld {seed}", end="", file=sys.stderr, flush=True)
    if asked.out:
        asked.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, end = asked.worlds
    print(f"{platform.machine()}, Python {platform.python_version()}; worlds {first} to {end - 1}")
    report(rows)


if __name__ == "__main__":
    main()
