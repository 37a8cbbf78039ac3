"""Does `unskew drift` find what changed, and nothing where nothing did? Two logs of simulated worlds, many seeds.

    python reproductions/experiments/drift_worlds.py --seeds 0 100

120 queries of 6 to 9 documents, six shown, a tenth of the pages shuffled, one logging ranker. Each line is what
was changed in the second log: nothing, the curve (a severity of 0.6 in the place of 1), the mix (two thirds of the
queries asked a quarter as often). Numbers are how many seeds found a change, and what was said of propensities.
"""

from __future__ import annotations

import argparse

import numpy as np

from unskew.diagnosis.drift import NAMES, drift
from unskew.simulation import PositionBias, ScoresLogger, logging_scores, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.engine.engine import connect
from unskew.types import Log

LISTS = make_lists(queries=120, features=5, documents=(6, 9), seed=1)
LOGGER = ScoresLogger(values=logging_scores(LISTS, "svm", 0))
CHANGES = ("nothing", "curve", "mix")


def log(seed: int, pages: int, severity: float = 1.0) -> Log:
    """Pages of this world."""
    people = PositionBias(severity=severity)
    return simulate(LISTS, people, pages=pages, seed=seed, cutoff=6, logger=LOGGER, randomized=0.1)


def changed(what: str, seed: int, pages: int) -> Log:
    """The second log."""
    if what == "mix":
        whole = log(seed, 2 * pages)
        return whole.take((whole.query % 3 == 0) | (np.arange(len(whole)) % 4 == 0))
    return log(seed, pages, 0.6 if what == "curve" else 1.0)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 100))
    parser.add_argument("--pages", nargs="+", type=int, default=[1000, 3000])
    asked = parser.parse_args()
    print(f"| pages | changed | {' | '.join(NAMES)} | any | hold | do not hold | cannot tell |")
    print("|---:|---|" + "---:|" * (len(NAMES) + 4))
    with connect("duckdb", threads=1) as engine:
        for pages in asked.pages:
            for what in CHANGES:
                pairs = (
                    (log(2 * seed, pages), changed(what, 2 * seed + 1, pages)) for seed in range(*asked.seeds)
                )
                found = [drift(old, new, engine=engine) for old, new in pairs]
                counts = [sum(name in each.changed for each in found) for name in NAMES]
                counts.append(sum(bool(each.changed) for each in found))
                states = [each.propensities for each in found]
                counts += [states.count(state) for state in ("hold", "do not hold", "cannot tell")]
                print(f"| {pages:,} | {what} | {' | '.join(map(str, counts))} |", flush=True)


if __name__ == "__main__":
    main()
