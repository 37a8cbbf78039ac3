"""Tables in memory: logs by the rules of ingest, lists of joined features, and runs from them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import unskew
from unskew.errors import ConfigError, DataError

torch.set_num_threads(1)
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

COLUMNS = {"page_id": "page", "query_id": "term", "doc_id": "sku", "position": "rank", "click": "clicked"}
THETA = 1 / np.arange(1, 6)


@pytest.fixture(autouse=True)
def _without_pandas_trouble() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="pandas|polars|pyarrow")
        yield


@pytest.fixture(scope="module")
def items() -> Any:
    rng = np.random.default_rng(1)
    price = rng.random(30)
    price[3] = np.nan
    brand = rng.choice(["acme", "bolt", "cord"], 30)
    return pd.DataFrame({"sku": [f"s{each}" for each in range(30)], "price": price, "brand": brand})


@pytest.fixture(scope="module")
def shown(items: Any) -> Any:
    """1,500 pages of five, ranks from 0; the cheaper the more clicked."""
    rng = np.random.default_rng(0)
    want = 0.8 * (1 - items["price"].fillna(0.5).to_numpy())
    document = np.argsort(rng.random((1500, 30)), axis=1)[:, :5]
    click = rng.random((1500, 5)) < THETA * want[document]
    query = rng.integers(12, size=1500)
    return pd.DataFrame(
        {
            "page": np.repeat(np.arange(1500), 5),
            "term": [f"q{each}" for each in np.repeat(query, 5)],
            "sku": [f"s{each}" for each in document.ravel()],
            "rank": np.tile(np.arange(5), 1500),
            "clicked": click.ravel(),
            "device": np.repeat(rng.choice(["phone", "desk"], 1500), 5),
        }
    )


def frame_of(kind: str, frame: Any) -> Any:
    """The frame as another kind of table."""
    made = {"pandas": lambda: frame, "polars": lambda: pl.from_pandas(frame)}
    made |= {
        "arrow": lambda: pa.Table.from_pandas(frame),
        "dict": lambda: {name: frame[name].to_numpy() for name in frame},
    }
    return made[kind]()


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict"])
def test_a_log_from_any_table(shown: Any, items: Any, kind: str) -> None:
    log = unskew.log_from_table(frame_of(kind, shown), frame_of(kind, items), columns=COLUMNS, keep=["device"])
    assert (len(log), len(log.row)) == (1500, 7500)
    assert (log.position.min(), log.position.max()) == (1, 5)  # ranks from 0 were found
    assert log.click.sum() == shown["clicked"].sum()
    assert log.summary is not None
    assert (log.summary.positions_from, log.summary.rows_read) == (0, 7500)
    assert set(log.columns["device"]) == {"phone", "desk"}
    assert log.lists.columns is not None
    assert log.lists.columns.names == ("price", "brand")
    ids = log.lists.document_ids()[log.row]
    order = np.lexsort((shown["rank"], log.columns.get("page_id", shown["page"])))
    assert ids.tolist() == shown["sku"].to_numpy()[order].tolist()


def test_rules_are_those_of_ingest_and_are_told(shown: Any, items: Any) -> None:
    double = pd.concat([shown, shown.iloc[:10]])
    with pytest.warns(UserWarning, match=r"10 of 7,510 rows were left out \(found 10 duplicate events\)") as told:
        log = unskew.log_from_table(double, items, columns=COLUMNS)
    assert told[0].filename == __file__
    assert len(log.row) == 7500
    assert log.summary is not None
    assert log.summary.rules["duplicate_events"].rows == 10


def test_what_is_wrong_is_told_of_the_table(shown: Any, items: Any) -> None:
    broken = shown.assign(clicked=shown["clicked"].astype(int))
    broken.loc[:200, "clicked"] = 7
    with pytest.raises(
        DataError, match=r"(?s)201 of 7,500 rows are broken.*row 0: page=0.*\nRepair them, or raise"
    ) as told:
        unskew.log_from_table(broken, items, columns=COLUMNS)
    assert ".scratch" not in str(told.value)
    with pytest.raises(ConfigError, match=r"there is no column 'rnak' for position\. Did you mean rank\?"):
        unskew.log_from_table(shown, items, columns=COLUMNS | {"position": "rnak"})
    with pytest.raises(DataError, match="click"):
        unskew.log_from_table(shown.drop(columns="clicked"), items, columns={**COLUMNS, "click": "sku"})


def test_documents_without_features_are_an_error_or_left_out(shown: Any, items: Any) -> None:
    fewer = items.iloc[:-1]
    with pytest.warns(UserWarning, match="have no row"), pytest.raises(DataError, match="have no features"):
        unskew.log_from_table(shown, fewer, columns=COLUMNS)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        log = unskew.log_from_table(shown, fewer, columns=COLUMNS, missing_features="drop")
    assert "impressions have no features (0 of them of unknown queries)" in " ".join(
        str(one.message) for one in told
    )
    assert len(log.row) == (shown["sku"] != "s29").sum()


def test_lists_from_a_table(items: Any) -> None:
    pairs = pl.DataFrame(
        {"query_id": [2, 1, 2], "sku": ["s1", "s1", "s2"], "label": [0, 1, 2], "bm25": [1.0, 2.0, None]}
    )
    lists = unskew.read_features([pairs, items], columns={"doc_id": "sku"})
    assert lists.columns is not None
    assert set(lists.columns.names) == {"bm25", "price", "brand"}
    assert sorted(lists.labels.tolist()) == [0, 1, 2]


def test_examination_of_a_table(shown: Any) -> None:
    found = unskew.propensity(pl.from_pandas(from_one(shown)), columns=COLUMNS, by="swaps")
    assert found.values == pytest.approx(THETA, rel=0.35)  # few clicks


def from_one(shown: Any) -> Any:
    """The frame with ranks from 1."""
    return shown.assign(rank=shown["rank"] + 1)


def test_examination_and_diagnosis_clean_a_frame_in_one_way(shown: Any) -> None:
    """Ranks from 0 are ranks from 1, and robots that click everything count in neither, which both say."""
    robots = shown.head(400).assign(clicked=1, page=[f"{page} again" for page in shown.head(400)["page"]])
    both = pd.concat([shown.assign(page=shown["page"].astype(str)), robots])
    with pytest.warns(UserWarning, match="400 everything clicked"):
        told = unskew.diagnose(both, columns=COLUMNS, threads=1)
    assert told.log["impressions"] == len(shown)
    with pytest.warns(UserWarning, match="400 everything clicked"):
        seen = unskew.propensity(both, columns=COLUMNS)
    assert seen.values == pytest.approx(told.propensities().values)
    assert seen.values == pytest.approx(unskew.propensity(from_one(shown), columns=COLUMNS).values)


# ---- runs ----


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_learn_from_frames(shown: Any, items: Any, kind: str) -> None:
    """The same as from the log that is made of them; it knows what people want, and what was left out."""
    given: dict[str, Any] = {"ranker": "linear", "steps": 60, "seed": 1}
    run = unskew.learn(frame_of(kind, shown), "dla", features=frame_of(kind, items), columns=COLUMNS, **given)
    assert run.ingested is not None
    assert run.ingested.impressions == 7500
    log = unskew.log_from_table(shown, items, columns=COLUMNS)
    assert unskew.learn(log, "dla", **given).propensity() == pytest.approx(run.propensity())
    two = pd.DataFrame({"brand": ["acme", "acme"], "price": [0.9, 0.1]})
    assert run.rank(two).tolist() == [1, 0]


def test_validation_and_test_may_be_frames(shown: Any, items: Any) -> None:
    early, late = shown[shown["page"] < 1000], shown[shown["page"] >= 1000]
    given: dict[str, Any] = {"features": items, "columns": COLUMNS, "ranker": "linear", "steps": 10}
    run = unskew.learn(
        early, "dla", validation=late[late["page"] < 1200], test=late[late["page"] >= 1200], **given
    )
    assert run.metrics.standing.tested
    labelled = pd.DataFrame({"term": ["q1"] * 3, "sku": ["s1", "s2", "s4"], "label": [0, 2, 1]})
    run = unskew.learn(early, "dla", test=labelled.merge(items, on="sku"), **given)
    assert run.metrics.test.queries == 1


def test_factors_of_a_frame_are_kept(shown: Any, items: Any) -> None:
    run = unskew.learn(shown, "pal", features=items, columns=COLUMNS, factors=["device"], ranker="linear", steps=5)
    assert "device" in {curve.factor for curve in run.curves()}


def test_learn_says_what_is_missing(shown: Any, items: Any) -> None:
    with pytest.raises(ConfigError, match="features=: missing; give the table"):
        unskew.learn(shown, columns=COLUMNS)
    with pytest.raises(ConfigError, match=r"^run\.toml: a run file takes files"):
        unskew.learn("run.toml", features=items)
    with pytest.raises(ConfigError, match="no doc_id and position"):
        unskew.learn(items, features=items, columns={"doc_id": "sku"})
    nameless = {ours: theirs for ours, theirs in COLUMNS.items() if ours != "page_id"}
    with pytest.raises(DataError, match=r"page_columns=.*arguments of unskew\.ingest .* unskew\.log_from_table"):
        unskew.learn(shown.drop(columns="page"), features=items, columns=nameless)
    log = unskew.log_from_table(shown, items, columns=COLUMNS)
    with pytest.raises(ConfigError, match="features=: the log has it already"):
        unskew.learn(log, features=items)
