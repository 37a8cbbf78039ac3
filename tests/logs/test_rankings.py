"""The reduction on the engine: the same counts as in memory, whatever the ids and the order of rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import DataError, RunError
from unskew.logs.counts.rankings import count_rankings, counts_of, read_counts
from unskew.logs.counts.reduction import Counts, reduce_log
from unskew.logs.log import write_log
from unskew.logs.presentation import NO_COLUMNS, fit_presentation
from unskew.logs.reader import read_log
from unskew.tables.engine.engine import Engine, connect
from unskew.types import Lists, Log

SIZES = np.array([4, 2, 7, 5])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])


def make_lists(names: bool) -> Lists:
    documents = int(OFFSETS[-1])
    return Lists(
        features=np.zeros((documents, 1), np.float32),
        offsets=OFFSETS,
        labels=np.zeros(documents, np.int16),
        query_ids=np.array(["a'b", "é", "a", "10"], object) if names else np.array([7, 3, 9, 1]),
        doc_ids=np.array([f"d{index % 7}" for index in range(documents)], object) if names else None,
    )


def make_log(pages: int = 300, names: bool = False, seed: int = 0) -> Log:
    """Few rankings, cut at different lengths, some with a gap in their positions, some filled at random."""
    rng = np.random.default_rng(seed)
    query = rng.integers(0, len(SIZES), pages)
    rankings = [
        [rng.permutation(size) + start for _ in range(2)] for size, start in zip(SIZES, OFFSETS, strict=False)
    ]
    length = rng.integers(1, SIZES[query] + 1)
    row = np.concatenate([rankings[q][rng.integers(2)][:cut] for q, cut in zip(query, length, strict=True)])
    first = np.repeat(rng.integers(1, 3, pages), length)
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    count = len(row)
    return Log(
        lists=make_lists(names),
        query=query,
        offsets=offsets,
        row=row,
        position=(np.arange(count) - np.repeat(offsets[:-1], length) + first).astype(np.int16),
        click=(rng.random(count) < 0.4).astype(np.uint8),
        randomized=np.repeat(rng.random(pages) < 0.3, length),
        columns={
            "serp_kind": np.array(["text", "image"], object)[rng.integers(0, 2, count)],
            "serp_height": rng.integers(0, 2, count) / 2,
        },
    )


def shuffled(log: Log, path: Path, text: bool) -> Path:
    """The log as two Parquet files with rows in any order; page ids as strings where asked for."""
    write_log(log, path / "whole.parquet")
    table = pq.read_table(path / "whole.parquet")
    (path / "whole.parquet").unlink()
    if text:
        table = table.set_column(0, "page_id", pa.array([f"s {each}" for each in table["page_id"].to_pylist()]))
    order = np.random.default_rng(1).permutation(len(table))
    for number, part in enumerate(np.array_split(order, 2)):
        pq.write_table(table.take(pa.array(part)), path / f"{number}.parquet")
    return path


def in_order(counts: Counts) -> list[tuple[object, ...]]:
    """The rows of counts as plain values, sorted."""
    parts = [counts.row, counts.position, counts.clicks, counts.impressions, *counts.serp.values()]
    parts += [] if counts.pairs is None else [counts.pairs]
    return sorted(
        (int(query), *(part[index].ravel().tolist() for part in parts)) for index, query in enumerate(counts.query)
    )


@pytest.mark.parametrize("names", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("serp", [(), ("serp_kind", "serp_height")], ids=["plain", "serp"])
def test_equals_the_reduction_in_memory(
    engine: Engine, tmp_path: Path, names: bool, serp: tuple[str, ...]
) -> None:
    log = make_log(names=names)
    source = shuffled(log, tmp_path, text=names)
    rankings = count_rankings(engine, engine.read_parquet(source), serp=serp, pairs=True)
    rankings.write(engine, tmp_path / "counts")
    fitted = fit_presentation(log.columns, serp)
    for reduction in ("counts", "pairs"):
        found = read_counts(tmp_path / "counts", log.lists, reduction, presentation=fitted)  # type: ignore[arg-type]
        expected = reduce_log(log, reduction, presentation=fitted)  # type: ignore[arg-type]
        assert in_order(found) == in_order(expected)
    assert rankings.summary["impressions"] == len(log.row)
    assert rankings.summary["clicks"] == int(log.click.sum())
    assert rankings.summary["pages"] == len(log)


def test_types_and_names_on_disk(engine: Engine, tmp_path: Path) -> None:
    log = make_log(60)
    source = shuffled(log, tmp_path, text=True)
    count_rankings(engine, engine.read_parquet(source), pairs=True).write(engine, tmp_path / "counts")
    slots, pairs = (pq.read_table(tmp_path / "counts" / part) for part in ("slots", "pairs"))
    kinds = dict(zip(slots.schema.names, slots.schema.types, strict=True))
    assert kinds["position"] == pa.int32()
    assert kinds["impressions"] == kinds["clicks"] == pa.int64()
    assert slots.schema.names[:5] == ["ranking_id", "query_id", "position", "doc_id", "randomized"]
    assert slots.schema.names[5:] == ["impressions", "clicks"]
    assert pairs.schema.names == ["ranking_id", "position", "other_position", "pages"]
    pages = {f"s {number}" for number in range(len(log))}
    assert set(slots["ranking_id"].to_pylist()) <= pages


def test_random_pages_are_kept_apart(engine: Engine, tmp_path: Path) -> None:
    log = make_log()
    assert log.randomized is not None
    source = shuffled(log, tmp_path, text=False)
    count_rankings(engine, engine.read_parquet(source)).write(engine, tmp_path / "counts")
    random = log.randomized[log.offsets[:-1]]
    slots = pq.read_table(tmp_path / "counts" / "slots")
    marked = slots.filter(slots["randomized"])["ranking_id"].combine_chunks()
    for wanted in (True, False):
        own = slots.filter(pc.equal(pc.is_in(slots["ranking_id"], marked), wanted))
        found = counts_of(own, log.lists, tmp_path / "counts", "counts", NO_COLUMNS)
        expected = reduce_log(log.take(random == wanted))
        width = found.row.shape[1]
        assert width == expected.row.shape[1]
        assert in_order(found) == in_order(expected)


def test_a_slot_of_which_nothing_is_said_was_not_filled_at_random(engine: Engine) -> None:
    columns = {"page_id": [1, 2, 3], "query_id": ["q"] * 3, "doc_id": ["d"] * 3, "position": [1] * 3}
    told = {"click": [1, 0, 0], "randomized": pa.array([None, False, True])}
    slots = count_rankings(engine, engine.from_arrow(pa.table(columns | told))).slots
    found = {row["randomized"]: (row["impressions"], row["clicks"]) for row in engine.to_arrow(slots).to_pylist()}
    assert found == {False: (2, 1), True: (1, 0)}


def test_missing_presentation_is_a_value_of_its_own(engine: Engine) -> None:
    columns = {
        "page_id": [1, 2, 3],
        "query_id": ["q"] * 3,
        "doc_id": ["d"] * 3,
        "position": pa.array([1, 1, 1], pa.int32()),
        "click": pa.array([1, 0, 1], pa.int8()),
        "serp_a": [None, "x", "x"],
        "serp_b": ["x", None, None],
    }
    found = count_rankings(engine, engine.from_arrow(pa.table(columns)), serp=["serp_a", "serp_b"])
    rows = engine.to_arrow(found.slots.order_by("ranking_id")).to_pylist()
    assert [(row["ranking_id"], row["impressions"], row["clicks"]) for row in rows] == [(1, 1, 1), (2, 2, 1)]


GOOD = {
    "page_id": [1, 1, 2, 2],
    "query_id": [5, 5, 5, 5],
    "doc_id": [0, 1, 0, 1],
    "position": [1, 2, 1, 2],
    "click": [0, 1, 0, 0],
}


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("click", [0, 2, 0, 0], "1 rows have a click that is not 0 or 1"),
        ("click", [0, None, 0, 0], "1 of 4 rows have no click"),
        ("position", [0, 1, 0, 1], "there is a position 0"),
        ("position", [1, 1, 1, 2], "position 1 is taken twice in page 1"),
        ("doc_id", [None, 1, 0, 1], "no doc_id"),
        ("page_id", [None, None, 2, 2], "no page_id"),
    ],
)
def test_broken_values(engine: Engine, column: str, values: list[int | None], message: str) -> None:
    table = pa.table(GOOD | {column: pa.array(values, pa.int64())})
    with pytest.raises(DataError, match=message):
        count_rankings(engine, engine.from_arrow(table))


def test_a_row_that_is_there_twice_is_told_from_a_collision(engine: Engine) -> None:
    table = pa.table({name: [*values, values[0]] for name, values in GOOD.items()})
    with pytest.raises(DataError, match="position 1 is taken twice in page 1"):
        count_rankings(engine, engine.from_arrow(table))


def test_a_collision_tries_another_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import ibis

    with connect(threads=1) as engine:
        real, salts = engine.set_hash, []

        def weak(row: ibis.expr.types.StructValue) -> object:
            salts.append(row)
            return real(row) if len(salts) > 1 else row.position.sum() % 1

        monkeypatch.setattr(engine, "set_hash", weak)
        log = make_log(50)
        source = shuffled(log, tmp_path, text=False)
        count_rankings(engine, engine.read_parquet(source)).write(engine, tmp_path / "counts")
        assert len(salts) == 2
        assert in_order(read_counts(tmp_path / "counts", log.lists)) == in_order(reduce_log(log))


def test_a_page_that_collides_with_a_longer_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths are not part of what pages are grouped by: the check on the result finds it."""
    import ibis

    columns = {"page_id": [1, 1, 2], "query_id": [5] * 3, "doc_id": [0, 1, 0], "position": [1, 2, 1]}
    table = pa.table(columns | {"click": [0, 1, 1]})
    with connect(threads=1) as engine:
        real, tried = engine.set_hash, []

        def weak(row: ibis.expr.types.StructValue) -> object:
            tried.append(row)
            return real(row) if len(tried) > 1 else row.query_id.max()

        monkeypatch.setattr(engine, "set_hash", weak)
        found = count_rankings(engine, engine.from_arrow(table))
        rows = engine.to_arrow(found.slots.order_by("ranking_id", "position")).to_pylist()
    assert len(tried) == 2
    assert [(row["ranking_id"], row["position"], row["impressions"], row["clicks"]) for row in rows] == [
        (1, 1, 1, 0),
        (1, 2, 1, 1),
        (2, 1, 1, 1),
    ]
    assert found.summary == {"impressions": 3, "clicks": 2, "pages": 2, "rankings": 2, "slots": 3}


