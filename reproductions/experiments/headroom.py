"""Is what `diagnose` says of gains right? The share of the best order's clicks that is reached, and the truth.

    python reproductions/experiments/headroom.py --seeds 5000 5020

Worlds of `engine_worlds.py`. The truth is that of the same results: by the world's own chances of a click at rank
1, and the examination of its ranks, which in cascades is that found in the log.
"""

from __future__ import annotations

import argparse

import numpy as np
from engine_worlds import SHOWN, THETA, World

from unskew.diagnosis.curves.headroom import headroom
from unskew.diagnosis.evidence.evidence import evidence
from unskew.diagnosis.evidence.tables import open_tables


def told_and_true(seed: int) -> tuple[World, float, float, int]:
    """A world, what its log says, what is true, and clicks."""
    world = World(seed)
    log = world.log()
    with open_tables(log, threads=1) as tables:
        found = evidence(tables)
        told = headroom(tables, found).reached
    theta = THETA
    if world.clicks in ("cascade", "mixture") and found.chosen is not None:
        theta = found.examination.usable().reaching(SHOWN).values
    now = (world.chances[log.row].reshape(-1, SHOWN) @ theta).sum()
    shown = np.zeros(len(world.chances))
    shown[log.row] = world.chances[log.row]
    best = -np.sort(-shown.reshape(len(log.lists), -1), axis=1)[:, :SHOWN] @ theta
    return world, np.nan if told is None else told, now / best[log.query].sum(), int(log.click.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(5000, 5020))
    off = []
    print("| world | clicks | told | true |\n|---|---:|---:|---:|")
    for seed in range(*parser.parse_args().seeds):
        world, told, true, clicks = told_and_true(seed)
        off.append(told - true)
        print(f"| {seed}, {world.engine}, {world.clicks} | {clicks:,} | {told:.3f} | {true:.3f} |", flush=True)
    off = np.array(off)[~np.isnan(off)]
    size = np.abs(off)
    print(f"\ntold in {len(off)}; mean {off.mean():+.3f}, of absolute {size.mean():.3f}, most {size.max():.3f}")


if __name__ == "__main__":
    main()
