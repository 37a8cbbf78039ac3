"""Logs in which a few hold much: rankings that are equal, one user with many pages, and bots of a seller.

    python reproductions/experiments/cluster_worlds.py equal --worlds 400   # how often is one better, or worse?
    python reproductions/experiments/cluster_worlds.py power --worlds 200   # and how often is one that is better?
    python reproductions/experiments/cluster_worlds.py bots --worlds 6      # does what bots clicked up ship?

What is found, before and after, is in docs/records/proof.md.

Equal rankings, no page shuffled unless said, clusters are queries: *alike* orders results by relevance and chance,
as the log does, with chance of its own; in *flat* worlds all results of a query are equally relevant; in *pairs*
two and two are, and the ranking turns these round at will.

Legend: P pages, Q queries, K results of a page.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

import unskew
from unskew.measuring import Judge, LoggedPages, examination_of, places, shown_places
from unskew.simulation import PositionBias, ScoresLogger, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Lists, Log

QUERIES, RANKS, PAGES = 100, 10, 6000
EQUAL: dict[str, dict[str, Any]] = {
    "alike, shuffled 30 %": {"kind": "alike", "weeks": 1, "shuffled": 0.3},
    "alike, shuffled 30 %, uneven": {"kind": "alike", "weeks": 1, "shuffled": 0.3, "uneven": 1.0},
    "alike, shuffled 30 %, very uneven": {"kind": "alike", "weeks": 1, "shuffled": 0.3, "uneven": 2.0},
    "alike": {"kind": "alike", "weeks": 10},
    "flat": {"kind": "flat", "weeks": 10},
    "flat, steep": {"kind": "flat", "weeks": 10, "power": 1.5},
    "pairs": {"kind": "pairs", "weeks": 10},
    "pairs, very uneven": {"kind": "pairs", "weeks": 10, "uneven": 2.0},
}


def drawn(
    seed: int,
    kind: str,
    weeks: int,
    *,
    uneven: float = 0.0,
    shuffled: float = 0.0,
    power: float = 1.0,
    better: float = 0.0,
) -> tuple[LoggedPages, Array]:
    """Pages, and the places of a ranking: as good as what was shown, but for a share `better` of less chance.

    Query k comes k^-uneven as often as the first, rank k is looked at with k^-power; the log has so many weeks,
    each with an order of its own.
    """
    rng = np.random.default_rng([seed, 5])
    rank = np.arange(RANKS)
    relevance = np.sort(rng.uniform(0.05, 0.6, (QUERIES, RANKS)), 1)[:, ::-1]
    relevance = {
        "alike": relevance,
        "flat": relevance[:, :1] + 0 * relevance,
        "pairs": relevance[:, rank // 2 * 2],
    }[kind]
    often = np.arange(1, QUERIES + 1.0) ** -uneven
    query, week = rng.choice(QUERIES, size=PAGES, p=often / often.sum()), rng.integers(weeks, size=PAGES)
    base, noise = (rank // 2 * 10.0, 1.0) if kind == "pairs" else (rank, 2.0)
    usual = np.argsort(base + noise * rng.standard_normal((weeks, QUERIES, RANKS)).clip(-4, 4), 2)[week, query]
    random = rng.random(PAGES) < shuffled
    order = np.where(random[:, None], rng.random((PAGES, RANKS)).argsort(1), usual)
    chance = np.take_along_axis(relevance[query], order, 1) * (rank + 1.0) ** -power
    scores = -(base + noise * (1 - better) * rng.standard_normal((QUERIES, RANKS)).clip(-4, 4)).ravel()
    pages = LoggedPages(
        offsets=np.arange(PAGES + 1) * RANKS,
        position=np.tile(rank + 1, PAGES),
        click=(rng.random((PAGES, RANKS)) < chance).astype(float).ravel(),
        shuffled=np.repeat(random, RANKS),
        query=query,
        document=(query[:, None] * RANKS + order).ravel(),
        cluster=query,
    )
    return pages, places(scores[pages.document], pages)


def verdict(pages: LoggedPages, new: Array) -> str:
    """What pages say of a ranking against what was shown."""
    judge = Judge(examination=examination_of(pages))
    judge.add(pages, new, shown_places(pages))
    return judge.finish().verdict


# ---- bots of a seller


def shop(seed: int, bots: float, *, shuffled: float = 0.0, users: int = 5) -> tuple[Log, pa.Table]:
    """A log of which so many users make a share `bots` of the pages, and a ranker that learned from one like it.

    They ask for a fifth of the queries, and click there on one document, that of the seller, as irrelevant as any.
    The ranker is what ordered the pages, and the click rates of the seller's documents: without bots it gains
    nothing. Other people make 20 pages each, most of them fewer.
    """
    lists = make_lists(queries=QUERIES, features=6, documents=(10, 14), seed=seed)
    rng = np.random.default_rng([seed, 3])
    shown = 0.3 * lists.labels + 0.5 * rng.standard_normal(len(lists.labels))
    keys = lists.labels + rng.random(len(lists.labels))
    asked = range(QUERIES // 5)  # of each the row with the lowest label
    sold = np.array([lists.offsets[q] + keys[lists.offsets[q] : lists.offsets[q + 1]].argmin() for q in asked])
    train, later = (_shop_log(lists, shown, sold, [seed, part], bots, shuffled, users) for part in (0, 1))
    width = len(shown)
    rate = np.bincount(train.row, train.click, width) / np.maximum(np.bincount(train.row, minlength=width), 1)
    learned = shown + 10 * np.where(np.isin(np.arange(width), sold), rate, 0.0)
    ids = np.repeat(lists.query_ids, lists.sizes)
    return later, pa.table({"query_id": ids, "doc_id": lists.document_ids(), "score": learned})


def _shop_log(
    lists: Lists, shown: Array, sold: Array, seed: list[int], bots: float, shuffled: float, users: int
) -> Log:
    rng, logger = np.random.default_rng(seed), ScoresLogger(values=shown)
    how: dict[str, Any] = {"pages": 20_000, "randomized": shuffled, "cutoff": 10, "seed": 10 * seed[0] + seed[1]}
    log = simulate(lists, PositionBias(), logger=logger, **how)
    person = rng.choice(1000, size=len(log), p=rng.dirichlet(np.full(1000, 1.0)))
    bot = (log.query < len(sold)) & (rng.random(len(log)) < 5 * bots)
    person[bot] = 1000 + rng.integers(users, size=int(bot.sum()))
    click = np.where(np.repeat(bot, log.sizes), np.isin(log.row, sold), log.click).astype(log.click.dtype)
    return replace(log, click=click, columns={**log.columns, "user_id": np.repeat(person, log.sizes)})


def main() -> None:
    """Count verdicts and decisions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("equal", "power", "bots"))
    parser.add_argument("--worlds", type=int, default=100)
    asked = parser.parse_args()
    worlds = range(asked.worlds)
    if asked.what == "bots":
        warnings.simplefilter("ignore")
        for shuffled in (0.0, 0.05, 0.3):
            for bots in (0.02, 0.05, 0.1, 0.2):
                made = [
                    unskew.ship(scores, log) for log, scores in (shop(s, bots, shuffled=shuffled) for s in worlds)
                ]
                print(f"shuffled {shuffled:.0%}, bots {bots:.0%}:", dict(Counter(one.decision for one in made)))
        return
    better = 0.5 if asked.what == "power" else 0.0
    for name, how in EQUAL.items():
        if not better or how["kind"] == "alike":
            said = Counter(verdict(*drawn(seed, **how, better=better)) for seed in worlds)
            print(f"{name}: better {said['better']}, worse {said['worse']} of {asked.worlds}", flush=True)


if __name__ == "__main__":
    main()
