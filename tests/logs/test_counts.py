"""Reduced logs against a reduction with plain dictionaries, and batches that can be told from (seed, step)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unskew.errors import DataError
from unskew.logs.counts import reduction as reducing
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import Counts, label_table, reduce_log
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.inputs import Vectors
from unskew.types import Lists, Log

torch.set_num_threads(1)

SIZES = (4, 2, 5)
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
FEATURES = np.random.default_rng(5).normal(size=(sum(SIZES), 3)).astype(np.float32)
LISTS = Lists(FEATURES, OFFSETS, np.zeros(sum(SIZES), np.int16), np.arange(len(SIZES)))

Page = list[tuple[int, int, int, float]]  # row, position, click, presentation of each result


def log_of(pages: list[tuple[int, Page]]) -> Log:
    """A log of (query, page) pages."""
    cells = [cell for _, page in pages for cell in page]
    row, position, click, kind = (np.array(column) for column in zip(*cells, strict=True)) if cells else [[]] * 4
    return Log(
        lists=LISTS,
        query=np.array([query for query, _ in pages], np.int64),
        offsets=np.concatenate([[0], np.cumsum([len(page) for _, page in pages])]).astype(np.int64),
        row=np.asarray(row, np.int64),
        position=np.asarray(position, np.int16),
        click=np.asarray(click, np.uint8),
        columns={"serp_kind": np.asarray(kind, np.float64), "serp_name": np.asarray(kind).astype(str)},
    )


@st.composite
def pages(draw: st.DrawFn, empty: bool = True) -> list[tuple[int, Page]]:
    """Ragged pages with repeated rankings: few rankings per query, many pages."""
    rankings = []
    for query, size in enumerate(SIZES):
        order = st.permutations(range(OFFSETS[query], OFFSETS[query] + size))
        cut = st.integers(0 if empty else 1, size)
        rankings += [(query, draw(order)[: draw(cut)], draw(st.integers(1, 2))) for _ in range(2)]
    log = []
    for _ in range(draw(st.integers(1, 25))):
        query, rows, first = draw(st.sampled_from(rankings))
        kind = draw(st.sampled_from([0.5, 1.0]))
        clicks = [draw(st.integers(0, 1)) for _ in rows]
        log.append(
            (query, [(int(r), first + k, c, kind) for k, (r, c) in enumerate(zip(rows, clicks, strict=True))])
        )
    return log


def by_dictionary(log: list[tuple[int, Page]], *, serp: bool = False) -> dict:
    """Page -> pages, clicks per slot, pairs (i clicked, j not)."""
    table: dict = defaultdict(lambda: [0, defaultdict(int), defaultdict(int)])
    for _, page in log:
        key = tuple((row, position, *((kind,) if serp else ())) for row, position, _, kind in page)
        entry = table[key]
        entry[0] += 1
        for i, (_, _, clicked, _) in enumerate(page):
            entry[1][i] += clicked
            for j, (_, _, other, _) in enumerate(page):
                entry[2][i, j] += clicked and not other
    return table


def check_against(counts: Counts, table: dict, *, serp: bool = False, pairs: bool = False) -> None:
    assert len(counts) == len(table)
    for r in range(len(counts)):
        size = int(counts.where[r].sum())
        assert counts.where[r, :size].all()
        cells = [counts.row[r, :size], counts.position[r, :size], *([counts.serp["serp_kind"][r]] if serp else [])]
        shown, clicks, both = table.pop(tuple(zip(*(c.tolist()[:size] for c in cells), strict=True)))
        assert counts.impressions[r].tolist() == [shown] * size + [0] * (counts.row.shape[1] - size)
        assert counts.clicks[r].tolist() == [clicks[k] for k in range(size)] + [0] * (counts.row.shape[1] - size)
        assert (counts.row[r, size:] == -1).all()
        assert (counts.position[r, size:] == 0).all()
        if size:
            assert OFFSETS[counts.query[r]] <= counts.row[r, 0] < OFFSETS[counts.query[r] + 1]
        if pairs:
            assert counts.pairs is not None
            width = counts.row.shape[1]
            for i in range(width):
                for j in range(width):
                    assert counts.pairs[r, i, j] == (both[i, j] if max(i, j) < size else 0)
    assert not table


@example(
    [(1, [(4, 1, 1, 0.5), (5, 2, 0, 0.5)]), (1, [(4, 11, 0, 0.5), (5, 12, 1, 0.5)])]
)  # on another page of results
@given(pages())
@settings(max_examples=80, deadline=None)
def test_counts_are_what_a_dictionary_counts(made: list[tuple[int, Page]]) -> None:
    log = log_of(made)
    if len(log.row) == 0:
        with pytest.raises(DataError, match="no impressions"):
            reduce_log(log)
        return
    check_against(reduce_log(log, "counts"), by_dictionary(made))
    check_against(reduce_log(log, "pairs"), by_dictionary(made), pairs=True)
    check_against(
        reduce_log(log, "pairs", serp=["serp_kind"]), by_dictionary(made, serp=True), serp=True, pairs=True
    )


@given(pages(empty=False), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_pages_does_not_matter(made: list[tuple[int, Page]], rng) -> None:
    shuffled = list(made)
    rng.shuffle(shuffled)
    one, other = reduce_log(log_of(made), "pairs"), reduce_log(log_of(shuffled), "pairs")
    for name in ("query", "row", "position", "clicks", "impressions", "pairs"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@given(pages(empty=False))
@settings(max_examples=40, deadline=None)
def test_totals_are_conserved(made: list[tuple[int, Page]]) -> None:
    log = log_of(made)
    for reduction in ("pages", "counts", "pairs"):
        counts = reduce_log(log, reduction)
        assert counts.clicks.sum() == log.click.sum()
        assert counts.impressions.sum() == len(log.row)
        assert counts.impressions.max(axis=1).sum() == len(log)
        assert counts.positions == log.position.max()
        assert (counts.pairs is not None) == (reduction == "pairs")
        for rank in range(1, counts.positions + 1):
            assert counts.clicks[counts.position == rank].sum() == log.click[log.position == rank].sum()


def test_pages_stay_as_they_are() -> None:
    made = [(0, [(2, 1, 1, 0.5), (0, 2, 0, 0.5)]), (1, [(5, 1, 0, 1.0)]), (0, [(2, 1, 0, 0.5), (0, 2, 1, 0.5)])]
    counts = reduce_log(log_of(made), "pages", serp=["serp_kind"])
    assert counts.query.tolist() == [0, 1, 0]
    assert counts.row.tolist() == [[2, 0], [5, -1], [2, 0]]
    assert counts.position.tolist() == [[1, 2], [1, 0], [1, 2]]
    assert counts.clicks.tolist() == [[1, 0], [0, 0], [0, 1]]
    assert counts.impressions.tolist() == [[1, 1], [1, 0], [1, 1]]
    assert counts.serp["serp_kind"].tolist() == [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]


@pytest.mark.parametrize("column", ["serp_kind", "serp_name"])
def test_presentation_keeps_pages_apart(column: str) -> None:
    page = [(2, 1, 1), (0, 2, 0)]
    made = [(0, [(*cell, kind) for cell in page]) for kind in (0.5, 1.0, 0.5)]
    assert len(reduce_log(log_of(made))) == 1
    counts = reduce_log(log_of(made), serp=[column])
    assert sorted(counts.clicks[:, 0].tolist()) == [1, 2]
    assert len(set(counts.serp[column][:, 0].tolist())) == 2


def test_missing_presentation_is_a_value_like_others() -> None:
    made = [(1, [(5, 1, 1, kind)]) for kind in (np.nan, 1.0, np.nan)]
    counts = reduce_log(log_of(made), serp=["serp_kind"])
    assert sorted(counts.impressions[:, 0].tolist()) == [1, 2]


def test_empty_pages_are_no_trouble() -> None:
    made: list[tuple[int, Page]] = [(0, []), (1, [(5, 1, 1, 0.5)]), (1, []), (1, [(5, 1, 0, 0.5)]), (0, [])]
    counts = reduce_log(log_of(made), "pairs")
    assert sorted(zip(counts.impressions[:, 0].tolist(), counts.clicks[:, 0].tolist(), strict=True)) == [
        (0, 0),
        (2, 1),
    ]


def test_a_wrong_log_is_refused() -> None:
    with pytest.raises(DataError, match="no pages"):
        reduce_log(log_of([]))
    with pytest.raises(DataError, match="no impressions"):
        reduce_log(log_of([(0, []), (1, [])]))
    with pytest.raises(DataError, match="serp_height; it has serp_kind, serp_name"):
        reduce_log(log_of([(1, [(5, 1, 1, 0.5)])]), serp=["serp_height", "serp_kind"])


# ---- batches -------------------------------------------------------------------------------------------------


def table(impressions: list[int], clicks: list[int]) -> Counts:
    """One row of two results for each count of impressions; the second result was clicked that often."""
    rows = len(impressions)
    shown = np.array(impressions, np.float32)
    features = np.random.default_rng(1).normal(size=(2 * rows, 3)).astype(np.float32)
    pairs = np.zeros((rows, 2, 2), np.float32)
    pairs[:, 1, 0] = clicks
    return Counts(
        lists=Lists(features, np.arange(rows + 1) * 2, np.zeros(2 * rows, np.int16), np.arange(rows)),
        query=np.arange(rows),
        row=np.arange(2 * rows).reshape(rows, 2),
        position=np.tile([1, 2], (rows, 1)),
        clicks=np.stack([np.zeros(rows), clicks], 1).astype(np.float32),
        impressions=np.stack([shown, shown], 1),
        pairs=pairs,
    )


def ragged() -> Counts:
    made = [
        (0, [(2, 1, 1, 0.5), (0, 2, 0, 1.5), (3, 3, 1, 0.5)]),
        (1, [(5, 1, 0, 2.5)]),
        (2, [(9, 1, 0, 3.5), (6, 2, 1, 4.5)]),
    ]
    return reduce_log(log_of(made), "pages", serp=["serp_kind"])


def rows_of(batch, counts: Counts) -> list[int]:
    """Which rows a batch holds, told by the feature vectors of their first results."""
    firsts = counts.lists.features[counts.row[:, 0]]
    return [int(np.flatnonzero((firsts == x).all(axis=1))[0]) for x in batch.pad(batch.documents)[:, 0].numpy()]


def test_rows_gather_features_and_counts() -> None:
    batches = Batches(ragged(), size=2)
    batch = batches.rows(torch.tensor([2, 0]))
    assert batch.where.tolist() == [[True, True, False], [True, True, True]]
    assert batch.packed.tolist() == [0, 1, 3, 4, 5]
    assert np.array_equal(batch.documents.numpy(), FEATURES[[9, 6, 2, 0, 3]])
    assert np.array_equal(batch.pad(batch.documents)[0, :2].numpy(), FEATURES[[9, 6]])
    assert np.array_equal(batch.pad(batch.documents)[1].numpy(), FEATURES[[2, 0, 3]])
    assert batch.pad(batch.documents)[0, 2].tolist() == [0, 0, 0]
    assert batch.position.tolist() == [[1, 2, 0], [1, 2, 3]]
    assert batch.clicks.tolist() == [[0, 1, 0], [1, 0, 1]]
    assert batch.impressions.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.serp["serp_kind"].tolist() == [[3.5, 4.5, 0], [0.5, 1.5, 0.5]]


def test_other_features_can_be_given() -> None:
    scaled = 10 * FEATURES
    scaled.flags.writeable = False  # as a memory-mapped cache would be
    batch = Batches(ragged(), Vectors.of(scaled)).rows(torch.tensor([1]))
    assert np.array_equal(batch.documents.numpy(), 10 * FEATURES[[5]])


def test_pad_lays_values_out_and_keeps_gradients() -> None:
    batch = Batches(ragged()).rows(torch.tensor([1, 2]))
    values = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    padded = batch.pad(values)
    assert padded.shape == (2, 3, 1)
    assert padded[..., 0].tolist() == [[1, 0, 0], [2, 3, 0]]
    (padded * torch.arange(6.0).view(2, 3, 1)).sum().backward()
    assert values.grad is not None
    assert values.grad.flatten().tolist() == [0, 3, 4]
    full = Batches(ragged()).rows(torch.tensor([0]))
    assert full.pad(values).flatten().tolist() == [1, 2, 3]


def test_in_order_visits_every_row_once() -> None:
    counts = table([3] * 7, [1] * 7)
    visited = [rows_of(batch, counts) for batch in Batches(counts, size=3).in_order()]
    assert visited == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    counts = table([1, 5, 2, 9, 4, 4, 4, 1, 2, 3], [1] * 10)
    steps = [0, 7, 3, 3, 12, 0]
    first, second = Batches(counts, size=3, seed=1), Batches(counts, size=3, seed=1)
    forward = {step: rows_of(first.at(step), counts) for step in range(13)}
    assert [rows_of(second.at(step), counts) for step in steps] == [forward[step] for step in steps]
    other = Batches(counts, size=3, seed=2)
    assert [rows_of(other.at(step), counts) for step in range(13)] != list(forward.values())
    per_epoch = len(first)
    assert forward[0] != forward[per_epoch] or forward[1] != forward[per_epoch + 1]


@pytest.mark.parametrize("rows", [1, 10, 257, 1000])
@pytest.mark.parametrize("impressions", [1, 7])
def test_an_epoch_of_equal_rows_visits_each_once(rows: int, impressions: int) -> None:
    counts = table([impressions] * rows, [1] * rows)
    batches = Batches(counts, size=64, seed=3)
    assert len(batches) == -(-rows // 64)
    for epoch in range(3):
        visited = [
            row for step in range(len(batches)) for row in rows_of(batches.at(epoch * len(batches) + step), counts)
        ]
        assert sorted(visited) == list(range(rows))
        assert rows < 10 or visited != sorted(visited)


def test_batches_are_scaled_to_one_page() -> None:
    counts = table([4, 4, 4], [1, 2, 4])
    batch = Batches(counts, size=3).at(0)
    assert batch.impressions.tolist() == [[1, 1]] * 3
    assert sorted(batch.clicks[:, 1].tolist()) == [0.25, 0.5, 1.0]
    assert batch.pairs is not None
    assert torch.equal(batch.pairs[:, 1, 0], batch.clicks[:, 1])
    assert counts.clicks[:, 1].tolist() == [1, 2, 4]  # the table itself is untouched


def test_expected_batches_are_proportional_to_counts() -> None:
    impressions = [1, 2, 3, 5, 8, 13, 21, 1, 1, 40]
    counts = table(impressions, [1, 1, 2, 3, 1, 7, 20, 0, 1, 13])
    batches = Batches(counts, size=4, seed=0)
    epochs = 6000
    seen = np.zeros((3, len(counts)))
    for step in range(epochs * len(batches)):
        batch = batches.at(step)
        rows = rows_of(batch, counts) if step < 50 else batches._order[4 * (step % len(batches)) :][:4].tolist()
        for slot, row in enumerate(rows):
            assert batch.pairs is not None
            seen[:, row] += 1, batch.clicks[slot, 1], batch.pairs[slot, 1, 0]
    visits, clicks, pairs = seen / seen.sum(axis=1, keepdims=True)
    assert visits == pytest.approx(np.array(impressions) / sum(impressions), abs=0.008)
    assert clicks == pytest.approx(counts.clicks[:, 1] / counts.clicks.sum(), abs=0.008)
    assert pairs == pytest.approx(clicks)


def test_an_epoch_rounds_visits_up_or_down() -> None:
    impressions = np.array([1, 2, 3, 5, 8, 13, 21, 1, 1, 40] * 3)
    counts = table(impressions.tolist(), [0] * 30)
    batches = Batches(counts, size=4, seed=0)
    for epoch in range(20):
        steps = range(epoch * len(batches), (epoch + 1) * len(batches))
        visited = [row for step in steps for row in rows_of(batches.at(step), counts)]
        expected = len(visited) * impressions / impressions.sum()
        times = np.bincount(visited, minlength=30)
        assert (times >= np.floor(expected)).all()
        assert (times <= np.ceil(expected)).all()


def test_a_few_heavy_rows_do_not_shrink_the_batch() -> None:
    counts = table([1_000_000] + [1] * 99, [1] * 100)
    batches = Batches(counts, size=32)
    assert len(batches.at(0).where) == 32
    assert len(Batches(replace(counts), size=500).at(0).where) == 100


def test_means_of_numbers_are_carried_and_keep_no_rankings_apart() -> None:
    log = simulate(make_lists(queries=3, features=4, seed=0), PositionBias(), pages=50, seed=0)
    scores = np.random.default_rng(0).normal(size=len(log.row))
    scored = replace(log, columns={"logging_score": scores})
    plain, counts = reduce_log(log), reduce_log(scored, averages=("logging_score", "absent"))
    assert np.array_equal(counts.row, plain.row)
    assert set(counts.serp) == {"logging_score"}
    page = np.repeat(np.arange(len(log)), log.sizes)
    for row, slot in np.argwhere(counts.where):
        here = (log.row == counts.row[row, slot]) & (log.position == counts.position[row, slot])
        here &= log.query[page] == counts.query[row]
        assert counts.serp["logging_score"][row, slot] == pytest.approx(scores[here].mean(), abs=1e-5)


# ---- grades in the place of clicks ----------------------------------------------------------------------------

GRADES = np.array([4, 0, 1, 2, 3, 0, 1, 0, 2, 0, 3], np.int16)  # of the 4, 2 and 5 documents


def graded(made: list[tuple[int, Page]]) -> Log:
    log = log_of(made)
    return replace(log, lists=replace(LISTS, labels=GRADES))


def shown(query: int, *rows: int) -> tuple[int, Page]:
    return query, [(row, position, 0, 0.0) for position, row in enumerate(rows, 1)]


def test_grades_are_those_of_the_page_that_a_query_showed_most() -> None:
    often, seldom = shown(0, 2, 0), shown(0, 3, 1, 2)
    for made in ([seldom, often, often, shown(2, 10)], [shown(2, 10), often, often, seldom]):
        table = label_table(graded(made))
        assert table.query.tolist() == [0, 2]  # each query once, however often it was shown
        assert table.row.tolist() == [[2, 0, -1], [10, -1, -1]]
        assert table.position.tolist() == [[1, 2, 0], [1, 0, 0]]
        assert table.clicks.tolist() == [[1, 4, 0], [3, 0, 0]]
        assert table.impressions.tolist() == [[1, 1, 0], [1, 0, 0]]


def test_grades_of_every_document_take_those_that_were_never_shown() -> None:
    table = label_table(graded([shown(2, 10), shown(1, 5), shown(2, 7)]), every=True)
    assert table.query.tolist() == [1, 2]
    assert table.row.tolist() == [[4, 5, -1, -1, -1], [6, 7, 8, 9, 10]]
    assert table.clicks.tolist() == [[3, 0, 0, 0, 0], [1, 0, 2, 0, 3]]
    assert table.position.tolist() == [[1, 2, 0, 0, 0], [1, 2, 3, 4, 5]]
    assert table.where.tolist() == [[True, True, False, False, False], [True] * 5]


def test_two_rankings_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a hash collides, another salt is tried; where all do, it is an error and never a wrong count."""
    made = [shown(0, 0, 1), shown(0, 1, 0), shown(0, 0, 1)]
    plain, salts = reducing._hash, []

    def collide(keys: object, slot: np.ndarray, salt: int) -> np.ndarray:
        salts.append(salt)
        return np.zeros(len(slot), np.uint64) if salt < 3 else plain(keys, slot, salt)  # type: ignore[arg-type]

    monkeypatch.setattr(reducing, "_hash", collide)
    counts = reduce_log(log_of(made))
    assert sorted(counts.impressions[:, 0].tolist()) == [1, 2]
    assert salts == [1, 2, 3]
    monkeypatch.setattr(reducing, "_hash", lambda _keys, slot, _salt: np.zeros(len(slot), np.uint64))
    for same in (made, [shown(0, 0, 1), shown(0, 0)]):  # the second page is the beginning of the first
        with pytest.raises(DataError, match="could not tell the rankings apart"):
            reduce_log(log_of(same))
