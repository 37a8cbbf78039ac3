"""The examination model: features by hand, recovery of what was examined, calibration, files, both engines."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from unskew.errors import ConfigError, DataError, MissingExtra, RunError
from unskew.logs.log import write_log
from unskew.simulation import Traffic
from unskew.simulation.synthetic import make_lists
from unskew.tables.engine.engine import Engine
from unskew.terminal.main import app
from unskew.tracking.display_times import (
    DisplayTimeModel,
    DisplayTimes,
    add_examination,
    examination_curves,
    learn_examination,
    load_examination,
)
from unskew.tracking.traces import FEATURES, TRACE, behaviour_features, with_traces
from unskew.tracking.track import track
from unskew.tracking.windows import Lookup

pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    lists = make_lists(100, documents=(10, 12), seed=2)
    write_log(Traffic(pages=8_000, days=9, seed=2, random_top=0.0).draw(lists), path)
    return path


@pytest.fixture(scope="module")
def model(log: Path, duckdb: Engine) -> DisplayTimeModel:
    return learn_examination(duckdb, duckdb.read_parquet(log), DisplayTimes())


def features_by_hand(clicks: list[int], at: int, dwell: int) -> dict[str, float]:
    """The features of rank `at` (from 1), spelled out."""
    above = [k for k, c in enumerate(clicks, start=1) if c and k < at]
    below = [k for k, c in enumerate(clicks, start=1) if c and k > at]
    own = clicks[at - 1]
    return {
        "position": at,
        "length": len(clicks),
        "clicks_above": len(above),
        "clicks_below": len(below),
        "to_previous": at - above[-1] if above else 0,
        "to_next": below[0] - at if below else 0,
        "clicked": own,
        "last_click": int(own and not below),
        "dwell": dwell,
    }


def test_features_on_both_engines(engine: Engine) -> None:
    pages = {"a": [0, 1, 0, 1, 0], "b": [1], "c": [0, 0, 0], "d": [1] * 6, "deep": [0] * 33 + [1, 0, 1]}
    steps = {None: 0, -4.0: 0, 0.0: 1, 9.9: 1, 10.0: 2, 31.0: 3, 120.0: 4}
    dwells = list(steps)
    rows = [
        {"page_id": name, "position": k, "click": c, "dwell_time": dwells[k % len(dwells)]}
        for name, clicks in pages.items()
        for k, c in enumerate(clicks, start=1)
    ]
    traced = engine.rows(with_traces(engine.from_arrow(pa.Table.from_pylist(rows))))
    assert len(traced) == len(rows)
    for row in traced:
        trace = {name: np.array([row[f"trace_{name}"]]) for name in TRACE}
        dwell = steps[row["dwell_time"]] if row["click"] else 0
        expected = features_by_hand(pages[row["page_id"]], row["position"], dwell)
        found = behaviour_features(trace)[0]
        assert dict(zip(FEATURES, found.tolist(), strict=True)) == expected


def test_it_tells_what_was_examined(log: Path, model: DisplayTimeModel, duckdb: Engine) -> None:
    assert 0.75 < model.facts["auc"] < 0.9
    assert model.facts["calibration_error"] < 0.03
    assert sum(row["impressions"] for row in model.facts["calibration"]) == model.facts["tested_on"]
    judged = duckdb.to_arrow(add_examination(duckdb, duckdb.read_parquet(log), model))
    e, true = judged["examination"].to_numpy(), judged["true_examined"].to_numpy(zero_copy_only=False)
    assert ((e - true) ** 2).mean() < 0.12 < true.mean() * (1 - true.mean())
    word = judged["display_time"].to_numpy()
    assert set(e[word > 5]) == {1.0}
    assert set(e[word < 1]) == {0.0}
    assert 0 < e[np.isnan(word)].min() <= e[np.isnan(word)].max() < 1.001


def test_curves_are_those_of_the_world(log: Path, model: DisplayTimeModel, duckdb: Engine) -> None:
    rows = add_examination(duckdb, duckdb.read_parquet(log), model)
    curves = examination_curves(duckdb, rows)
    theta = [0.98, 0.90, 0.78, 0.66, 0.56, 0.48, 0.42, 0.37, 0.34, 0.38]
    assert [row["mean"] for row in curves["by_position"]] == pytest.approx(theta, abs=0.06)
    below = [row["mean"] for row in curves["below_last_click"]]
    assert below[1] > below[3] > below[6], "little is looked at far below the last click"


def test_the_own_click_is_left_out_unless_asked_for(log: Path, duckdb: Engine, model: DisplayTimeModel) -> None:
    clicked, missed = ({"position": 3, "mask": mask, "length": 10, "dwell": 0} for mask in (8, 0))
    traces = [{name: np.array([value]) for name, value in one.items()} for one in (clicked, missed)]
    assert model(traces[0]) == model(traces[1])
    own = learn_examination(duckdb, duckdb.read_parquet(log), DisplayTimes(own_click=True, trees=30))
    assert own(traces[0])[0] > own(traces[1])[0] + 0.2
    assert own.facts["auc"] > model.facts["auc"]


def test_saved_and_loaded(model: DisplayTimeModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["examination.json", "trees.txt"]
    traces = {name: np.arange(5) + 1 for name in TRACE}
    assert np.array_equal(load_examination(tmp_path / "model")(traces), model(traces))
    with pytest.raises(RunError, match="exists"):
        model.save(tmp_path / "model")
    (tmp_path / "model" / "trees.txt").write_text("tree\n")
    with pytest.raises(DataError, match="damaged, it is not what was written; train it anew"):
        load_examination(tmp_path / "model")
    (tmp_path / "model" / "examination.json").write_text("{}")
    with pytest.raises(DataError, match="damaged"):
        load_examination(tmp_path / "model")
    with pytest.raises(RunError, match="no examination model"):
        load_examination(tmp_path)


def test_the_commands(log: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["display-times", str(log), "--out", str(tmp_path / "model"), "--trees", "20"])
    assert made.exit_code == 0, made.output
    assert "Below the last click" in made.stdout
    assert re.search(r"click █+ .*\n *1 █", made.stdout)
    page = (tmp_path / "model" / "report.html").read_text()
    assert "mean examination" in page
    told = track(log, tmp_path / "store", examination=tmp_path / "model", refresh="all")
    assert told.counted == 8_000
    row = Lookup(tmp_path / "store")
    sums = [row(query, document)["month"] for query in range(5) for document in range(10)]
    assert sum(each["estimated"] for each in sums) == sum(each["displays"] for each in sums) > 0
    assert all(each["examined_clicks"] <= each["examined"] <= 1000 * each["displays"] for each in sums)
    again = CliRunner().invoke(app, ["display-times", str(log), "--out", str(tmp_path / "model"), "--json"])
    assert isinstance(again.exception, RunError)
    assert "--force" in str(again.exception)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spark"])  # beside the other tests on Spark
def test_spark_adds_the_same(name: str, spark: Engine, duckdb: Engine, model: DisplayTimeModel, log: Path) -> None:
    some = pq.read_table(log).slice(0, 600)
    found = [
        engine.to_arrow(add_examination(engine, engine.from_arrow(some), model)).sort_by(
            [("page_id", "ascending"), ("position", "ascending")]
        )["examination"]
        for engine in (duckdb, spark)
    ]
    assert found[0].to_pylist() == pytest.approx(found[1].to_pylist())


def test_errors(log: Path, duckdb: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = duckdb.read_parquet(log)
    with pytest.raises(DataError, match="missing columns: display_time"):
        learn_examination(duckdb, rows.drop("display_time"), DisplayTimes())
    with pytest.raises(
        DataError, match=r"log\.parquet: the pages to train on do not have display times both above 1000000"
    ):
        learn_examination(duckdb, rows, DisplayTimes(seen=1e6), log)
    with pytest.raises(ConfigError, match="must not exceed seen"):
        DisplayTimes(seen=1.0, unseen=2.0)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtra, match=r"pip install 'unskew\[trees\]'"):
        learn_examination(duckdb, rows, DisplayTimes())
    assert json.dumps(DisplayTimes().model_dump())
