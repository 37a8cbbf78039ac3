"""How often an A/B test is wrong when somebody looks every day, and what the safe interval costs.

    python reproductions/experiments/peeking.py

People come day by day, 200 a day for 30 days, each under one of two policies, with several pages and a taste for
clicking of their own. Somebody looks every evening and stops as soon as an interval of 95 % leaves 0. Without any
difference between the policies 5 of 100 may be called one. `interleaved` are pages won, of two equal rankers.
"""

from __future__ import annotations

import argparse

import numpy as np

from unskew.measuring.experiments.effects import Sums, Ways, effect, preference
from unskew.types import Array

DAYS, DAILY = 30, 200
KINDS = ("clicks per page", "clicks per result", "money per page", "interleaved")


def people(kind: str, lift: float, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """What each person did, over how much, and which policy they saw, [C] each."""
    count = DAYS * DAILY
    new = rng.random(count) < 0.5
    pages = rng.geometric(0.4, count).astype(float)
    rate = rng.beta(2, 6, count) * (1 + lift * new)
    if kind == "interleaved":
        return rng.binomial(pages.astype(int), 0.5 + lift / 2).astype(float), pages, new
    clicks = rng.binomial((10 * pages).astype(int), rate / 10)
    if kind == "clicks per result":
        return clicks.astype(float), 10 * pages, new
    if kind == "money per page":
        return np.array([rng.lognormal(2, 1.2, c).sum() for c in clicks]), pages, new
    return clicks.astype(float), pages, new


def stopped(kind: str, lift: float, seed: int) -> tuple[int | None, int | None]:
    """The evening on which each interval has left 0: the usual one, and the one that may be looked at."""
    y, n, new = people(kind, lift, np.random.default_rng(seed))
    first: list[int | None] = [None, None]
    for day in range(2, DAYS + 1):
        part = slice(0, day * DAILY)
        if kind == "interleaved":
            found = preference(("b", "a"), Sums(y[part], n[part], n[part]), Ways(planned=3000))
        else:
            sums = [Sums(y[part] * own, n[part] * own, n[part] * own) for own in (new[part], ~new[part])]
            found = effect(("b", "a"), *sums, Ways(planned=3000))
        for way, ends in enumerate((found.interval, found.always)):
            if first[way] is None and ends is not None and (ends[0] > 0 or ends[1] < 0):
                first[way] = day
    return first[0], first[1]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=400)
    given = parser.parse_args()
    print("| metric | true lift | usual interval left 0 | safe interval left 0 | day, usual | day, safe |")
    print("|---|---|---|---|---|---|")
    for kind in KINDS:
        for lift in (0.0, 0.03 if kind == "interleaved" else 0.08):
            ends = [stopped(kind, lift, seed) for seed in range(given.experiments)]
            cells = []
            for way in (0, 1):
                cells.append(f"{np.mean([each[way] is not None for each in ends]):.1%}")
            for way in (0, 1):
                days = [day for each in ends if (day := each[way]) is not None]
                cells.append(f"{np.median(days):.0f}" if lift and days else "")
            print(f"| {kind} | {lift:.0%} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
