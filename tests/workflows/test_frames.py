"""A data frame is a log like any other: every verb cleans it as `ingest` does, and says so in the same words."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import UnskewError

NAMES = {"position": "rank", "doc_id": "sku"}
PAGES, SHOWN, QUERIES, DOCUMENTS = 1200, 4, 30, 8


def clean_columns() -> dict[str, Any]:
    """A sound log with two policies, whose ranks count from 0 and whose columns have names of their own."""
    rng = np.random.default_rng(4)
    query = rng.integers(QUERIES, size=PAGES)
    relevance = rng.uniform(0.1, 0.9, (QUERIES, DOCUMENTS))
    order = np.argsort(-(relevance[query] + 0.6 * rng.normal(size=(PAGES, DOCUMENTS))), axis=1)[:, :SHOWN]
    seen = np.array([1.0, 0.6, 0.4, 0.3])
    click = rng.random((PAGES, SHOWN)) < 0.7 * seen * relevance[query[:, None], order]
    click[:, -1] &= ~click[:, :-1].all(axis=1)  # a page that is clicked throughout would be left out
    page = np.repeat(np.arange(PAGES), SHOWN)
    started = np.datetime64("2024-03-01T00:00:00", "us")
    return {
        "page_id": page,
        "query_id": [f"q{each}" for each in np.repeat(query, SHOWN)],
        "sku": [f"d{each}" for each in order.ravel()],
        "rank": np.tile(np.arange(SHOWN), PAGES),
        "click": click.ravel().astype(np.int64),
        "timestamp": started + (page * 600 * 10**6).astype("timedelta64[us]"),
        "user_id": [f"u{each % 300}" for each in page],
        "policy_id": [f"policy {each % 2}" for each in page],
        "serp_kind": [f"kind {each % 3}" for each in page],
        "display_time": np.where(np.tile(np.arange(SHOWN), PAGES) < 2, 8.0, 0.5),
    }


@pytest.fixture(scope="module")
def dirty() -> Any:
    """That log with rows told twice, ids that are missing and clicks that are none."""
    table = pa.table(clean_columns())
    wrong, without = table.slice(40, 8), table.slice(96, 8)
    wrong = wrong.set_column(4, "click", pa.array([7] * len(wrong)))
    without = without.set_column(2, "sku", pa.nulls(len(without), pa.string()))
    parts = [table.slice(0, 40), wrong, table.slice(48, 48), without, table.slice(104), table.slice(200, 60)]
    return pa.concat_tables(parts)


@pytest.fixture(scope="module")
def ingested(dirty: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    pq.write_table(dirty, folder / "raw.parquet")
    unskew.ingest(folder / "raw.parquet", folder / "log", columns=NAMES, keep=["policy_id"])
    return folder / "log"


SCORES = {
    "query_id": np.repeat([f"q{each}" for each in range(QUERIES)], DOCUMENTS),
    "doc_id": np.tile([f"d{each}" for each in range(DOCUMENTS)], QUERIES),
    "score": np.random.default_rng(7).random(QUERIES * DOCUMENTS),
}
"""A ranking of all documents."""
FEATURES = {name: SCORES[name] for name in ("query_id", "doc_id")} | {"x": SCORES["score"]}
GRADED = FEATURES | {"label": np.arange(QUERIES * DOCUMENTS) % 3}


def told(found: Any) -> Any:
    """What a verb found, without the names of logs and places, which differ."""
    found = found if isinstance(found, Mapping) else found.to_dict()
    text = json.dumps({name: each for name, each in found.items() if name != "out"}, default=str)
    return json.loads(text, parse_float=lambda each: float(f"{float(each):.7g}"))


def parts_of_split(log: Any, columns: Any, out: Path) -> Any:
    found = unskew.split(log, out / "parts", columns=columns).to_dict()
    rows = [pq.read_table(out / "parts" / part).num_rows for part in ("train", "validation", "test")]
    return {**{name: each for name, each in found.items() if name != "out"}, "rows": rows}


VERBS: dict[str, Callable[[Any, Any, Path], Any]] = {
    "diagnose": lambda log, names, out: _without_steps(unskew.diagnose(log, columns=names).to_dict()),
    "propensity": lambda log, names, out: unskew.propensity(log, columns=names).to_dict(),
    "counts": lambda log, names, out: unskew.counts(log, out / "counts", columns=names),
    "split": lambda log, names, out: parts_of_split(log, names, out),
    "track": lambda log, names, out: unskew.track(log, out / "store", columns=names, until="2024-03-10T00:00"),
    "click_models": lambda log, names, out: unskew.compare_click_models(
        log, models=["pbm"], held_out=log, columns=names
    ),
    "experiment": lambda log, names, out: unskew.experiment(log, by="policy_id", columns=names),
    "measure": lambda log, names, out: unskew.measure(SCORES, log=log, columns=names),
    "measure on lists": lambda log, names, out: unskew.measure(
        SCORES, _graded(), log=log, by_frequency=log, buckets=2, columns=names
    ),
    "ship": lambda log, names, out: unskew.ship(SCORES, log, columns=names),
    "twin": lambda log, names, out: unskew.twin(log, columns=names, models=["pbm"]),
    "causes": lambda log, names, out: unskew.causes(
        log, factors=["serp_kind"], columns=names, test="gsq", sample=200
    ),
    "learn": lambda log, names, out: _learned(log, names),
}
"""Verbs that take a log: as it is, what its columns are called, and a folder."""


def _without_steps(found: dict[str, Any]) -> dict[str, Any]:
    """A diagnosis without commands to paste, which name the log and its columns."""
    found = {name: each for name, each in found.items() if name not in ("conclusion", "verdicts")}
    return found | {"log": {name: each for name, each in found["log"].items() if name != "name"}}


def _graded() -> Any:
    return unskew.read_features(GRADED)


def _learned(log: Any, names: Any) -> Any:
    run = unskew.learn(
        log, "naive", features=FEATURES, ranker="linear", columns=names, steps=3, validate_on="nothing"
    )
    return {"weights": run.model.feature_weights().tolist()}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_finds_in_a_frame_what_it_finds_in_the_ingested_log(
    verb: str, dirty: Any, ingested: Path, tmp_path: Path
) -> None:
    call = VERBS[verb]
    with warnings.catch_warnings(record=True) as of_frame:
        warnings.simplefilter("always")
        (tmp_path / "frame").mkdir()
        found = told(call(dirty, NAMES, tmp_path / "frame"))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        (tmp_path / "files").mkdir()
        assert found == told(call(ingested, None, tmp_path / "files"))
    notes = [str(each.message) for each in of_frame if "were left out" in str(each.message)]
    assert len({*notes}) == 1, notes
    assert "of 4,860 rows were left out" in notes[0]
    assert "60 duplicate events" in notes[0]
    assert "16 broken" in notes[0]


def test_the_frame_of_an_error_has_its_columns_guessed(dirty: Any) -> None:
    with pytest.raises(UnskewError) as raised:
        unskew.diagnose(dirty)
    assert "missing columns: doc_id, position" in str(raised.value)
    assert 'columns={"doc_id": "sku", "position": "rank"}' in str(raised.value)


def test_a_frame_without_ids_of_pages_has_them_found(dirty: Any) -> None:
    bare = dirty.drop_columns(["page_id"])
    with pytest.warns(UserWarning, match="were left out"):
        assert unskew.diagnose(bare, columns=NAMES).log["pages"] == PAGES - 4  # whose clicks or ids are broken
