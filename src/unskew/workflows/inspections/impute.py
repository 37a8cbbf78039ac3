"""What a run says of documents without looking at their clicks, as a table: the imputation of `unskew judge`.

    query_id, doc_id, relevance       (P(click | shown first) - β_1) / α_1

With α_1 = 1 and β_1 = 0 relevance is the click rate at rank 1, as it is for `judge` unless told otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import torch

from unskew.errors import ConfigError
from unskew.files import complete_file, refuse_existing
from unskew.learning.scoring.model import Model, load
from unskew.names import Names
from unskew.results import Result
from unskew.settings import known
from unskew.types import Array, ClickBatch, Lists
from unskew.workflows.inputs.rankings import documents

WRITERS = {".csv": pacsv.write_csv, ".parquet": pq.write_table}
"""How the table is written, by the end of the name."""
AT_ONCE = 4096
"""Documents that are scored at once."""


@dataclass(frozen=True)
class Imputation(Result):
    """The relevance of documents by a run, written to a file."""

    out: str
    pairs: int
    """How many documents of queries got a relevance."""
    mean_relevance: float


def impute(
    run: Path | str,
    lists: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    first: Sequence[float] = (1.0, 0.0),
    tracked: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    doc_ids: bool = False,
    force: bool = False,
) -> Imputation:
    """Write the relevance of every document of the lists by a run into a CSV or Parquet file; in numbers.

    `first` is alpha and beta of rank 1, as given to `judge`. `tracked` is the store that the run was trained with.
    `columns` says theirs for ours where the tables have other names.
    """
    out = Path(out)
    known("out", out.suffix, WRITERS)
    refuse_existing(out, force=force)
    if first[0] <= 0:
        raise ConfigError(f"alpha of rank 1 must be above 0, not {first[0]}", argument="first")
    model = load(run)
    if not isinstance(model, Model):
        raise ConfigError(f"{run}: it ranks, and has no click model; {LEARN}")
    shown = documents(model, lists, Names.of(columns), doc_ids=doc_ids, tracked=tracked)
    relevance = (click_rates(model, shown, run) - first[1]) / first[0]
    ids = {"query_id": np.repeat(shown.query_ids, shown.sizes), "doc_id": shown.document_ids()}
    out.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(out) as ready:
        WRITERS[out.suffix](pa.table(ids | {"relevance": relevance}), ready)
    return Imputation(str(out), len(relevance), round(float(relevance.mean()), 4))


LEARN = 'learn with a method that has one, as naive with loss = "sigmoid"'


@torch.no_grad()
def click_rates(model: Model, lists: Lists, run: Path | str) -> Array:
    """P(click) of every document were it shown first, [N]."""
    model.ranker.cpu().eval()
    model.method.cpu().eval()
    documents, found = model.input(lists), []
    for start in range(0, len(lists.features), AT_ONCE):
        rows = torch.arange(start, min(start + AT_ONCE, len(lists.features)))
        ones = torch.ones(len(rows), 1)
        where = ones > 0
        batch = ClickBatch(documents, rows, torch.arange(len(rows)), ones.long(), 0 * ones, ones, where)
        found.append(model.method.click_probability(batch.pad(model.ranker(batch.documents)), batch))
    if any(part is None for part in found):
        raise ConfigError(f"{run}: {model.card.method['name']} has no click probabilities; {LEARN}")
    return torch.cat([part for part in found if part is not None])[:, 0].double().numpy()
