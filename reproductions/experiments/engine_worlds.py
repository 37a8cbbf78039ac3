"""Is a run that begins as the engine ever worse than the order shown, and better than what there was?

    python reproductions/experiments/engine_worlds.py --seeds 0 60 --out engine.jsonl    # goes on where it stopped
    python reproductions/experiments/engine_worlds.py --out engine.jsonl --show          # the tables alone
    python reproductions/experiments/engine_worlds.py --seeds 0 60 --engine safe --out safe.jsonl
    python reproductions/experiments/engine_worlds.py --seeds 0 12 --lists mslr --out mslr.jsonl    # or mq2008
    python reproductions/experiments/engine_worlds.py --seeds 0 24 --moves 0 --engine shown --out fixed.jsonl

A world is an engine (weak, medium, strong), features that know all, most or half of what people want, a way of
clicking (position, trust, cascade, a mixture of position and cascade), 3 or 20 % of results clicked, and 5, 50 or
200 pages a query on average, asked by Zipf; ten of 25 are shown, in an order that moves a little between pages.
Everything follows from the number. nDCG@10 by true grades over all queries that the log asks, in what `score`
gives documents with the ranks of the log, as `predict` writes it. The others are methods without the engine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unskew
from unskew.measuring import ndcg_metric
from unskew.options.runs import Beginning
from unskew.types import Array, Lists, Log

ENGINES = {"weak": (0.35, 0.6), "medium": (0.65, 0.85), "strong": (0.93, 0.99)}
"""Correlation of the engine's score with what people want."""
KNOW = {"all": 0.99, "most": 0.75, "half": 0.5}
"""Share of what people want that features know."""
CLICKS = ("position", "trust", "cascade", "mixture")
RATES, PAGES = (0.03, 0.2), (5, 50, 200)
THETA = np.array([1, 0.72, 0.45, 0.33, 0.26, 0.20, 0.16, 0.13, 0.11, 0.09])
RELEVANCE = np.array([0.02, 0.08, 0.2, 0.45, 0.9])
MOST_WANTED = 2.0
"""Scale of relevance where people leave after a click: no more than a tenth is clicked then, and more would have
everything clicked that is looked at, so that clicks would tell nothing.
"""
FEATURES, DOCUMENTS, SHOWN, MOST = 12, 25, 10, 40_000
AS_NOW = ("naive", "dla", "additive")


