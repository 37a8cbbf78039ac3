"""Which method to grow trees with: most of ours against LightGBM with positions, on LightGBM's own example lists.

python reproductions/experiments/tree_methods.py FOLDER [--out runs/tree_methods] [--seeds 2] [--jobs 2]

FOLDER holds rank.train, rank.train.query, rank.test and rank.test.query of LightGBM's lambdarank example,
compressed or not. All 251 queries are cut into five folds, differently for each seed. The lists have nothing to do
with those of reproductions/experiments/trees.py, so what is learned here may decide what is run there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from common import machine

from unskew import Lists, read_letor, write_letor
from unskew.measuring import paired_t_test
from unskew.studies.compare.compare import compare

TREES = {"leaves": 7, "feature_fraction": 0.4}
ARMS = {
    "ipw": {"name": "ipw"},
    "ipw pointwise": {"name": "ipw", "loss": "sigmoid"},
    "ipw pairwise": {"name": "ipw", "loss": "pairwise"},
    "doubly_robust": {"name": "doubly_robust"},
    "dla": {"name": "dla"},
    "upe": {"name": "unskew_reproductions.methods.upe:UPE"},
    "regression_em": {"name": "regression_em"},
    "additive": {"name": "additive"},
    "pal": {"name": "pal"},
    "tal": {"name": "tal"},
    "affine": {"name": "affine"},
    "affine_list": {"name": "affine_list"},
}
PACKAGE = "lightgbm_position"


def read(folder: Path) -> Lists:
    """Lists of both parts."""
    files = [path for path in sorted(folder.glob("rank.t*")) if ".query" not in path.name]
    if len(files) != 2:
        raise SystemExit(f"{folder} has not just rank.train and rank.test, with their .query files")
    return read_letor(files)


def write_folds(lists: Lists, fold: int, seed: int, folder: Path) -> dict[str, str]:
    """Three fifths to learn from, one to choose by, one to measure on; their files."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(lists)), 5)
    taken = {"lists": (0, 1, 2), "validation": (3,), "test": (4,)}
    paths = {name: str((folder / f"{name}.txt").resolve()) for name in taken}
    for name, several in taken.items():
        queries = np.concatenate([parts[(fold + part) % 5] for part in several])
        write_letor(lists.take(np.sort(queries)), paths[name])
    return paths


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/tree_methods"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--per-query", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    lists, behaviours = read(options.folder), ("position", "trust")
    values: dict[tuple[str, str], list] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for fold in range(5):
            out = options.out / f"seed{seed}-fold{fold}"
            content = {
                "pages": options.per_query * len(lists) * 3 // 5,
                "randomized": 0.05,
                "seeds": [seed],
                "data": write_folds(lists, fold, seed, options.out / f"lists{seed}-{fold}")
                | {"only_relevant": True, "scaling": "none"},
                "logger": {"name": "svm"},
                "behaviours": [{"name": name} for name in behaviours],
                "ranker": {"name": "trees", **TREES},
                "training": {"validate_on": "labels"},
                "methods": [{"label": label, **table} for label, table in ARMS.items()]
                + [{"name": PACKAGE, "patience": 50, **TREES}],
            }
            result = compare(content, out, jobs=options.jobs)
            for behaviour in behaviours:
                for row in result.rows(behaviour, "labels"):
                    values.setdefault((behaviour, row.arm), []).extend(row.values.ravel())
            print(f"seed {seed}, fold {fold} done, {len(result.failed)} cells failed", flush=True)
    print(f"\n{machine()}; {options.seeds} seeds, {options.per_query} pages a query on average")
    for behaviour in behaviours:
        report(behaviour, {arm: np.asarray(each) for (name, arm), each in values.items() if name == behaviour})


def report(behaviour: str, values: dict) -> None:
    """Every arm against the package, over all queries and seeds."""
    print(f"\n| {behaviour} | nDCG@10 | less {PACKAGE} | p |\n|---|---|---|---|")
    for arm, each in values.items():
        test = paired_t_test(each, values[PACKAGE])
        found = f"{test.difference:+.4f} | {test.p:.2g}" if arm != PACKAGE else "|"
        print(f"| {arm} | {np.nanmean(each):.4f} | {found} |")


if __name__ == "__main__":
    main()
