"""Click models on counts against a fit that walks over the pages, as published code does.

The log is simulated: 900,000 pages of ten to fit on and 100,000 held out, a tenth of them shuffled. The walk takes
batches of pages and Adam steps on two embedding tables, log-odds of attraction by pair and of examination by rank,
for five epochs. It has several batches and step sizes; the goal is against that with the best held-out likelihood.
All start from the log in memory. UBM and DBN are fitted from the same log.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from common import Options, Row, Stopwatch
from torch import Tensor, nn

import unskew
from unskew.types import Log

PAGES, QUERIES, EPOCHS = 900_000, 20_000, 5
TRIED = ((512, 0.003), (512, 0.02), (4096, 0.02))
"""Pages of a batch and step sizes of the walk."""
FASTER, SLOWER = 8, 10
"""How much faster than the walk the counts must be, and how much slower than PBM the others may be."""


class Walk(nn.Module):
    """The position-based model as two embedding tables, fitted page by page."""

    def __init__(self, pairs: int, ranks: int) -> None:
        super().__init__()
        self.attraction, self.examination = nn.Embedding(pairs, 1), nn.Embedding(ranks, 1)
        for table in (self.attraction, self.examination):
            nn.init.zeros_(table.weight)

    def forward(self, row: Tensor, rank: Tensor) -> Tensor:
        """log P(click), [B, K]."""
        return F.logsigmoid(self.attraction(row)).squeeze(-1) + F.logsigmoid(self.examination(rank)).squeeze(-1)

    def fit(self, log: Log, batch: int, rate: float) -> None:
        """Five epochs of Adam over shuffled pages."""
        row, rank, click = tensors(log)
        adam = torch.optim.Adam(self.parameters(), lr=rate)
        for epoch in range(EPOCHS):
            order = torch.randperm(len(row), generator=torch.Generator().manual_seed(epoch))
            for part in order.split(batch):
                loss = -log_likelihood(self(row[part], rank[part]), click[part]).mean()
                adam.zero_grad()
                loss.backward()
                adam.step()

    @torch.no_grad()
    def score(self, log: Log) -> float:
        """Mean log-likelihood of a page."""
        row, rank, click = tensors(log)
        return float(log_likelihood(self(row, rank), click).sum() / len(row))


def log_likelihood(log_p: Tensor, click: Tensor) -> Tensor:
    """log P(what happened), [B, K]."""
    log_p = log_p.clamp(max=-1e-6)
    return torch.where(click, log_p, torch.log(-torch.expm1(log_p)))


def tensors(log: Log) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, ranks and clicks of pages of one length, [S, K]."""
    shape = len(log), -1
    row, rank = (torch.from_numpy(part.astype(np.int64)).view(shape) for part in (log.row, log.position - 1))
    return row, rank, torch.from_numpy(log.click > 0).view(shape)


def walked(log: Log, held: Log, batch: int, rate: float) -> tuple[float, Stopwatch]:
    """Held-out likelihood after five epochs, and how long they took."""
    with Stopwatch() as watch:
        model = Walk(len(log.lists.features), int(log.position.max()))
        model.fit(log, batch, rate)
    return model.score(held), watch


def fitted(log: Log, held: Log, name: str) -> tuple[float, Stopwatch]:
    """Held-out likelihood of a click model, and how long it took from the log in memory."""
    with Stopwatch() as watch:
        model = unskew.click_models.fit(log, name)
    return model.log_likelihood(held), watch


def click_models(options: Options) -> list[Row]:
    """PBM against the walk, then UBM and DBN against PBM, in one run."""
    pages = PAGES // 10 if options.quick else PAGES
    lists = unskew.make_lists(QUERIES * pages // PAGES, documents=(10, 14), features=4, seed=0)
    log = unskew.simulate(lists, "position", pages=pages * 10 // 9, randomized=0.1, seed=0)
    cut = np.arange(len(log)) < pages
    train, held = log.take(cut), log.take(~cut)
    walks = {pair: walked(train, held, *pair) for pair in TRIED}
    rows = [
        Row(f"five epochs, batches of {batch}, step {rate}", f"{watch.cpu:.1f} s", f"held out {value:.4f}")
        for (batch, rate), (value, watch) in walks.items()
    ]
    slow, slow_watch = max(walks.values(), key=lambda walk: walk[0])
    found = {name: fitted(train, held, name) for name in ("pbm", "ubm", "dbn")}
    likelihood, watch = found["pbm"]
    ratio, better = slow_watch.cpu / watch.cpu, likelihood - slow
    wall = f"wall {slow_watch.wall / watch.wall:.1f}"
    rows += [
        Row("pbm on counts", f"{watch.cpu:.2f} s", f"held out {likelihood:.4f}"),
        Row("how many times faster than the best walk", f"{ratio:.1f}", wall, f"{FASTER}", ratio >= FASTER),
        Row("its held-out log-likelihood", f"{better:+.4f}", "", "no worse", better >= 0),
    ]
    for name in ("ubm", "dbn"):
        value, own = found[name]
        times = own.cpu / watch.cpu
        rows.append(Row(f"{name} over pbm", f"{times:.2f}", f"held out {value:.4f}", f"{SLOWER}", times <= SLOWER))
    return rows
