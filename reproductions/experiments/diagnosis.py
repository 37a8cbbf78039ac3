"""How often intervals of examination cover the truth, and tests of agreement reject it, in a world that is known.

    python reproductions/experiments/diagnosis.py --seeds 100
    python reproductions/experiments/diagnosis.py --seeds 100 --pages 1000 --queries 60 --shape fold

Queries differ in how often they are asked and in how relevant their documents are. Rankings follow relevance plus
a favourite that is none, plus noise that changes from page to page, so documents move; some pages are shuffled.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.diagnosis.evidence.evidence import evidence
from unskew.diagnosis.evidence.tables import open_tables

RANKS = 10
SHAPES = {
    "power": 0.9 * np.arange(1, RANKS + 1) ** -0.8,
    "fold": np.array([0.9, 0.8, 0.75, 0.7, 0.25, 0.2, 0.18, 0.16, 0.15, 0.14]),
    "flat": 0.8 * np.array([1.0, 0.95, 0.9, 0.85, 0.82, 0.82, 0.81, 0.82, 0.78, 0.9]),
}
"""Examination by rank: a power law, a screen that ends after rank 4, and one that rises at the end."""


def world(seed: int, pages: int, queries: int, shuffled: float, curve: Any, noise: float = 0.5) -> pa.Table:
    """Impressions of people who look at rank k with probability curve[k - 1]."""
    rng = np.random.default_rng(seed)
    share = rng.pareto(2.0, queries) + 0.2
    query = rng.choice(queries, pages, p=share / share.sum())
    relevance = rng.beta(0.8, 2.0, (queries, RANKS)) * rng.uniform(0.4, 1.0, (queries, 1))
    liked = relevance + rng.normal(0, 0.3, (queries, RANKS))
    score = liked[query] + rng.normal(0, noise, (pages, RANKS))
    random = rng.random(pages) < shuffled
    score[random] = rng.random((int(random.sum()), RANKS))
    shown = np.argsort(-score, axis=1)  # [pages, RANKS] documents
    chance = np.asarray(curve) * np.take_along_axis(relevance[query], shown, axis=1)
    click = rng.random(chance.shape) < chance
    columns = {
        "page_id": np.repeat(np.arange(pages), RANKS),
        "query_id": np.repeat(query, RANKS),
        "doc_id": shown.ravel(),
        "position": np.tile(np.arange(1, RANKS + 1), pages),
        "click": click.ravel().astype(np.int8),
        "randomized": np.repeat(random, RANKS),
    }
    return pa.table(columns)


def main() -> None:
    """Print, for each method, the share of intervals that cover and of tests that reject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--shuffled", type=float, default=0.2)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--shape", choices=list(SHAPES), default="power")
    asked = parser.parse_args()
    curve = SHAPES[asked.shape]
    cover: dict[str, list[list[float]]] = {}
    reject: dict[str, list[float]] = {}
    wide: dict[str, list[float]] = {}
    for seed in range(asked.seeds):
        table = world(seed, asked.pages, asked.queries, asked.shuffled, curve, asked.noise)
        with open_tables(table, threads=1) as tables:
            found = evidence(tables)
        for method, told in found.curves.items():
            pairs = zip(told.interval[1:], curve[1:] / curve[0], strict=True)
            row = [np.nan if span is None else float(span[0] <= truth <= span[1]) for span, truth in pairs]
            cover.setdefault(method, []).append(row)
            wide.setdefault(method, []).extend(np.log(high / low) for low, high in filter(None, told.interval[1:]))
        for each in found.agreement:
            rejected = np.nan if each.p is None else float(each.p < 0.05)
            reject.setdefault(f"{each.first} against {each.second}", []).append(rejected)
    for method, rows in cover.items():
        by_rank = " ".join(f"{share:.2f}" for share in np.nanmean(rows, axis=0))
        shares = f"covers {np.nanmean(rows):.3f} of what is told, {np.isfinite(rows).mean():.2f} of all"
        shares += f", high / low {np.exp(np.median(wide[method])):.2f}"
        print(f"{method:10s} {shares}; by rank from 2: {by_rank}")
    for name, values in reject.items():
        print(f"{name:28s} rejects {np.nanmean(values):.3f} of {np.isfinite(values).sum()}")


if __name__ == "__main__":
    main()
