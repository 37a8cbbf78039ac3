"""Approximated doubly robust from the log to the answer: track, learn, store and serve, by the commands."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import unskew
from tests.helpers.servers import serving
from unskew.learning.scoring.model import Model, load
from unskew.terminal.main import app
from unskew.tracking.features import with_tracked
from unskew.types import Lists

torch.set_num_threads(1)
RUN = """out = "run"
[data]
log = "late.parquet"
features = "lists.txt"
tracked = "tracked"
[method]
name = "approximated_dr"
[ranker]
name = "doubly_robust_mlp"
imputation = [4]
sizes = [4]
[training]
steps = 30
threads = 1
"""


def command(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=6, features=4, documents=(24, 28), seed=1)


@pytest.fixture(scope="module")
def folder(lists: Lists, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned from late clicks with early ones as features, and a store of those."""
    place = tmp_path_factory.mktemp("served")
    log = unskew.Traffic(pages=400, days=40, random_top=0.3, seed=0).draw(lists)
    start = log.columns["timestamp"][log.offsets[:-1]]
    late = start >= start.min().astype("datetime64[D]") + np.timedelta64(20, "D")
    unskew.write_log(log.take(~late), place / "early.parquet")
    unskew.write_log(log.take(late), place / "late.parquet")
    unskew.write_letor(lists, place / "lists.txt")
    (place / "run.toml").write_text(RUN)
    command("track", place / "early.parquet", "--out", place / "tracked", "--refresh", "all")
    command("learn", place / "run.toml")
    command("store", place / "store", "--tracked", place / "tracked")
    return place


def expected_scores(model: Any, documents: Lists, shown: set[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """y by hand from the outputs of torch: the imputation alone where nothing was shown."""
    assert isinstance(model, Model)
    outputs, where = model.relevance(model.prepared(documents), documents.sizes)
    numbers = model.numbers()
    centre, levels = (numbers[f"method.{name}"].tolist() for name in ("centre", "levels"))
    queries = np.repeat(documents.query_ids, documents.sizes).astype(str)
    found = {}
    for query, name, (i, a, z) in zip(queries, documents.document_ids(), outputs[where].tolist(), strict=True):
        imputed, affine = (1 / (1 + math.exp(-(each - centre[at] + levels[at]))) for at, each in enumerate((i, a)))
        known = (query, str(name)) in shown
        found[query, str(name)] = affine + math.tanh(z) * (imputed - affine) if known else imputed
    return found


def test_answers_are_those_of_predict_where_clicks_are_known(folder: Path, lists: Lists) -> None:
    early = pq.read_table(folder / "early.parquet").to_pydict()
    shown = {(str(q), str(d)) for q, d in zip(early["query_id"], early["doc_id"], strict=True)}
    expected = expected_scores(load(folder / "run"), with_tracked(lists, folder / "tracked"), shown)
    assert any(pair in shown for pair in expected)
    assert any(pair not in shown for pair in expected)  # and some were never on a page
    told = command("predict", folder / "run", "--features", folder / "lists.txt", "--tracked", folder / "tracked")
    rows = csv.DictReader(io.StringIO(told))
    predicted = {(row["query_id"], row["doc_id"]): float(row["score"]) for row in rows}
    names, bounds = lists.document_ids(), lists.offsets
    with serving(folder / "log", folder / "run", "--store", folder / "store") as client:
        for at, query in enumerate(lists.query_ids.astype(str).tolist()):
            own = range(bounds[at], bounds[at + 1])
            documents = [{"id": str(names[row]), "features": lists.features[row].tolist()} for row in own]
            answer = client.post("/v1/rank", json={"query": query, "documents": documents, "why": True})
            assert answer.status_code == 200, answer.text
            for one in answer.json()["ranking"]:
                pair = query, one["id"]
                assert one["score"] == pytest.approx(expected[pair], abs=1e-5)
                if pair in shown:
                    assert one["score"] == pytest.approx(predicted[pair], abs=1e-5)
                else:
                    assert not any([*one["why"].values()][4:])  # clicks have no part in it
