"""How far twins are from the worlds that they are twins of: curves, examination, relevance, and widths of proofs.

    python reproductions/experiments/twin_worlds.py --out /tmp/twins

Worlds are those of `proof_worlds.py` that choose nothing. A twin is fitted to the training log of a world. Then
four things are asked.

    ranks off      ranks whose click rate in the twin is more than 3 standard errors from the log's
    no click       share of pages without a click, twin less log
    examination    mean distance of the twin's curve from the world's own: clicks by rank, were pages shuffled
    width          interval of `direct` for one and the same ranking on the twin's log over that on the world's
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from proof_worlds import SHOWN_RESULTS, World, rank_chances

import unskew
from unskew.measuring.portrait import off, portrait
from unskew.simulation.simulation import lay_out
from unskew.types import Array, Log
from unskew.workflows.proofs.proof import prove


def true_curve(world: World) -> Array:
    """Clicks by rank relative to rank 1, were every page shuffled."""
    shown = lay_out(world.lists, world.logging_scores(world.lists), SHOWN_RESULTS)
    curve = rank_chances(world.people.prepare(world.lists), shown).mean(axis=(0, 1))
    return np.asarray(curve / curve[0])


def width(log: Log, scores: Any) -> float | None:
    """How wide `direct` is, relative to what is shown."""
    direct = prove(scores, log=log)["direct"]
    if direct.interval is None or not direct.other:
        return None
    return (direct.interval[1] - direct.interval[0]) / abs(direct.other)


def ask(number: int) -> dict[str, Any]:
    """One world and its twin."""
    world = World(number)
    made = unskew.twin(world.train, seed=number)
    log, drawn = portrait(world.train), portrait(made.simulate(max(len(world.train), 20_000), seed=number))
    query = np.repeat(np.arange(len(world.lists)), world.lists.sizes)
    noisy = world.lists.labels + np.random.default_rng(number).standard_normal(len(query))
    table = pa.table(
        {
            "query_id": world.lists.query_ids[query],
            "doc_id": world.lists.document_ids(),
            "score": noisy,
        }
    )
    widths = (
        [width(each, table) for each in (made.simulate(seed=number), world.train)] if world.shuffled else [None]
    )
    return {
        "world": number,
        "behaviour": world.behaviour,
        "pages": world.pages,
        "shuffled": world.shuffled,
        "model": made.model.name,
        "identified": made.identified,
        "ranks_off": len(off(log, drawn)),
        "no_click": drawn.clicks[0] - log.clicks[0],
        "examination": float(np.abs(made.examination(SHOWN_RESULTS) - true_curve(world)).mean()),
        "width": None if None in widths else widths[0] / widths[1],
    }


def table_of(rows: list[dict[str, Any]]) -> str:
    """Means by behaviour, as Markdown."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["behaviour"]].append(row)
    lines = [
        "| behaviour | worlds | models | ranks off of 10 | no click | examination, told | not told | width |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, own in [*groups.items(), ("all", rows)]:
        models = ", ".join(sorted({row["model"] for row in own}))
        told, untold = (
            [row["examination"] for row in own if row["identified"] is known] for known in (True, False)
        )
        widths = [row["width"] for row in own if row["width"] is not None]
        cells = [
            f"{np.mean([row['ranks_off'] for row in own]):.2f}",
            f"{np.mean([row['no_click'] for row in own]):+.3f}",
            *(f"{np.mean(each):.3f} ({len(each)})" if each else "" for each in (told, untold)),
            f"{np.median(widths):.2f} ({len(widths)})" if widths else "",
        ]
        lines.append(f"| {name} | {len(own)} | {models} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Ask all worlds; what is there already is not asked again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    rows = []
    for number in range(given.first, given.first + given.worlds):
        kept = given.out / f"{number}.json"
        if not kept.exists():
            kept.write_text(json.dumps(ask(number)))
        rows.append(json.loads(kept.read_text()))
        print(rows[-1], flush=True)
    print(table_of(rows))


if __name__ == "__main__":
    main()
