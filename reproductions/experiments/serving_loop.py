"""Serve, log, diagnose, learn, ship, serve: does the ranking that people see get better, and what does it cost?

    python reproductions/experiments/serving_loop.py --out loop.csv --seeds 0 10
    python reproductions/experiments/serving_loop.py --table loop.csv

A world is 100 queries of 15 to 25 documents, 10 of which are shown. What is served first was learned, naively,
from 2,000 pages that a ranker with a wrong favourite feature logged. In every round a policy changes pages while
they are served; `ipw` learns with the examination that `diagnose` finds, from every other page so far; `ship`
holds it against the run that is served, by the pages so far that nothing was learned from. Where it ships, it is
served from then on. Where a log tells no examination, `dla` learns, as the diagnosis advises. nDCG@10 is that of
500 other queries, by their grades, which nothing else reads. Pages stay in memory here;
`tests/serving/test_serving_loop.py` takes them over HTTP and the files of a log.

Clicks lost: of the same visitors, had they been shown the served ranking as it is. PDGD and dueling bandits are
linear, start from a naive linear ranker and see as many pages.
"""

from __future__ import annotations

import argparse
import csv
import logging
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unskew
from unskew.diagnosis.evidence.evidence import measured
from unskew.diagnosis.evidence.tables import open_tables
from unskew.serving.explore import BoundedShuffle, PlackettLuce, Policy, SwapRanks, TopOne, as_ranked
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Array, Lists, Log
from unskew_reproductions.behaviours import EVERY
from unskew_reproductions.experiments.online import LEARNERS, learn_online
from unskew_reproductions.experiments.visitors import Visitors

SHOWN, FIRST, ROUNDS, PAGES = 10, 2000, 5, 2000
BEHAVIOURS = ("position", "trust", "dynamic_bayesian")
SWAPS = [{"ranks": [rank, rank + 1], "share": 0.1} for rank in range(1, SHOWN)]
POLICIES: dict[str, Policy | None] = {
    "none": None,
    "top_one": TopOne(share=0.2),
    "swaps": SwapRanks(swaps=SWAPS),
    "shuffle": BoundedShuffle(share=0.2),
    "shuffle capped": BoundedShuffle(cap=2),
    "plackett_luce": PlackettLuce(),
}
LINEAR = {"shuffle, linear": "shuffle"}
"""Loops with a linear ranker."""
FIELDS = (
    "behaviour",
    "policy",
    "seed",
    "round",
    "ndcg",
    "made",
    "shipped",
    "clicks",
    "unchanged",
    "why",
    "seconds",
)


@dataclass
class World:
    """Lists, people, and what is served first."""

    seed: int
    behaviour: str
    linear: bool = False
    """Whether rankers are linear, as those of online learners, or small networks."""
    lists: Lists = field(init=False)
    test: Lists = field(init=False)

    def __post_init__(self) -> None:
        self.lists, self.test = (
            unskew.make_lists(number, features=10, documents=(15, 25), seed=part, world=self.seed)
            for part, number in enumerate((100, 500))
        )

    def visitors(self) -> Visitors:
        return Visitors(self.lists, EVERY[self.behaviour](), seed=self.seed)

    def first(self) -> unskew.Run:
        people = EVERY[self.behaviour]()
        log = unskew.simulate(self.lists, people, pages=FIRST, seed=self.seed, cutoff=SHOWN)
        return self.learned(log, "naive")

    def learned(self, log: Log, method: Any) -> unskew.Run:
        """The same for all methods."""
        ranker = "linear" if self.linear else unskew.rankers.MLP(sizes=(32, 16))
        return unskew.learn(
            log, method, ranker=ranker, steps=150 if self.linear else 300, seed=self.seed, engine="none"
        )

    def relearned(self, log: Log, place: Path) -> unskew.Run:
        """By the examination that a diagnosis of the log found; where there is none, by `dla`, as it advises."""
        place.mkdir()
        try:
            with open_tables(log) as tables:
                path = place / "propensities.json"
                measured(tables).write(path)
        except unskew.errors.UnskewError:
            return self.learned(log, "dla")
        return self.learned(log, unskew.methods.IPW(propensity=str(path)))

    def quality(self, scores: Any) -> float:
        return unskew.measure_ranking(np.asarray(scores), self.test, "ndcg@10").means["ndcg@10"]