def test_command_and_overwriting(tmp_path: Path) -> None:
    log = make_log(40)
    source = tmp_path / "log.parquet"
    write_log(log, source)
    summary = unskew.counts(source, tmp_path / "out", threads=1)
    assert summary.impressions == len(log.row)
    assert in_order(read_counts(tmp_path / "out", log.lists)) == in_order(reduce_log(read_log(source, log.lists)))
    with pytest.raises(RunError, match="never overwritten"):
        unskew.counts(source, tmp_path / "out", threads=1)
    unskew.counts(source, tmp_path / "out", threads=1, force=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(RunError, match="not ours"):
        unskew.counts(source, tmp_path / "mine", threads=1, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.parquet", "mine", "out"]


def test_missing_columns_and_unknown_documents(tmp_path: Path) -> None:
    log = make_log(40)
    source = tmp_path / "log.parquet"
    write_log(log, source)
    with pytest.raises(DataError, match="missing columns: serp_colour"):
        unskew.counts(source, tmp_path / "out", serp=["serp_colour"], threads=1)
    assert not (tmp_path / "out").exists()
    unskew.counts(source, tmp_path / "out", threads=1)
    with pytest.raises(DataError, match="count again with them"):
        read_counts(tmp_path / "out", log.lists, presentation=fit_presentation(log.columns, ["serp_kind"]))
    with pytest.raises(DataError, match="no such folder"):
        read_counts(tmp_path / "out", log.lists, "pairs")
    with pytest.raises(DataError, match="have no features"):
        read_counts(tmp_path / "out", replace(log.lists, query_ids=np.array([70, 30, 90, 10])))
