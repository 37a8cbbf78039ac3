"""Do judgments of click models rank documents better than click rates, and than clicks over expected clicks?

    python reproductions/experiments/click_models.py --seeds 100 105
    python reproductions/experiments/click_models.py --seeds 100 105 --ranklens events.jsonl.gz

Simulated logs: several behaviours, few and many pages, none or a tenth of them shuffled; documents that were shown
are ranked and held against their true grades, which nothing else reads. RankLens: real clicks on shuffled pages of
24 movies, no queries. A third of the pages tells movies' click rates, by which pages are chosen from another third
whose order happens to follow them; estimates from these rank the last third, whose clicks are the labels, as its
order is random. The best model is the one with the highest likelihood of a fifth of the pages that is held out of
the log, and is then fitted to all of it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import machine, spread

import unskew
from unskew.measuring import ndcg_metric
from unskew_reproductions.behaviours import EVERY

MODELS = ("dctr", "pbm", "cascade", "dcm", "sdbn", "dbn", "ubm", "ccm")
SHOWN = ("rate", "coec", "smoothed coec", "best", *MODELS[1:])


def simple(pair, rank, click, size):
    """Click rate and clicks over expected clicks, plain and with one more of each, of every pair."""
    shown, clicks = np.bincount(pair, minlength=size), np.bincount(pair, click, minlength=size)
    rates = np.bincount(rank, click) / np.maximum(np.bincount(rank), 1)
    due = np.bincount(pair, rates[rank], minlength=size)
    return {
        "rate": clicks / np.maximum(shown, 1),
        "coec": clicks / np.maximum(due, 1e-9),
        "smoothed coec": (clicks + 1) / (due + 1),
    }


def estimates(pages, models):
    """Scores of every pair of the pages, by each way to judge; the name of the best model."""
    where = pages.where
    found = simple(pages.pair[where], pages.rank[where], pages.click[where], len(pages.pairs))
    compared = unskew.click_models.fit_and_compare(pages, models, held_out=0.2)
    for name in models:
        fitted = unskew.click_models.fit(pages, name)
        found[name] = fitted.model.relevance(fitted.parameters)[:-1]
    found["best"] = found[compared.judge]
    return found, compared.judge


def ndcg(scores, labels, offsets):
    """nDCG@10, the mean over lists with something relevant."""
    return float(np.nanmean(ndcg_metric(scores, labels, offsets=offsets)))


def simulated(behaviour, pages, shuffled, asked, seed):
    """nDCG@10 over the shown documents of all queries, by each way to judge."""
    lists = unskew.make_lists(asked.queries, seed=seed)
    log = unskew.simulate(lists, EVERY[behaviour](), pages=pages, randomized=shuffled, cutoff=10, seed=seed)
    rows = np.unique(log.row)  # pairs are numbered in this order
    found, best = estimates(unskew.click_models.read_pages(log), MODELS)
    query = np.searchsorted(lists.offsets, rows, side="right") - 1
    offsets = np.append(0, np.cumsum(np.bincount(query, minlength=len(lists))))
    labels = np.asarray(lists.labels)[rows]
    return {name: ndcg(s, labels, offsets) for name, s in found.items()}, best


def read_ranklens(events):
    """Movies [S, 24] by rank and their clicks; all pages without the spam."""
    mapping = Path(__file__).resolve().parents[2] / "examples" / "ranklens" / "ranklens.toml"
    with tempfile.TemporaryDirectory() as folder:
        unskew.ingest(events, Path(folder) / "log", format="metarank", mapping=mapping, threads=1)
        table = pq.read_table(
            Path(folder) / "log" / "impressions", columns=["page_id", "doc_id", "position", "click"]
        )
    one = table.append_column("query_id", pa.array(["movies"] * len(table)))
    return unskew.click_models.read_pages(one, threads=1)


def ordered_pages(pages, rates, share):
    """The share of pages whose order follows the rates most: by the correlation of rank and rate."""
    rate = np.where(pages.where, rates[pages.pair], np.nan)
    r, p = (np.where(pages.where, x, np.nan) for x in (-pages.rank.astype(float), rate))
    r, p = (x - np.nanmean(x, axis=1, keepdims=True) for x in (r, p))
    follow = np.nansum(r * p, axis=1) / np.sqrt(np.nansum(r**2, axis=1) * np.nansum(p**2, axis=1) + 1e-12)
    return pages.take(follow >= np.quantile(follow, 1 - share))


def ranklens(pages, share, seed):
    """nDCG@10 of the clicks of held-back shuffled pages, ordered by each way to judge."""
    third = np.random.default_rng(seed).integers(3, size=len(pages))
    chooser, pool, judges = (pages.take(third == part) for part in range(3))
    known = simple(
        chooser.pair[chooser.where], chooser.rank[chooser.where], chooser.click[chooser.where], len(pages.pairs)
    )
    log = pool if share == 1 else ordered_pages(pool, known["smoothed coec"], share)
    found, best = estimates(log, MODELS)
    offsets = np.append(0, np.cumsum(judges.where.sum(1)))
    labels, pair = judges.click[judges.where].astype(int), judges.pair[judges.where]
    seen = np.bincount(log.pair[log.where], minlength=len(pages.pairs)) > 0
    scores = {name: np.where(seen, s, np.mean(s[seen]))[pair] for name, s in found.items()}
    return {name: ndcg(s, labels, offsets) for name, s in scores.items()}, best


def show(name, results):
    """A line of the table: means and spread over seeds, and how often the best model was ahead."""
    found, bests = [each for each, _ in results], Counter(best for _, best in results)
    chosen = ", ".join(f"{model} {times}" if len(bests) > 1 else model for model, times in bests.most_common())
    values = {way: [each[way] for each in found] for way in SHOWN}
    means = [spread(values[way]) if way in SHOWN[:4] else f"{np.mean(values[way]):.3f}" for way in SHOWN]
    gains = []
    for way in ("rate", "coec"):
        ahead = np.subtract(values["best"], values[way])
        gains.append(f"{spread(ahead)} ({(ahead > 0).sum()} of {len(ahead)})")
    print(f"| {name} | {chosen} | {' | '.join(means)} | {' | '.join(gains)} |", flush=True)


def main() -> None:
    """Print a table in Markdown, a line for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs=2, default=(100, 105), help="first, and one past the last")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--pages", type=int, nargs="+", default=(20_000, 200_000))
    parser.add_argument("--shuffled", type=float, nargs="+", default=(0.0, 0.1))
    known = ("position", "cascade", "user_browsing", "dynamic_bayesian", "trust", "mixture")
    parser.add_argument("--behaviours", nargs="*", default=known)
    parser.add_argument("--ranklens", type=Path, help="events.jsonl.gz")
    asked = parser.parse_args()
    seeds = range(*asked.seeds)
    print(f"nDCG@10, seeds {seeds.start} to {seeds.stop - 1}, {asked.queries} queries; {machine()}\n")
    print(f"| world | best | {' | '.join(SHOWN)} | best - rate | best - coec |\n|{'---|' * (len(SHOWN) + 4)}")
    for behaviour in asked.behaviours:
        for pages in asked.pages:
            for shuffled in asked.shuffled:
                results = [simulated(behaviour, pages, shuffled, asked, seed) for seed in seeds]
                show(f"{behaviour}, {pages:,} pages, {shuffled:.0%} shuffled", results)
    if asked.ranklens is not None:
        pages = read_ranklens(asked.ranklens)
        for share in (1.0, 0.2):
            show(f"RankLens, {share:.0%} of a third", [ranklens(pages, share, seed) for seed in seeds])


if __name__ == "__main__":
    main()