@dataclass
class Round:
    """What a round showed, and what was clicked."""

    query: list[int] = field(default_factory=list)
    row: list[Array] = field(default_factory=list)
    click: list[Array] = field(default_factory=list)
    propensity: list[Array] = field(default_factory=list)
    randomized: list[Array] = field(default_factory=list)
    unchanged: int = 0
    """Clicks that the served ranking would have had as it is."""

    def clicks(self) -> int:
        return int(np.sum(self.click))


def serve(visitors: Visitors, policy: Policy | None, scores: Array, name: str) -> Round:
    """Show the pages of a round."""
    made = Round()
    for number in range(PAGES):
        query = visitors.ask()
        rows = visitors.candidates(query)
        order = np.argsort(-scores[rows], kind="stable")
        page = as_ranked(order)
        if policy is not None:
            page = policy.rank(order, scores[rows], request_id=f"{name}-{number}")
        shown = rows[page.order[:SHOWN]]
        made.query.append(query)
        made.row.append(shown)
        made.click.append(visitors.click(shown))
        made.propensity.append(page.propensity[:SHOWN])
        made.randomized.append(page.randomized[:SHOWN])
        made.unchanged += int(visitors.click(rows[order[:SHOWN]]).sum())
    return made


def log_of(lists: Lists, rounds: list[Round]) -> Log:
    """Rounds as one log; pages have SHOWN results each."""
    rows, clicks, chances, marks = (
        np.concatenate([np.concatenate(getattr(each, name)) for each in rounds])
        for name in ("row", "click", "propensity", "randomized")
    )
    query = np.concatenate([each.query for each in rounds])
    return Log(
        lists,
        query=query,
        offsets=np.arange(len(query) + 1) * SHOWN,
        row=rows,
        position=np.tile(np.arange(1, SHOWN + 1, dtype=np.int16), len(query)),
        click=clicks.astype(np.uint8),
        randomized=marks if marks.any() else None,
        columns={"propensity": chances},
    )


def loop(world: World, policy: Policy | None, place: Path) -> Iterator[dict[str, Any]]:
    """Round after round."""
    visitors, served = world.visitors(), world.first()
    began, rounds = time.process_time(), list[Round]()
    for this in range(ROUNDS):
        row: dict[str, Any] = {"round": this, "ndcg": world.quality(served.score(world.test))}
        scores = np.asarray(served.score(world.lists), np.float64)
        rounds.append(serve(visitors, policy, scores, f"{world.seed}-{this}"))
        row |= {"clicks": rounds[-1].clicks() / PAGES, "unchanged": rounds[-1].unchanged / PAGES}
        log = log_of(world.lists, rounds)
        kept = np.arange(len(log)) % 2 == 0
        made = world.relearned(log.take(~kept), place / f"{this}")
        told = unskew.ship(made, log.take(kept), against=served)
        row |= {"shipped": int(told.status == 0), "why": told.sentence}
        row["made"] = world.quality(made.score(world.test))
        served = made if told.status == 0 else served
        yield row | {"seconds": time.process_time() - began}
    yield {"round": ROUNDS, "ndcg": world.quality(served.score(world.test))}


class CountedVisitors(Visitors):
    """Visitors whose clicks are counted."""

    clicks = 0

    def click(self, rows: Array) -> Array:
        made = super().click(rows)
        self.clicks += int(made.sum())
        return made


