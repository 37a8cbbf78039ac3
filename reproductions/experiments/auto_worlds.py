"""Does `method = "auto"` choose well? Two hundred worlds of `proof_worlds`, none of which chose a setting.

    python reproductions/experiments/auto_worlds.py --out auto.jsonl                # goes on where it stopped
    python reproductions/experiments/auto_worlds.py --out auto.jsonl --show         # the table alone
    python reproductions/experiments/auto_worlds.py --worlds 1000:1060 --out try.jsonl

Every candidate learns from a world's training log with a linear ranker, and is measured by true labels on lists of
other queries. `auto` sees the training log alone. "oracle" takes the best of each world, which nobody can.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from proof_worlds import WORLDS, World

from unskew.errors import UnskewError
from unskew.measuring import ndcg_metric
from unskew.workflows.runs.auto import candidates, choose, with_method
from unskew.workflows.runs.data import split
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.run import run
from unskew.workflows.runs.settings import Auto

TEST_QUERIES = 500


def measured(seed: int, steps: int, before: dict | None) -> dict:
    """nDCG@10 of every candidate on test lists of a world (or as an earlier run found it), and what auto takes."""
    world, began = World(seed), time.process_time()
    test = world.test.take(np.arange(TEST_QUERIES))
    asked = ask(None, method=Auto(), ranker="linear", options={"steps": steps, "threads": 1}).settings
    data = split(world.train, None, asked)
    found, lacking = (dict(before["ndcg"]), before["lacking"]) if before else ({}, {})
    for label, method in () if before else candidates(Auto()).items():
        try:
            scores = run(with_method(asked, method), data).score(test)
        except UnskewError as error:
            lacking[label] = str(error)
            continue
        found[label] = float(np.nanmean(ndcg_metric(scores, test.labels, offsets=test.offsets, at=10)))
    fitted = time.process_time() - began
    pick = choose(asked, data)
    shown = ndcg_metric(world.logging_scores(test), test.labels, offsets=test.offsets, at=10)
    return {
        "world": seed,
        "about": {name: getattr(world, name) for name in ("behaviour", "logger", "shuffled", "pages", "steep")},
        "ndcg": found,
        "logging": float(np.nanmean(shown)),
        "auto": pick.choice,
        "gain": None if pick.likelihood is None else pick.likelihood[pick.choice] - (pick.alone or 0.0),
        "lacking": lacking,
        "seconds": [round(fitted, 2), round(time.process_time() - began - fitted, 2)],
    }


def rows_of(path: Path) -> list[dict]:
    """What a run has written."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def value(row: dict, label: str) -> float:
    """nDCG@10 of a label; a candidate that cannot learn from a log leaves naive."""
    return row["ndcg"].get(label, row["ndcg"]["naive"])


def show(rows: list[dict]) -> None:
    """Means over worlds, and the gain of auto over each, with the standard error over worlds."""
    labels = list(dict.fromkeys(label for row in rows for label in row["ndcg"]))
    auto = np.array([value(row, row["auto"]) for row in rows])
    arms = {label: np.array([value(row, label) for row in rows]) for label in labels}
    arms |= {"oracle": np.array([max(row["ndcg"].values()) for row in rows])}
    arms |= {"as shown": np.array([row["logging"] for row in rows])}
    print(f"{len(rows)} worlds, auto {auto.mean():.4f}\n")
    print("| arm | nDCG@10 | auto less it | taken |\n|---|---:|---:|---:|")
    for label, values in sorted(arms.items(), key=lambda item: -item[1].mean()):
        gain, taken = auto - values, sum(row["auto"] == label for row in rows)
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        print(f"| {label} | {values.mean():.4f} | {gain.mean():+.4f} ± {error:.4f} | {taken or ''} |")
    best = max(labels, key=lambda label: arms[label].mean())
    for key in ("logger", "shuffled", "behaviour", "pages"):
        print(f"\n| {key} | worlds | naive | {best} | auto | oracle |\n|---|---:|---:|---:|---:|---:|")
        for group in sorted({row["about"][key] for row in rows}):
            some = [index for index, row in enumerate(rows) if row["about"][key] == group]
            means = [arm[some].mean() for arm in (arms["naive"], arms[best], auto, arms["oracle"])]
            print(f"| {group} | {len(some)} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |")
    print("\nprocessor seconds, candidates and auto:", np.sum([row["seconds"] for row in rows], axis=0).round())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default=f"0:{len(WORLDS)}")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--before", type=Path, help="an earlier run, whose candidates need not learn again")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done = rows_of(options.out) if options.out.exists() else []
    known = {} if options.before is None else {row["world"]: row for row in rows_of(options.before)}
    begin, end = map(int, options.worlds.split(":"))
    for seed in () if options.show else range(begin, end):
        if all(row["world"] != seed for row in done):
            done.append(measured(seed, options.steps, known.get(seed)))
            with options.out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    show(done)


if __name__ == "__main__":
    main()
