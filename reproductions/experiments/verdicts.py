"""Are the verdicts of a diagnosis right, on worlds that chose no threshold?

    python reproductions/experiments/verdicts.py --seeds 300 309
    python reproductions/experiments/verdicts.py --seeds 0 4 --worlds tuning --only individual "individual 2"

Thresholds of `diagnosis/verdicts` were set while looking at the worlds of TUNING; those of SHOWN have other
curves, strengths, lists, pages, shares of shuffled ones, logging rankers and seeds, and were looked at once.
A verdict is right where it says what is true of the world; where the log of a world cannot tell, "cannot tell" is
right. One that is wrong says "present" for "absent" or the reverse; one that only fails to tell is counted by
itself.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from common import machine

from unskew.diagnosis.curves.co_clicks import co_clicks
from unskew.diagnosis.curves.factors import factors
from unskew.diagnosis.curves.matrix import click_matrix
from unskew.diagnosis.curves.trust import trust
from unskew.diagnosis.diagnosis import conclude
from unskew.diagnosis.evidence.evidence import evidence
from unskew.diagnosis.evidence.tables import open_tables
from unskew.diagnosis.verdicts.verdict import BIASES, verdicts
from unskew.simulation import Behaviour, PositionBias, TrustBias, WholePage, simulate
from unskew.simulation.synthetic import make_lists
from unskew_reproductions.behaviours import IndividualBias, Mixture


@dataclass(frozen=True)
class World:
    """People, and what is true of their clicks."""

    people: Behaviour
    present: tuple[str, ...]
    untold: tuple[str, ...] = ()
    """What the log of this world cannot tell, whoever looks at it."""
    weak: tuple[str, ...] = ()
    """What is present but weak: anything but "absent" is right."""
    hard: tuple[str, ...] = ()
    """What is absent but looks like something that is present: anything but "present" is right."""
    recoverable: str = "yes"
    shuffled: float = 0.5
    marked: bool = True
    """Whether the log says which slots were filled at random; else they are swaps like any other."""
    pages: int = 40_000
    queries: int = 300
    documents: int = 14
    results: int = 10
    """Shown of these."""
    logger: str = "random"


PLAIN = ("position",)
HIDDEN = ("position", "documents", "trust")
FALLING = tuple(1 / k for k in range(1, 11))
TUNING = {
    "unbiased": World(PositionBias(severity=0.0), ()),
    "position": World(PositionBias(), PLAIN),
    "trust": World(TrustBias(), ("position", "trust")),
    "mixture": World(Mixture(), ("position", "people"), weak=("trust",)),
    "individual": World(
        IndividualBias(severity=1.0, choose="random"),
        ("position", "documents"),
        hard=("trust",),
    ),
    "page": World(WholePage(), ("position", "page")),
    "no swaps": World(PositionBias(), (), untold=HIDDEN, recoverable="no", shuffled=0.0),
    "unbiased 2": World(PositionBias(severity=0.0, noise=0.2), (), pages=30_000, queries=200),
    "position 2": World(PositionBias(curve=FALLING, severity=0.7), PLAIN, queries=400),
    "trust 2": World(
        TrustBias(irrelevant=tuple(0.5 * value**0.8 for value in FALLING), version="published"),
        ("position", "trust"),
    ),
    # those who click by rank alone are too few to matter: a click at rank 10 tells 1.05 times as much
    "mixture 2": World(Mixture(ratio=(1.0, 1.0, 1.0, 2.0)), ("position", "people"), hard=("trust",)),
    "individual 2": World(
        IndividualBias(severity=0.8, choose="random", seed=5),
        ("position", "documents"),
        hard=("trust",),
    ),
    "paged 2": World(
        PositionBias(curve=tuple(0.9**k * (1.0 if k < 5 else 0.3) for k in range(10))),
        PLAIN,
    ),
    "page 2": World(WholePage(lure=(0.0, 0.3, 0.5), sees=0.5, severity=0.8), ("position", "page")),
    "no swaps 2": World(TrustBias(), (), untold=HIDDEN, recoverable="no", shuffled=0.0, pages=20_000),
    "unbiased 3": World(PositionBias(severity=0.0, noise=0.05), (), queries=250),
    "position 3": World(PositionBias(curve=tuple(0.85**k for k in range(10)), noise=0.15), PLAIN),
    "trust 3": World(
        TrustBias(irrelevant=tuple(0.55 * value for value in FALLING), severity=0.8),
        ("position", "trust"),
    ),
    "mixture 3": World(
        Mixture(ratio=(1.0, 2.0, 1.0, 1.0)),
        ("position", "people"),
        weak=("trust",),
        pages=50_000,
    ),
    "individual 3": World(
        IndividualBias(severity=1.2, choose="random", seed=9),
        ("position", "documents"),
        hard=("trust",),
    ),
    "paged 3": World(
        PositionBias(curve=tuple(0.95**k * (1.0, 0.5)[k // 5] for k in range(10))),
        PLAIN,
    ),
    "page 3": World(WholePage(lure=(0.0, 0.1, 0.3), sees=0.7, severity=0.6), ("position", "page")),
    "no swaps 3": World(
        Mixture(),
        ("people",),
        untold=HIDDEN,
        recoverable="no",
        shuffled=0.0,
        pages=30_000,
        queries=400,
    ),
    "position 4": World(PositionBias(severity=1.3), PLAIN, shuffled=0.1, marked=False, logger="svm"),
    "trust 4": World(TrustBias(), ("position", "trust"), shuffled=0.1, marked=False, logger="svm"),
    "individual 4": World(
        IndividualBias(severity=0.6, choose="random", seed=3),
        ("position", "documents"),
        hard=("trust",),
        shuffled=0.2,
        marked=False,
        logger="svm",
    ),
    "position 5": World(
        PositionBias(page_size=3, next_page=0.4),
        PLAIN,
        shuffled=0.25,
        logger="svm",
        documents=9,
        results=6,
    ),
    "trust 5": World(TrustBias(severity=0.5), ("position", "trust"), shuffled=0.25, logger="svm", results=6),
    "individual 5": World(
        IndividualBias(severity=0.7, choose="random", seed=1),
        ("position", "documents"),
        hard=("trust",),
        shuffled=0.25,
        logger="svm",
        documents=20,
        results=12,
    ),
}
SHOWN = {
    "unbiased": World(
        PositionBias(severity=0.0, noise=0.15), (), shuffled=0.3, documents=12, results=8, logger="svm"
    ),
    "position": World(
        PositionBias(curve=tuple(0.8 / (1 + 0.4 * k) for k in range(10))), PLAIN, shuffled=0.2, pages=50_000
    ),
    "position, no slot marked": World(
        PositionBias(severity=0.9, noise=0.2),
        PLAIN,
        shuffled=0.15,
        marked=False,
        logger="svm",
        queries=250,
    ),
    "trust": World(
        TrustBias(irrelevant=tuple(0.6 * value**0.9 for value in FALLING), severity=0.9),
        ("position", "trust"),
        shuffled=0.4,
        documents=12,
        results=8,
        logger="svm",
    ),
    "trust, no slot marked": World(
        TrustBias(irrelevant=tuple(0.5 * value for value in FALLING), version="published"),
        ("position", "trust"),
        shuffled=0.2,
        marked=False,
        logger="svm",
    ),
    "mixture": World(
        Mixture(ratio=(1.0, 3.0, 1.0, 2.0)), ("position", "people"), weak=("trust",), queries=200, shuffled=0.6
    ),
    "individual": World(
        IndividualBias(severity=0.6, choose="random", seed=20),
        ("position", "documents"),
        hard=("trust",),
        pages=50_000,
        queries=350,
        logger="svm",
    ),
    "individual, steep": World(
        IndividualBias(severity=1.1, choose="random", seed=15),
        ("position", "documents"),
        hard=("trust",),
        shuffled=0.7,
    ),
    "paged": World(
        PositionBias(curve=(0.9, 0.7, 0.55, 0.45), page_size=4, next_page=0.6),
        PLAIN,
        documents=16,
        results=12,
        shuffled=0.35,
    ),
    "page": World(
        WholePage(lure=(0.0, 0.2, 0.4), sees=1.0, severity=0.9, start=0.2),
        ("position", "page"),
        shuffled=0.3,
        logger="svm",
    ),
    "no swaps": World(
        TrustBias(irrelevant=tuple(0.4 * value for value in FALLING)),
        (),
        untold=HIDDEN,
        recoverable="no",
        shuffled=0.0,
        logger="svm",
        queries=350,
    ),
    "no swaps, unbiased": World(
        PositionBias(severity=0.0),
        (),
        untold=HIDDEN,
        recoverable="no",
        shuffled=0.0,
        pages=25_000,
        queries=500,
    ),
}


def expected(world: World) -> dict[str, tuple[str, ...]]:
    """The statuses that are right, by bias."""
    right = {}
    for name in BIASES:
        if name in world.untold:
            right[name] = ("cannot tell",)
        elif name in world.weak:
            right[name] = ("present", "cannot tell")
        elif name in world.hard:
            right[name] = ("absent", "cannot tell")
        else:
            right[name] = ("present",) if name in world.present else ("absent",)
    return right


def found(world: World, seed: int) -> tuple[dict[str, str], str]:
    """What the diagnosis says of a log of this world."""
    lists = make_lists(queries=world.queries, features=20, documents=world.documents, seed=seed)
    log = simulate(
        lists,
        world.people,
        pages=world.pages,
        cutoff=world.results,
        randomized=world.shuffled,
        seed=seed,
        logger=world.logger,
    )
    coin = np.random.default_rng(seed).integers(0, 2, len(log.row))
    log = replace(log, columns={**log.columns, "serp_coin": np.array(["heads", "tails"])[coin]})
    if not world.marked:
        log = replace(log, randomized=None)
    segments = ["serp_coin", *(["serp_media"] if "serp_media" in log.columns else [])]
    with open_tables(log, segments=segments) as tables:
        seen = evidence(tables)
        said = verdicts(
            seen,
            click_matrix(tables),
            trust(tables),
            factors(tables),
            co_clicks(tables),
        )
    return {one.key: one.state for one in said}, conclude(said, seen).recoverable


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(300, 309))
    parser.add_argument("--worlds", choices=("shown", "tuning"), default="shown")
    parser.add_argument("--only", nargs="*", help="worlds by name; all without it")
    asked = parser.parse_args()
    worlds = SHOWN if asked.worlds == "shown" else TUNING
    worlds = {name: world for name, world in worlds.items() if not asked.only or name in asked.only}
    total: Counter[str] = Counter()
    print(f"{machine()}; seeds {asked.seeds[0]} to {asked.seeds[1] - 1}\n")
    print("| world | " + " | ".join(BIASES) + " | recoverable | logs with all right |")
    print("|---" * (len(BIASES) + 3) + "|")
    for name, world in worlds.items():
        right, counts, whole, runs = (
            expected(world),
            {bias: Counter() for bias in BIASES},
            0,
            0,
        )
        answers: Counter[str] = Counter()
        for seed in range(*asked.seeds):
            said, answer = found(world, seed)
            answers[answer] += 1
            runs += 1
            good = [said[bias] in right[bias] for bias in BIASES] + [answer == world.recoverable]
            whole += all(good)
            total["right"] += sum(good)
            total["asked"] += len(good)
            for bias in BIASES:
                counts[bias][said[bias]] += 1
                untold = said[bias] == "cannot tell" and said[bias] not in right[bias]
                total["not told"] += untold
                total["wrong"] += said[bias] not in right[bias] and not untold
        cells = [", ".join(f"{status} {n}" for status, n in counts[bias].most_common()) for bias in BIASES]
        answer = ", ".join(f"{status} {n}" for status, n in answers.most_common())
        print(
            f"| {name} | " + " | ".join(cells) + f" | {answer} | {whole} of {runs} |",
            flush=True,
        )
    print(f"\n{total['right']} of {total['asked']} answers right", end=", ")
    print(f"{total['not told']} not told, {total['wrong']} wrong")


if __name__ == "__main__":
    main()
