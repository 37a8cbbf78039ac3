"""What LBD's theorems allow in the worlds of lbd.py: largest t, least slope, orders turned round.

python reproductions/experiments/lbd_theorems.py [--etas 0.0,0.1,...] [--pairs 20000] [--seed 0]

Everything is known here: relevance and observation of every document at every rank. Theorem 4 gives the largest t
with which the clicks can be fitted, Theorem 2 the least Lipschitz constant of a fitting o, Theorem 3 how many
pairs a given t turns round. The true o fits, so its own constant is printed beside.
"""

from __future__ import annotations

import argparse

import numpy as np
from lbd import even, numbers

import unskew
from unskew.simulation.behaviours.behaviour import relevance_probability
from unskew_reproductions.behaviours import IndividualBias
from unskew_reproductions.experiments.decoupling import largest_drop, least_slope, turned_round

DROPS = (0.003, 0.03, 0.1, 0.4)


def bounds(lists, eta: float, pairs: int, seed: int) -> list[str]:
    """A row of the table."""
    behaviour = IndividualBias(severity=eta)
    theta, power = np.asarray(behaviour.curve), behaviour.document_terms(lists)
    o, r = theta ** power[:, None], relevance_probability(lists.labels).astype(float)
    c, rng = r[:, None] * o, np.random.default_rng(seed)
    first, second = rng.choice(len(r), (2, pairs))
    first, second = first[r[first] < r[second]], second[r[first] < r[second]]
    apart = np.linalg.norm(lists.features[first] - lists.features[second], axis=1)
    drop, slope = largest_drop(o), least_slope(c[first], c[second], apart)
    true = np.abs(o[first] - o[second]).max(-1) / apart
    turned = [f"{turned_round(c[first], c[second], t).mean():.1%}" for t in DROPS]
    return [
        f"{eta}",
        f"{np.median(drop):.3f} ({drop.min():.3f})",
        f"{slope.max():.3f}",
        f"{true.max():.3f}",
        *turned,
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--etas", type=numbers, default=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made = unskew.make_lists(options.queries, options.features, seed=options.seed)
    lists = even(made, made)
    turned = [f"turned round at t = {t}" for t in DROPS]
    print("| eta | largest t, median (least) | least slope | slope of the true o | " + " | ".join(turned) + " |")
    print("|---" * (4 + len(DROPS)) + "|")
    for eta in options.etas:
        print("| " + " | ".join(bounds(lists, eta, options.pairs, options.seed)) + " |")


if __name__ == "__main__":
    main()