class World:
    """A world of this number."""

    chances: Array
    """Of a click on each document at rank 1, where examination is all that differs by rank."""

    def __init__(self, seed: int, real: Lists | None = None, moves: float = 0.15) -> None:
        draw = np.random.default_rng([seed, 41])
        self.real, self.moves = real, moves  # how much the order differs from page to page
        self.seed, self.engine, self.know = seed, [*ENGINES][seed % 3], [*KNOW][seed // 3 % 3]
        self.clicks, self.rate = CLICKS[seed % 4], RATES[seed // 4 % 2]
        self.pages = PAGES[int(draw.integers(3))]
        self.queries = min(int(draw.integers(150, 600)), MOST // self.pages)
        self.draw, self.bent, self.documents = draw, bool(draw.random() < 0.5), DOCUMENTS
        if real is not None:
            self.know, self.documents = "as they do", int(real.sizes.min())
            self.queries = min(len(real), MOST // self.pages)

    def about(self) -> dict[str, Any]:
        """What kind of world it is."""
        return {name: getattr(self, name) for name in ("engine", "know", "clicks", "rate", "pages", "queries")}

    def log(self) -> Log:
        """The pages."""
        draw, shape = self.draw, (self.queries, self.documents)
        x, wanted = self._made() if self.real is None else self._sampled(self.real)
        strength = draw.uniform(*ENGINES[self.engine])
        score = strength * wanted + np.sqrt(1 - strength**2) * draw.normal(size=len(x))
        grade = np.searchsorted(np.quantile(wanted, [0.55, 0.75, 0.88, 0.96]), wanted)
        if self.real is not None:  # wanted is the grade and a little noise
            grade = np.clip(np.round(wanted * self.scale + self.middle), 0, 4).astype(int)
        often = 1 / np.arange(1, self.queries + 1) ** 0.8
        asked = draw.choice(self.queries, size=self.queries * self.pages, p=often / often.sum())
        noise = self.moves * draw.normal(size=(len(asked), self.documents))
        order = np.argsort(-score.reshape(shape)[asked] - noise, 1)
        row = asked[:, None] * self.documents + order[:, :SHOWN]
        level = np.exp(0.4 * draw.normal(size=self.queries))
        click, scale = self._clicked(RELEVANCE[grade][row] * level[asked][:, None])
        self.chances = np.minimum(scale * RELEVANCE[grade] * np.repeat(level, self.documents), 0.95)
        ids = np.array([f"d{number}" for number in range(len(x))], object)
        offsets = np.arange(self.queries + 1) * self.documents
        lists = Lists(x.astype(np.float32), offsets, grade.astype(np.int16), np.arange(self.queries), ids)
        position = np.tile(np.arange(1, SHOWN + 1), len(asked)).astype(np.int16)
        ends = np.arange(len(asked) + 1) * SHOWN
        return Log(lists, asked.astype(np.int64), ends, row.ravel(), position, click.ravel().astype(np.uint8))

    def _made(self) -> tuple[Array, Array]:
        """Features, and what people want."""
        draw, share = self.draw, KNOW[self.know]
        x = draw.normal(size=(self.queries * self.documents, FEATURES))
        known = x @ (w := draw.normal(size=FEATURES)) / np.linalg.norm(w)
        if self.bent:
            known = 0.7 * known + 0.7 * np.tanh(2 * x[:, 0] * x[:, 1])
            known = (known - known.mean()) / known.std()
        return x, np.sqrt(share) * known + np.sqrt(1 - share) * draw.normal(size=len(x))

    def _sampled(self, real: Lists) -> tuple[Array, Array]:
        """Documents of real queries as many as each has at least, scaled; their grades with a little noise."""
        draw, chosen = self.draw, self.draw.permutation(len(real))[: self.queries]
        sizes = real.sizes[chosen]
        rows = np.concatenate(
            [
                real.offsets[q] + draw.choice(n, self.documents, replace=False)
                for q, n in zip(chosen, sizes, strict=True)
            ]
        )
        x = np.sign(real.features[rows]) * np.log1p(np.abs(real.features[rows]))
        grade = real.labels[rows] * 4 / real.labels.max() + 0.2 * draw.normal(size=len(rows))
        self.middle, self.scale = float(grade.mean()), float(grade.std())
        return x, (grade - self.middle) / self.scale

    def _clicked(self, wanted: Array) -> tuple[Array, float]:
        """Clicks on pages of results that are wanted so much, scaled to the rate of the world; the scale."""
        scale, drawn = 1.0, self.draw.random(wanted.shape)
        for _ in range(25):
            used = scale
            click = self._at(np.minimum(scale * wanted, 0.95), drawn)
            scale *= np.clip(self.rate / max(click.mean(), 1e-6), 0.5, 2.0)
            if self.clicks == "cascade":
                scale = min(scale, MOST_WANTED)
        return click, used

    def _at(self, p: Array, drawn: Array) -> Array:
        if self.clicks == "position":
            return drawn < THETA * p
        if self.clicks == "trust":  # at the top what is not wanted is clicked too
            return drawn < THETA * (p + (1 - p) * 0.15 * THETA * self.rate)
        first, stays = drawn < p, np.random.default_rng(self.seed).random(p.shape)
        on = stays < np.where(first, 0.3, 0.9)  # who clicks mostly leaves, who does not mostly goes on
        cascade = first & np.logical_and.accumulate(np.concatenate([np.ones((len(p), 1), bool), on[:, :-1]], 1), 1)
        if self.clicks == "cascade":
            return cascade
        return np.where(np.arange(len(p))[:, None] % 2 == 0, cascade, drawn < THETA * p)


def measured(seed: int, engine: Beginning, real: Lists | None = None, moves: float = 0.15) -> dict[str, Any]:
    """nDCG@10 of the order shown, of methods without the engine, and of a run that begins as the engine."""
    world, began = World(seed, real, moves), time.process_time()
    log = world.log().with_ranks()
    lists, shown = log.lists, np.isin(np.arange(len(log.lists)), log.query)

    def ndcg(scores: Array) -> float:
        each = ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)
        return float(np.nanmean(each[shown]))

    assert lists.shown is not None
    found, seconds = {"shown": ndcg(-np.nan_to_num(lists.shown, nan=99.0))}, {}
    for method in () if engine == "safe" else AS_NOW:
        start = time.process_time()
        run = unskew.learn(log, method, engine="none", threads=1)
        found[method], seconds[method] = ndcg(run.score(lists)), time.process_time() - start
    start = time.process_time()
    run = unskew.learn(log, engine=engine, threads=1)
    found["engine"], seconds["engine"] = ndcg(run.score(lists)), time.process_time() - start
    begun = run.metrics.engine
    told = {} if begun is None or begun.combination is None else begun.combination.to_dict()
    moved = None if run.metrics.safety is None else run.metrics.safety.share
    return {
        "world": seed,
        "about": world.about(),
        "clicks": int(log.click.sum()),
        "ndcg": found,
        "scale": told.get("scale"),
        "weight": told.get("weight"),
        "moved": moved,
        "seconds": seconds | {"all": time.process_time() - began},
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Means by kind of world, and the worst."""
    names = [*rows[0]["ndcg"]]
    print(f"{len(rows)} worlds\n\n| worlds | number | {' | '.join(names)} | over the best | worst below shown |")
    print("|---|---:|" + "---:|" * (len(names) + 2))
    kinds = [("all", None, None)]
    kinds += [
        (f"{key} {value}", key, value)
        for key in rows[0]["about"]
        if key != "queries"
        for value in dict.fromkeys(row["about"][key] for row in rows)
    ]
    for label, key, value in kinds:
        some = [row["ndcg"] for row in rows if key is None or row["about"][key] == value]
        table = np.array([[row[name] for name in names] for row in some])
        over = (table[:, -1] - table[:, :-1].max(1)).mean()
        means = " | ".join(f"{mean:.3f}" for mean in table.mean(0))
        print(f"| {label} | {len(some)} | {means} | {over:+.4f} | {(table[:, -1] - table[:, 0]).min():+.3f} |")
    gains = np.array([row["ndcg"]["engine"] - row["ndcg"]["shown"] for row in rows])
    print(f"\nover the order shown: {gains.mean():+.4f}, spread {gains.std():.4f}, worst {gains.min():+.4f}")
    if "dla" in names:
        ratio = sum(row["seconds"]["engine"] for row in rows) / sum(row["seconds"]["dla"] for row in rows)
        print(f"processor time of that run over that of dla without the engine: {ratio:.2f}")
    if rows[0]["moved"] is not None:
        print(f"moved in {sum(row['moved'] > 0 for row in rows)} of {len(rows)} worlds")


def folder(name: str) -> Path:
    """A data set in the folder that UNSKEW_DATA names."""
    return Path(os.environ.get("UNSKEW_DATA", "data")) / name


def real_lists(name: str) -> Lists:
    """Queries with ten documents (MQ2008) or 25 (MSLR) at least."""
    at, least = {"mq2008": ("mq2008", 10), "mslr": ("mslr_sample", DOCUMENTS)}[name]
    lists = unskew.read_letor(sorted(folder(at).glob("*.txt*")))
    return lists.take(np.flatnonzero(lists.sizes >= least))


def worlds(seeds: range, out: Path | None, measure: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """What was measured in worlds of these seeds, after those that a file has already; it gets a line for each."""
    done: list[dict[str, Any]] = []
    if out is not None and out.exists():
        done = [json.loads(line) for line in out.read_text().splitlines()]
    for seed in seeds:
        if all(row["world"] != seed for row in done):
            done.append(measure(seed))
            if out is not None:
                with out.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 60))
    parser.add_argument("--out", type=Path, help="a line of JSON for each world, to go on from")
    parser.add_argument(
        "--engine", choices=("auto", "shown", "safe"), default="auto", help="how the last run begins"
    )
    parser.add_argument("--lists", choices=("mq2008", "mslr"), help="real features and grades, of UNSKEW_DATA")
    parser.add_argument("--moves", type=float, default=0.15, help="how much the order differs from page to page")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    real = None if options.lists is None or options.show else real_lists(options.lists)
    seeds = range(0) if options.show else range(*options.seeds)
    show(worlds(seeds, options.out, lambda seed: measured(seed, options.engine, real, options.moves)))


if __name__ == "__main__":
    main()
