"""MQ2008, five folds, PBM and trust clicks: methods on trees and networks, and the packages' own LambdaMART.

python reproductions/experiments/trees.py FOLDER [--out runs/trees] [--seeds 5] [--folds 1,2,3,4,5] [--jobs 2]

Every arm of a fold and seed learns from the same pages, with the same tree settings. --rounds-by says what chooses
the number of trees or steps: labels of the validation fold, held-out clicks, or nothing (every tree is kept). With
--packages-keep the packages keep every tree whatever chooses ours, as they do unless told otherwise.

Which of --ours stands for all is chosen by --choose: the likelihood of held-out clicks, or validation labels. It
is taken of the fold (--pool 1), of the four folds that validate on other queries than this one tests on (--pool 4,
for labels), or of all five (--pool 5, for clicks, as no label is read). Cells are kept in --out, so a second call
runs only what is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from common import machine, spread

from unskew.measuring import crossed_t_test, holm
from unskew.studies.compare.compare import compare
from unskew_reproductions.formats.labelled import PRESETS, preset_files

TREES = {
    "ipw pointwise": {"name": "ipw", "loss": "sigmoid"},
    "regression_em": {"name": "regression_em"},
    "ipw": {"name": "ipw"},
    "dla": {"name": "dla"},
    "additive": {"name": "additive"},
}
PARTS = ("lists", "validation", "test")
PACKAGES = ("lightgbm", "lightgbm_position", "xgboost_unbiased")
NETWORKS = {
    "dla linear": {"name": "dla", "ranker": {"name": "linear"}},
    "ipw linear": {"name": "ipw", "ranker": {"name": "linear"}},
    "dla mlp": {"name": "dla", "ranker": {"name": "mlp", "sizes": [32]}},
}


def asked(folder: str, fold: int, seeds: list[int], options: argparse.Namespace) -> dict:
    """A compare file of one fold."""
    trees = {"leaves": options.leaves, "feature_fraction": options.feature_fraction}
    methods = [{"label": label, **table} for label, table in TREES.items()]
    methods += [{"label": label, **table} for label, table in NETWORKS.items() if options.networks]
    methods += [{"name": name, "patience": 50, **trees} for name in options.packages]
    keep = options.packages_keep and options.rounds_by == "clicks"  # the usual choice of each kind of arm
    chosen_by = {} if keep else {"validate_on": options.rounds_by}
    files = preset_files("mq2008", PRESETS["mq2008"], Path(folder).resolve(), fold)
    return {
        "pages": options.per_query * 330,
        "randomized": 0.05,
        "seeds": seeds,
        "data": {
            **{key: [str(path) for path in part] for key, part in zip(PARTS, files, strict=True)},
            "label_scale": 2,
            "only_relevant": True,
            "scaling": "none",
        },
        "logger": {"name": "svm"},
        "behaviours": [{"name": name} for name in options.behaviours],
        "ranker": {"name": "trees", **trees},
        "training": {"steps": 600} | chosen_by,
        "methods": methods,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--out", default="runs/trees")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--folds", default="1,2,3,4,5")
    parser.add_argument("--per-query", type=int, default=100)
    parser.add_argument("--behaviours", nargs="+", default=["position", "trust"])
    parser.add_argument("--leaves", type=int, default=15)
    parser.add_argument("--feature-fraction", type=float, default=0.8)
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--ours", nargs="+", default=list(TREES), help="which may stand for ours")
    parser.add_argument(
        "--pool", type=int, choices=(1, 4, 5), default=1, help="validation folds behind that choice"
    )
    parser.add_argument("--rounds-by", choices=("labels", "clicks", "nothing"), default="labels")
    parser.add_argument("--packages-keep", action="store_true", help="with --rounds-by clicks")
    parser.add_argument("--choose", choices=("labels", "clicks"), default="labels", help="how, among --ours")
    parser.add_argument("--no-networks", dest="networks", action="store_false", help="trees alone")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.pool == 5 and options.choose == "labels":
        parser.error("--pool 5 would choose by labels of test queries")
    seeds, found = list(range(options.first_seed, options.first_seed + options.seeds)), {}
    for fold in options.folds.split(","):
        content = asked(options.folder, int(fold), seeds, options)
        found[fold] = compare(content, f"{options.out}/fold{fold}", jobs=options.jobs)
        print(f"fold {fold} done, {len(found[fold].failed)} cells failed", flush=True)
    print(f"\n{machine()}; {options.seeds} seeds, {options.per_query} pages a query on average")
    for behaviour in options.behaviours:
        report(behaviour, found, options)


def report(behaviour: str, found: dict, options: argparse.Namespace) -> None:
    """Arms over all folds, and ours against the packages'."""
    rows = {fold: {row.arm: row for row in result.rows(behaviour, "labels")} for fold, result in found.items()}
    values = {
        arm: np.concatenate([rows[fold][arm].values for fold in rows], axis=1) for arm in rows[next(iter(rows))]
    }
    validation = {
        fold: {arm: validated(result, behaviour, arm, options.choose) for arm in values}
        for fold, result in found.items()
    }
    ours_by_kind = {"ours, trees": options.ours} | ({"ours, networks": NETWORKS} if options.networks else {})
    for label, ours in ours_by_kind.items():
        best = {fold: chosen(ours, fold, validation, options.pool) for fold in rows}
        values[label] = np.concatenate([rows[fold][best[fold]].values for fold in rows], axis=1)
        print(f"\n{behaviour}: {label} by validation: {', '.join(f'fold {f} {arm}' for f, arm in best.items())}")
    print("\n| arm | nDCG@10 |\n|---|---|")
    for arm, each in values.items():
        print(f"| {arm} | {spread(np.nanmean(each, axis=1))} |")
    tests = {name: crossed_t_test(values["ours, trees"], values[name]) for name in options.packages}
    adjusted = holm([test.p for test in tests.values()])
    print("\n| ours on trees against | difference | p (Holm) | seeds ahead |\n|---|---|---|---|")
    for (name, test), p in zip(tests.items(), adjusted, strict=True):
        ahead = (np.nanmean(values["ours, trees"], axis=1) > np.nanmean(values[name], axis=1)).sum()
        print(f"| {name} | {test.difference:+.4f} | {p:.2g} | {ahead} of {len(values[name])} |")
    if options.networks:
        print(f"\ntrees less networks: {crossed_t_test(values['ours, trees'], values['ours, networks'])}")


def chosen(ours, fold: str, validation: dict, pool: int) -> str:
    """The arm with the best validation; fold f + 1 validates on the queries that fold f tests on."""
    others = [each for each in validation if int(each) != int(fold) % 5 + 1]
    behind = {1: [fold], 4: others, 5: list(validation)}[pool]
    return max(ours, key=lambda arm: sum(validation[each][arm] for each in behind))


def validated(result, behaviour: str, arm: str, by: str) -> float:
    """Mean over seeds of nDCG@10 on the validation fold, or of the likelihood of held-out clicks."""
    key = {"labels": "validation_ndcg@10", "clicks": "validation_click_loglikelihood"}[by]
    runs = [f.content.get(key) for f in result.findings if (f.cell.behaviour, f.cell.arm) == (behaviour, arm)]
    return float(np.mean(runs)) if runs and None not in runs else float("nan")


if __name__ == "__main__":
    main()
