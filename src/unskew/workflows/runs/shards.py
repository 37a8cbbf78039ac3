"""Shards on disk as the data of a run, in the place of a log in memory."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch

from unskew.errors import ConfigError, DataError, warn
from unskew.learning.fitting.distributed import Part, first_process_first, own_parts, workers_of
from unskew.learning.fitting.loop import Draws
from unskew.learning.fitting.training import Training
from unskew.learning.methods.contract import Context, MethodConfig
from unskew.learning.scoring.model import Model
from unskew.logs.counts.batches import Batches, ShardedBatches
from unskew.logs.counts.reduction import Counts, Facts
from unskew.logs.counts.shard_writer import FACTS, ShardSource
from unskew.logs.counts.shards import Shards, open_shards, shards_for
from unskew.names import NOT_FEATURES, Names
from unskew.settings import byte_count
from unskew.tables.features.encoding import Encoding, EncodingRules, encoding_of
from unskew.tables.lists.inputs import Vectors
from unskew.tables.lists.scaling import Scaler
from unskew.types import Lists, Log
from unskew.workflows.runs.data import CHECKED, LogData, check_compared, encoded, own_lists
from unskew.workflows.runs.folder import fingerprint
from unskew.workflows.runs.request import Request
from unskew.workflows.runs.settings import IN_MEMORY


@dataclass(frozen=True)
class ShardData:
    """What a run learns from and is chosen by, on disk."""

    shards: Shards
    held_out: int | Log | None
    """Whose clicks choose weights: a shard, or a log in memory."""
    validation: Lists | None
    """Labelled lists, to choose weights by nDCG@10."""
    stay: int = 32
    """Steps before another shard is taken up."""

    @property
    def documents(self) -> Shards:
        """The shards, which hold the documents of the training pages."""
        return self.shards

    def facts(self) -> Facts:
        """The training shards in numbers."""
        about = self.shards.totals()
        numbers = {name: about[name] for name in ("pages", "impressions", "clicks", "queries", "clickless")}
        return Facts(**numbers, by_rank=self.shards.by_rank, weighted=self.shards.weighted)

    def fit_encoding(self, rules: EncodingRules) -> Encoding:
        """What the features of the training shards become."""
        columns = self.shards.columns
        if columns is None:
            return Encoding(missing_values=rules.missing_values)
        return encoding_of(self.shards.survey, columns, rules)

    def encoded(self, encoding: Encoding) -> Self:
        """The same with encoded features, once a shard is loaded."""
        shards, held = replace(self.shards, encoding=encoding), self.held_out
        held = encoded(held, encoding) if isinstance(held, Log) else held
        return replace(self, shards=shards, held_out=held, validation=encoded(self.validation, encoding))

    def fit_scaler(self, kind: str, *others: Lists) -> Scaler:
        """A scaling fitted on the documents of all training shards."""
        return self.shards.fit_scaler(kind, *others)

    def context(self, method: MethodConfig) -> Context:
        """Ranks, numbers and factors; which pages were shuffled is not kept in shards."""
        if method.measured is not None:
            raise DataError(
                f"{method.name}: shards do not keep which pages were shuffled",
                path=self.shards.name,
                hint="give the propensities, as numbers or as a file",
            )
        if method.compared:
            shown = self.shards.load(int(self.shards.pages.argmax()))
            for name in method.compared:
                other = shown.serp[name] != shown.serp[name][:, :1]
                check_compared(method, name, differs=bool((other & shown.where).any()))
        return Context(self.shards.positions, self.facts(), self.shards.presentation)

    def batches(self, model: Model, training: Training, device: torch.device, workers: int) -> Draws | list[Part]:
        """Batches over all shards, or the parts of a step, each over its own shards."""

        def prepare(lists: Lists) -> Vectors:
            scaled = model.scaler.apply(lists, out=lists.features)  # in its place: it is large
            return Vectors.of(scaled.features, device)

        def draws(worker: int) -> ShardedBatches:
            return ShardedBatches(
                self.shards,
                prepare,
                size=-(-training.batch // workers),
                seed=training.seed,
                stay=self.stay,
                device=device,
                group=worker,
                groups=workers,
            )

        pages = self.shards.pages
        shares = [float(pages[worker::workers].sum() / pages.sum()) for worker in range(workers)]
        return draws(0) if workers == 1 else own_parts(shares, draws)

    def held_out_batches(self, model: Model, device: torch.device) -> Batches | None:
        """The shard or the log whose clicks choose weights."""
        if isinstance(self.held_out, Log):
            return LogData(self.held_out, self.held_out).held_out_batches(model, device)
        if self.held_out is None or not self.shards.facts[self.held_out, FACTS.index("clicks")]:
            return None
        counts = self.shards.load(self.held_out)
        documents = Vectors.of(model.scaler.apply(counts.lists).features, device)
        return Batches(counts, documents, size=CHECKED, device=device)

    def held_out_pages(self) -> Log | None:
        """The held-out shard; which pages were shuffled is not kept, nor their order in rows of whole queries."""
        if isinstance(self.held_out, Log):
            return self.held_out
        counts = None if self.held_out is None else self.shards.load(self.held_out)
        if counts is None or counts.shown_at is not None:
            return None
        return unreduced(counts, weighted=self.shards.weighted is not None)

    def fingerprint(self, *, labels: bool) -> str:
        """The key of the shards, which is a hash of their sources, and a hash of what weights are chosen by."""
        chosen_by = self.held_out if isinstance(self.held_out, Log) else self.validation
        return f"{self.shards.key}-{self.stay}-{fingerprint(chosen_by)}"


def unreduced(counts: Counts, *, weighted: bool = False) -> Log:
    """A log of as many pages, slot by slot with as many clicks; which of them were on one page is not known.

    The clicks of a slot are on the first pages that showed it; weights are spread over all of them.
    """
    where = counts.where
    times = np.where(where, counts.impressions, 0).max(axis=1).round().astype(np.int64)  # [R]
    row = np.repeat(np.arange(len(counts)), times)
    number = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    shown = where[row]
    first = number[:, None] < counts.clicks[row].round()
    click = counts.clicks[row] / times[row][:, None] if weighted else first.astype(np.uint8)
    return Log(
        lists=counts.lists,
        query=counts.query[row],
        offsets=np.concatenate([[0], np.cumsum(shown.sum(axis=1))]).astype(np.int64),
        row=counts.row[row][shown],
        position=counts.position[row][shown].astype(np.int16),
        click=click[shown],
    )


def open_shard_data(request: Request, validation: Lists | Log | None) -> ShardData:
    """The shards that a run file asks for, written by the first process where they are not there yet."""
    sources, files, asked, method = request.sources, request.file.data, request.settings, request.settings.method
    if not isinstance(method, MethodConfig):
        raise ConfigError(f"{method.name}: {IN_MEMORY}")
    source = ShardSource(
        log=None if sources.train is None else str(sources.train),
        counts=None if files.counts is None else str(request.base / files.counts),
        lists=tuple(map(str, sources.features)),
        shards=files.shards or 1,
        held_out=asked.training.validate_on == "clicks" and validation is None,
        reduction=method.reduction,
        unseen=method.unseen,
        averages=method.averages,
        serp=method.serp,
        feedback=files.feedback,
        bins=method.bins,
        missing=files.missing_features,
        doc_ids=files.doc_ids,
        names=Names(files.columns).only(NOT_FEATURES),
    )
    count = source.shards if files.memory is None else shards_for(byte_count("data.memory", files.memory), source)
    workers = workers_of(asked.training)
    source = replace(source, shards=-(-count // workers) * workers)  # as many for each worker
    with first_process_first():
        shards = open_shards(source)
    if shards.missing:
        warn(f"{shards.name}: {shards.missing} impressions have no features and were left out")
    if isinstance(validation, Log):
        return ShardData(shards, own_lists(validation), None, files.shard_steps)
    return ShardData(shards, len(shards) if source.held_out else None, validation, files.shard_steps)
