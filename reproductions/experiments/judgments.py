"""Do judgments from everything a log has ever rank worse than click rate, COEC or mean rank shown?

    python reproductions/experiments/judgments.py --seeds 1000 1072 --out judged.jsonl  # goes on where it stopped
    python reproductions/experiments/judgments.py --out judged.jsonl --show             # the tables alone
    python reproductions/experiments/judgments.py --seeds 1000 1024 --fixed --out fixed.jsonl

Worlds are those of engine_worlds.py: engines weak to strong, 3 or 20 % of results clicked, 5, 50 or 200 pages a
query, four ways of clicking; with --fixed the order of a query never moves, so that a log tells no examination.
nDCG@10 by true grades over the documents that were shown, of `fit_and_compare(...).judge` fitted to all pages,
of the models pbm, ubm, cascade, dcm, dbn, ccm and pbm+rctr; with labels of all documents shown of 30 queries, by
people who err in up to a fifth of them, over all queries and over the others. How often 95 % intervals of `pbm`
hold the chance of a click at rank 1 is told of worlds with position bias, where there is such a chance.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from engine_worlds import World, worlds

import unskew
from unskew.measuring import ndcg_metric
from unskew.types import Array, Log

MODELS = ("pbm", "ubm", "cascade", "dcm", "dbn", "ccm", "pbm+rctr")
SIMPLE = ("click_rate", "coec", "mean_rank")
LABELLED, WRONG = 30, 0.2


class Judged:
    """The documents that a log shows, and their grades."""

    def __init__(self, log: Log) -> None:
        self.rows = np.unique(log.row)
        query = np.searchsorted(log.lists.offsets, self.rows, side="right") - 1
        _, self.query = np.unique(query, return_inverse=True)
        self.labels = np.asarray(log.lists.labels)[self.rows]
        self.offsets = np.append(0, np.cumsum(np.bincount(self.query)))
        self.names = [str(each) for each in np.asarray(log.lists.document_ids())[self.rows]]
        self.ids = np.asarray(log.lists.query_ids)[query]
        self.place = {name: number for number, name in enumerate(self.names)}

    def column(self, table: pa.Table, name: str) -> Array:
        """A column of judgments, in the order of the documents."""
        found = np.zeros(len(self.rows))
        found[[self.place[each] for each in table["doc_id"].to_pylist()]] = table[name].to_numpy()
        return found

    def ndcg(self, scores: Array) -> Array:
        """Of each query."""
        return np.asarray(ndcg_metric(scores, self.labels, offsets=self.offsets, at=10))

    def some_labels(self, seed: int) -> tuple[pa.Table, Array]:
        """Labels of some queries, and which those are."""
        rng = np.random.default_rng([seed, 3])
        chosen = rng.permutation(len(self.offsets) - 1)[:LABELLED]
        at = np.flatnonzero(np.isin(self.query, chosen))
        off = np.where(rng.random(len(at)) < WRONG, rng.integers(-1, 2, len(at)), 0)
        label = np.clip(self.labels[at] + off, 0, 4)
        ids = {"query_id": self.ids[at], "doc_id": [self.names[each] for each in at]}
        return pa.table(ids | {"label": label}), chosen


def measured(seed: int, fixed: bool) -> dict[str, Any]:
    """nDCG@10 of judgments, with and without labels, and of what anybody counts."""
    world, began = World(seed, moves=0.0 if fixed else 0.15), time.process_time()
    log = world.log()
    judged, pages = Judged(log), unskew.click_models.read_pages(log)
    compared = unskew.click_models.fit_and_compare(pages, MODELS, held_out=0.2)
    assert compared.judge is not None
    fitted = unskew.click_models.fit(pages, compared.judge)
    table = fitted.relevance()
    each = {name: judged.column(table, name) * (-1 if name == "mean_rank" else 1) for name in SIMPLE}
    each["ours"] = judged.column(table, "relevance")
    labels, chosen = judged.some_labels(seed)
    each["labels"] = judged.column(fitted.relevance(labels), "relevance")
    queries = {name: judged.ndcg(scores) for name, scores in each.items()}
    others = np.setdiff1d(np.arange(len(judged.offsets) - 1), chosen)
    covered = None
    if world.clicks == "position":
        sure = unskew.click_models.fit(pages, "pbm").relevance()
        low, high = (judged.column(sure, end) for end in ("lower", "upper"))
        truth = world.chances[judged.rows]
        covered = float(((low <= truth) & (truth <= high)).mean())
    return {
        "world": seed,
        "about": world.about(),
        "clicks": int(log.click.sum()),
        "linked": pages.examination is not None,
        "judge": compared.judge,
        "ndcg": {name: float(np.nanmean(values)) for name, values in queries.items()},
        "others": {name: float(np.nanmean(queries[name][others])) for name in ("ours", "labels")},
        "covered": covered,
        "seconds": time.process_time() - began,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Means by kind of world."""
    names = [*rows[0]["ndcg"]]
    heads = " | ".join(names)
    print(f"{len(rows)} worlds, {sum(row['linked'] for row in rows)} tell examination\n")
    print(f"| worlds | number | {heads} | over the best of three | worst | labels, other queries | covered |")
    print("|---|---:|" + "---:|" * (len(names) + 4))
    keys = [key for key in rows[0]["about"] if key != "queries"]
    kinds = [("all", lambda row: True)]
    for key in keys:
        for value in sorted({row["about"][key] for row in rows}, key=str):
            kinds.append((f"{key} {value}", lambda row, key=key, value=value: row["about"][key] == value))
    kinds += [
        (f"{e}, {many}", lambda row, e=e, m=m: row["about"]["engine"] == e and (row["about"]["pages"] >= 50) == m)
        for e in ("weak", "medium", "strong")
        for m, many in ((False, "5 pages"), (True, "50 or 200 pages"))
    ]
    for label, holds in kinds:
        some = [row for row in rows if holds(row)]
        if not some:
            continue
        table = np.array([[row["ndcg"][name] for name in names] for row in some])
        over = table[:, names.index("ours")] - table[:, :3].max(1)
        gain = np.mean([row["others"]["labels"] - row["others"]["ours"] for row in some])
        held = [row["covered"] for row in some if row["covered"] is not None]
        means = " | ".join(f"{mean:.3f}" for mean in table.mean(0))
        of_means = table.mean(0)[names.index("ours")] - table.mean(0)[:3].max()
        print(
            f"| {label} | {len(some)} | {means} | {of_means:+.4f} ({over.mean():+.4f} ± {over.std():.4f}) | "
            f"{over.min():+.3f} | {gain:+.4f} | {np.mean(held) if held else float('nan'):.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(1000, 1072))
    parser.add_argument("--out", type=Path, help="a line of JSON for each world, to go on from")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(0) if options.show else range(*options.seeds)
    show(worlds(seeds, options.out, lambda seed: measured(seed, options.fixed)))


if __name__ == "__main__":
    main()
