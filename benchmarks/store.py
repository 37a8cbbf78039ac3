"""Looking up features in a store: 100 items of 136 numbers, against bare gets of the same keys in the same file.

The bare side has its keys as bytes and leaves its values as bytes; ours makes keys of ids, sees whether the store
was replaced, and makes a matrix. They take turns; a ratio is taken for each turn of 100 lookups.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
from common import Options, Row, quartiles, timed

from unskew.serving.store import open_store
from unskew.serving.store.store import item_key

ITEMS, FEATURES, ASKED, LOOKUPS = 100_000, 136, 100, 100
GOAL = 1.0
"""Milliseconds of a lookup."""


def store(options: Options) -> list[Row]:
    """A lookup of 100 ids, in milliseconds and against bare gets."""
    items, turns = ITEMS // 10 if options.quick else ITEMS, 10 if options.quick else 50
    rng = np.random.default_rng(0)
    table = {f"f{at}": rng.random(items, np.float32) for at in range(FEATURES)}
    with (
        tempfile.TemporaryDirectory(prefix="unskew-store-") as name,
        open_store(Path(name) / "features") as opened,
    ):
        put = timed(lambda: opened.put(items=[{"doc_id": np.arange(items), **table}]))
        asked = [rng.integers(0, items, ASKED).tolist() for _ in range(LOOKUPS)]
        keys = [[item_key(each) for each in ids] for ids in asked]
        part = opened.view().parts["items"]

        def ours() -> None:
            for ids in asked:
                opened.view().get_items(ids)

        def bare() -> None:
            for some in keys:
                part.get(some)

        ours(), bare()
        pairs = [(timed(ours).cpu, timed(bare).cpu) for _ in range(turns)]
    each = [1000 * one / LOOKUPS for one, _ in pairs]
    ratios = [one / other for one, other in pairs]
    middle = statistics.median(each)
    return [
        Row(
            "100 items of 136 features looked up",
            f"{middle:.3f} ms",
            quartiles(each, 3),
            "under 1 ms",
            middle < GOAL,
        ),
        Row("the same over bare gets of LMDB", f"{statistics.median(ratios):.2f}", quartiles(ratios)),
        Row(f"{items:,} items put", f"{put.cpu:.1f} s of processor time"),
    ]
