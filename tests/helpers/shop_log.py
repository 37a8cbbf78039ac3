"""A shop's own log, as search teams keep them, with the page of every row known to the test alone.

Ranks count from 0 over pages of 24 results, times are milliseconds of single results as they came into view, out
of order, people leaf on, reload, search for two things side by side and come back after hours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NOON = 1_717_243_200_000
"""2024-06-01 12:00 UTC, in milliseconds."""
SIZE = 24
QUERIES = ("red shoes", "rain jacket", 'tv, 55"', "café table", "socks")
NAMES = {
    "query_id": "search",
    "doc_id": "sku",
    "position": "rank",
    "timestamp": "epoch_ms",
    "user_id": "cookie",
}
"""What its columns are, but for the clicks."""
Rows = list[dict[str, Any]]


def shop_log(people: int = 40, seed: int = 0) -> Rows:
    """Rows of the log, in the order of their times; `truth` is the page."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for person in range(people):
        at = NOON + int(rng.integers(0, 86_400_000))
        for visit in range(int(rng.integers(1, 4))):
            query = QUERIES[int(rng.integers(len(QUERIES)))]
            name = f"{person}/{visit}"
            _look(rows, rng, person, query, at, range(SIZE), f"{name}/0")
            if rng.random() < 0.3:  # leafs on, a minute later: still the page
                _look(rows, rng, person, query, at + 60_000, range(SIZE, 2 * SIZE), f"{name}/0")
            if rng.random() < 0.3:  # reloads
                _look(rows, rng, person, query, at + 180_000, range(int(rng.integers(3, SIZE))), f"{name}/1")
            if rng.random() < 0.3:  # and something else meanwhile
                other = QUERIES[(QUERIES.index(query) + 1) % len(QUERIES)]
                _look(rows, rng, person, other, at + 3_000, range(6), f"{name}/2")
            at += 3 * 3_600_000
    return sorted(rows, key=lambda row: row["epoch_ms"])


def _look(rows: Rows, rng: Any, person: int, query: str, at: int, ranks: range, truth: str) -> None:
    """Results in view one after another, each beacon up to two seconds late; a few are clicked."""
    for nth, rank in enumerate(ranks):
        rows.append(
            {
                "cookie": f"c{person:03d}",
                "search": query,
                "sku": f"SKU-{100 * len(query) + rank + person % 3:04d}",
                "rank": rank,
                "epoch_ms": at + 700 * nth + int(rng.integers(0, 2_000)),
                "clicked": int(rng.random() < 0.3 / (1 + rank)),
                "device": ("phone", "desktop")[person % 2],
                "page_number": rank // SIZE + 1,
                "truth": truth,
            }
        )
