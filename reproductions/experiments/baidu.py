"""BAL and others on the files of Baidu-ULTR: real clicks, expert annotations (Tables 1 and 2, Figures 3 and 4).

    python reproductions/experiments/baidu.py FOLDER [--model ENCODER] [--seeds 5] [--steps 1000]

FOLDER has part files (part-00000.gz, ...) and annotations, as published. Clicks teach, annotations measure: DCG
and ERR at 1, 3, 5 and 10, of all annotated queries, of the five buckets of the most frequent (head) and of the
rest (tail). A ranker sees how query and result match word by word (BM25 and seven more numbers), or, with --model,
reads them: an encoder whose tokenizer knows the numbers that stand for words there. `ipw` is given the examination
that `dla` found, as no page is shuffled. Differences from the paper: rankers, and as many pages as FOLDER has.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from common import machine, spread

import unskew
from unskew.learning.methods import BAL, IPW, Additive
from unskew.measuring import measure_ranking
from unskew.types import Lists, ListTexts
from unskew_reproductions.methods import FBBAL, PBBAL, PairDebias
from unskew_reproductions.pages import METRICS, measure_by_frequency, new_positions

FACTORS = ("serp_media_type", "serp_height", "serp_max_show_height")
METHODS = ("naive", "dla", "ipw", "regression_em", "pair_debias", "additive", "bal", "pb_bal", "fb_bal")
WITH_FACTORS = {"additive": Additive, "bal": BAL, "pb_bal": PBBAL, "fb_bal": FBBAL}
COLUMNS = "| method | " + " | ".join(METRICS) + " |\n" + "|---" * (len(METRICS) + 1) + "|"


class Matching:
    """How a query and a document match, in numbers, with word frequencies of these documents."""

    def __init__(self, documents) -> None:
        split = [text.split() for text in documents]
        self.count, self.mean = len(split), max(np.mean([len(words) for words in split]), 1.0)
        self.frequency = Counter(word for words in split for word in set(words))

    def __call__(self, query: str, document: str) -> list[float]:
        """BM25, shares of words, pairs and rarity that match, matches, first match, and both lengths."""
        asked, said = query.split(), document.split()
        counts, pairs = Counter(said), set(pairwise(said))
        there = [word for word in asked if counts[word]]
        rarity = {w: math.log1p((self.count - self.frequency[w] + 0.5) / (self.frequency[w] + 0.5)) for w in asked}
        norm = 1.2 * (0.25 + 0.75 * len(said) / self.mean)
        bm25 = sum(rarity[w] * counts[w] * 2.2 / (counts[w] + norm) for w in set(there))
        wanted = list(pairwise(asked))
        return [
            bm25,
            len(there) / max(len(asked), 1),
            sum(rarity[w] for w in there) / max(sum(rarity[w] for w in asked), 1e-9),
            sum(pair in pairs for pair in wanted) / max(len(wanted), 1),
            math.log1p(sum(counts[w] for w in set(there))),
            math.log1p(min((said.index(w) for w in there), default=len(said))),
            math.log1p(len(said)),
            math.log1p(len(asked)),
        ]


def matched(lists: Lists, matching: Matching) -> Lists:
    """The lists with these numbers as features, in the place of texts."""
    texts = lists.texts
    asked = np.repeat(texts.query, lists.sizes)
    found = [matching(query, document) for query, document in zip(asked, texts.document, strict=True)]
    return replace(lists, features=np.array(found, np.float32), texts=None)


def annotated(place: Path):
    """Annotated queries as lists with texts and grades, and the bucket of each query."""
    table = pq.read_table(place).sort_by([("query_id", "ascending")]).to_pydict()
    ids, starts = np.unique(table["query_id"], return_index=True)
    said = [f"{t or ''} {a or ''}".strip() for t, a in zip(table["title"], table["abstract"], strict=True)]
    lists = Lists(
        features=np.zeros((len(said), 0), np.float32),
        offsets=np.append(starts, len(said)).astype(np.int64),
        labels=np.array(table["label"], np.int16),
        query_ids=ids,
        texts=ListTexts(ids.astype(object), np.array(said, object)),
        name="annotations",
    )
    return lists, np.array(table["bucket"])[starts]


def learned(name: str, log, ranker, found, options, seed: int):
    """One method, trained; `found` has what was trained before it."""
    asked = WITH_FACTORS[name](factors=FACTORS) if name in WITH_FACTORS else name
    if name == "pair_debias":
        asked = PairDebias()
    if name == "ipw":
        asked = IPW(propensity=tuple(found["dla"].propensity()))
    return unskew.learn(
        log, asked, ranker=ranker, seed=seed, steps=options.steps, batch=options.batch, threads=1, engine="none"
    )


def read(options, work: str):
    """The log with its lists, the annotated lists and their buckets."""
    folder = Path(work) / "log"
    made = unskew.ingest(options.folder, folder, format="unskew_reproductions.formats.baidu:Baidu")
    if not made.sides.get("labels"):
        raise SystemExit(f"{options.folder} has no annotations: add the file of expert labels")
    lists, (test, bucket) = unskew.read_texts(folder / "impressions"), annotated(folder / "labels")
    if options.model is None:
        matching = Matching(lists.texts.document)
        lists, test = matched(lists, matching), matched(test, matching)
    log = unskew.read_log(folder, lists)
    print(f"{len(log):,} pages of {len(lists):,} queries; {len(test):,} annotated queries", flush=True)
    return log, test, bucket


def main() -> None:
    """Print Table 1, Table 2, the graphs of BAL and where documents move to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    ranker: object = "mlp"
    if options.model is not None:
        ranker = unskew.rankers.CrossEncoder(model=options.model, max_length=options.max_length)
    options.batch = options.batch or (16 if options.model else 256)
    with tempfile.TemporaryDirectory() as work:
        log, test, bucket = read(options, work)
        runs = []
        for seed in range(options.seeds):
            runs.append({})
            for name in METHODS:
                runs[-1][name] = learned(name, log, ranker, runs[-1], options, seed)
                print(f"seed {seed} {name} done", flush=True)
        scores = [{name: run.score(test) for name, run in each.items()} for each in runs]
    tables(scores, test, bucket)
    print("\ngraphs of bal, seed 0, by step")
    for point in runs[0]["bal"].fit.curve:
        print(point["step"], point["notes"].get("graph", ""))


def tables(scores, test, bucket) -> None:
    """Means over seeds: all queries, head, tail, and the new position of what naive ranks first."""
    whole = {n: [measure_ranking(s[n], test, METRICS, empty="zero").means for s in scores] for n in METHODS}
    parts = {n: [measure_by_frequency(s[n], test, bucket, METRICS) for s in scores] for n in METHODS}
    groups = {"all annotated queries": whole}
    groups |= {part: {n: [getattr(r, part) for r in parts[n]] for n in METHODS} for part in ("head", "tail")}
    for title, found in groups.items():
        print(f"\n{title}\n\n{COLUMNS}")
        for name in METHODS:
            print(f"| {name} | " + " | ".join(spread([means[m] for means in found[name]]) for m in METRICS) + " |")
    print("\nnew position of what naive ranks 1 to 5\n\n| method | 1 | 2 | 3 | 4 | 5 |\n|---|---|---|---|---|---|")
    for name in (*METHODS[1:], "labels"):
        moved = [
            new_positions(s["naive"], test.labels if name == "labels" else s[name], test, 5)[0] for s in scores
        ]
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in np.mean(moved, axis=0)) + " |")


if __name__ == "__main__":
    main()