def online(world: World, name: str) -> Iterator[dict[str, Any]]:
    """An online learner on the same visitors, from the weights of what is served first."""
    scaler, first = fit_scaler("standard", world.lists), world.first()
    scaled, test = (scaler.apply(each) for each in (world.lists, world.test))
    ones = np.ones((len(scaled.labels), 1))
    weights = np.linalg.lstsq(np.hstack([scaled.features, ones]), first.score(world.lists), rcond=None)[0][:-1]
    visitors = CountedVisitors(scaled, EVERY[world.behaviour](), seed=world.seed)
    began, before = time.process_time(), 0
    yield {"round": 0, "ndcg": world.quality(test.features @ weights)}
    trace = learn_online(LEARNERS[name](), visitors, ROUNDS * PAGES, seed=world.seed, weights=weights, every=PAGES)
    for pages, weights in trace:
        row = {"round": pages // PAGES, "ndcg": world.quality(test.features @ weights)}
        yield row | {
            "clicks": (visitors.clicks - before) / PAGES,
            "seconds": time.process_time() - began,
        }
        before = visitors.clicks


def run(path: Path, seeds: range, behaviours: list[str], policies: list[str]) -> None:
    """Every loop that the file does not have yet."""
    known = set()
    if path.exists():
        known = {(row["behaviour"], row["policy"], row["seed"]) for row in csv.DictReader(path.open())}
    with path.open("a", newline="") as file:
        out = csv.DictWriter(file, FIELDS)
        if not known:
            out.writeheader()
        for seed in seeds:
            for behaviour in behaviours:
                for policy in policies:
                    if (behaviour, policy, str(seed)) in known:
                        continue
                    world = World(seed, behaviour, linear=policy in LINEAR or policy in LEARNERS)
                    with tempfile.TemporaryDirectory() as place:
                        if policy in LEARNERS:
                            rows = list(online(world, policy))
                        else:
                            rows = list(loop(world, POLICIES[LINEAR.get(policy, policy)], Path(place)))
                    out.writerows({"behaviour": behaviour, "policy": policy, "seed": seed} | row for row in rows)
                    file.flush()


def table(path: Path) -> None:
    """nDCG by round, clicks lost and rounds that shipped, as Markdown."""
    rows = list(csv.DictReader(path.open()))
    for behaviour in dict.fromkeys(row["behaviour"] for row in rows):
        print(f"\n{behaviour}\n\n| | seeds | " + " | ".join(f"{number}" for number in range(ROUNDS + 1)), end="")
        print(" | clicks a page | lost | shipped |\n|---" + "|---:" * (ROUNDS + 5) + "|")
        for policy in dict.fromkeys(row["policy"] for row in rows):
            own = [row for row in rows if (row["behaviour"], row["policy"]) == (behaviour, policy)]
            if own:
                print(_line(policy, own))


def _line(policy: str, rows: list[dict[str, str]]) -> str:
    def of(name: str, number: int | None = None) -> list[float]:
        return [float(row[name]) for row in rows if row[name] and number in (None, int(row["round"]))]

    cells = [
        f"{np.mean(of('ndcg', number)):.3f} ± {np.std(of('ndcg', number)):.3f}" for number in range(ROUNDS + 1)
    ]
    clicks, unchanged = of("clicks"), of("unchanged")
    lost = f"{1 - np.mean(clicks) / np.mean(unchanged):.1%}" if unchanged else ""
    shipped = f"{np.sum(of('shipped')):.0f} of {len(of('shipped'))}" if of("shipped") else ""
    seeds = len({row["seed"] for row in rows})
    return f"| {policy} | {seeds} | " + " | ".join(cells) + f" | {np.mean(clicks):.3f} | {lost} | {shipped} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 10))
    parser.add_argument("--behaviours", nargs="+", default=list(BEHAVIOURS))
    parser.add_argument("--policies", nargs="+", default=[*POLICIES, *LINEAR, *LEARNERS])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable()
    if asked.out is not None:
        run(asked.out, range(*asked.seeds), asked.behaviours, asked.policies)
    if asked.table is not None:
        table(asked.table)
