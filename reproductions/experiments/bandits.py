"""The same bandit log by another library: IPS, self-normalised IPS and doubly robust of the Open Bandit Pipeline.

    pip install --no-deps obp     # 0.4.1, not a dependency
    python reproductions/experiments/bandits.py    # writes tests/samples/bandit.json, which a test compares with

A result of a page is a round of a bandit: its rank is the action, a click the reward, the logged chance of its
slot the propensity, and the place that a ranking gives it the action of the policy to be judged. `item-position`
with logged chances is then IPS, and `dr` doubly robust with the same model of rewards. Clicks weighted by
examination are rounds of their own: the worth of a place is the reward, examination the propensity, and `snips`
its self-normalised mean.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from obp import __version__
from obp.ope import DoublyRobust, InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting

from unskew.examination import Examination
from unskew.measuring import Judge, LoggedPages
from unskew.measuring.counterfactual.contract import PlacedPages, Question
from unskew.measuring.counterfactual.displays import query_model

RANKS, PAGES, QUERIES = 3, 120, 6
THETA = np.array([1.0, 0.6, 0.3])
OUT = Path(__file__).resolve().parents[2] / "tests" / "samples" / "bandit.json"


def draw(seed: int = 0) -> tuple[dict[str, list[float]], LoggedPages]:
    """Pages in an order that depends on chance, with the chance of every slot; documents are shown once."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(PAGES, RANKS))
    orders = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    weight = np.exp((base[:, orders] * [1.0, 0.5, 0.0]).sum(axis=2))
    weight /= weight.sum(axis=1, keepdims=True)  # [PAGES, 6]
    pick = np.array([rng.choice(6, p=row) for row in weight])
    order = orders[pick]
    same = orders[None] == order[:, None]  # [PAGES, 6, RANKS]: orders with this result at this rank
    chance = (weight[:, :, None] * same).sum(axis=1)
    relevance = 1 / (1 + np.exp(-np.take_along_axis(base, order, 1)))
    click = rng.random((PAGES, RANKS)) < THETA * relevance
    place = rng.random((PAGES, RANKS)).argsort(axis=1) + 1
    query = rng.integers(QUERIES, size=PAGES)
    columns = {
        "query": query.tolist(),
        "click": click.astype(int).ravel().tolist(),
        "chance": chance.ravel().round(12).tolist(),
        "place": place.ravel().tolist(),
    }
    return columns, pages_of(columns)


def pages_of(columns: dict[str, list[float]]) -> LoggedPages:
    """The log as pages."""
    results = PAGES * RANKS
    return LoggedPages(
        offsets=np.arange(PAGES + 1) * RANKS,
        position=np.tile(np.arange(1, RANKS + 1), PAGES),
        click=np.array(columns["click"], float),
        shuffled=np.zeros(results, bool),
        query=np.array(columns["query"]),
        document=np.arange(results),
        cluster=np.arange(PAGES),
        propensity=np.array(columns["chance"]),
    )


def by_obp(columns: dict[str, list[float]], pages: LoggedPages) -> dict[str, float]:
    """What the other library makes of it, per page."""
    place = np.array(columns["place"])
    policy = np.zeros((len(place), RANKS, 1))
    policy[np.arange(len(place)), place - 1, 0] = 1.0
    rounds = {
        "reward": pages.click,
        "action": pages.position - 1,
        "pscore": pages.propensity,
        "action_dist": policy,
    }
    rounds["position"] = np.zeros(len(place), int)
    asked = Question(examination=Examination.of(THETA, "file"))
    relevance = query_model(PlacedPages(pages, place, pages.position, asked), THETA[pages.position - 1])
    model = (relevance[:, None] * THETA)[:, :, None]
    clicked = pages.click > 0
    taken = np.zeros((int(clicked.sum()), RANKS, 1))
    taken[np.arange(len(taken)), pages.position[clicked] - 1, 0] = 1.0
    corrected = {
        "reward": 1 / np.log2(1.0 + place[clicked]),
        "action": pages.position[clicked] - 1,
        "pscore": THETA[pages.position[clicked] - 1],
        "action_dist": taken,
        "position": np.zeros(len(taken), int),
    }
    ips, snips = InverseProbabilityWeighting(), SelfNormalizedInverseProbabilityWeighting()
    return {
        "item-position": RANKS * float(ips.estimate_policy_value(**rounds)),
        "dr": RANKS * float(DoublyRobust().estimate_policy_value(**rounds, estimated_rewards_by_reg_model=model)),
        "ips": len(taken) / PAGES * float(ips.estimate_policy_value(**corrected)),
        "snips": float(snips.estimate_policy_value(**corrected)),
    }


def main() -> None:
    """Compare, and write what the test compares with."""
    columns, pages = draw()
    theirs = by_obp(columns, pages)
    judge = Judge(examination=Examination.of(THETA, "file"))
    judge.add(pages, np.array(columns["place"]), pages.position)
    ours = judge.finish()
    print(f"| estimate | obp {__version__} | here |\n|---|---|---|")
    for name, value in theirs.items():
        print(f"| {name} | {value:.12f} | {ours[name].new:.12f} |")
    content = {"theta": THETA.tolist(), "ranks": RANKS, **columns, "obp": theirs, "version": __version__}
    OUT.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
