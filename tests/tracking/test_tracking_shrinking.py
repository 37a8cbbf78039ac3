"""Estimates pulled towards the imputation: by hand, known variances recovered, batches of any size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.tracking.delivery import SUMS
from unskew.tracking.estimators import Tallies, TrustCurves, estimate
from unskew.tracking.judgments import Judging, batch_of, pair_batches
from unskew.tracking.shrinkage import (
    Pull,
    Spread,
    chance_share,
    imputed_variance,
    learn_pull,
    shrunken,
    zeta,
)
from unskew.tracking.trust import Looks, RankSums
from unskew.types import Array

TRUE = TrustCurves([0.9, 0.6, 0.4], [0.6, 0.45, 0.35], [0.25, 0.1, 0.03])


def excess_by_search(squares: Array, variances: Array) -> float:
    """τ² of Paule and Mandel, on single values, by halving; shares no code with the source."""
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        if sum(s / (middle + v) for s, v in zip(squares, variances, strict=True)) > len(squares):
            low = middle
        else:
            high = middle
    return low


def test_what_is_beyond_chance_is_found_from_bins() -> None:
    rng = np.random.default_rng(0)
    variances = 10.0 ** rng.uniform(-4, 1, 3000)
    squares = (0.05 + variances) * rng.standard_normal(3000) ** 2
    spread = Spread()
    for part in np.array_split(np.arange(3000), 7):
        spread.add(squares[part], variances[part])
    assert spread.excess() == pytest.approx(excess_by_search(squares, variances), rel=2e-3)
    assert spread.excess() == pytest.approx(0.05, rel=0.2)
    assert spread.excess(0.5) == pytest.approx(excess_by_search(squares, 0.5 * variances), rel=2e-3)
    none = Spread()
    none.add(np.full(50, 0.1), np.full(50, 0.5))
    assert none.excess() == pytest.approx(0.0, abs=1e-9)


def world(seed: int, pairs: int = 3000, bias: float = 0.0) -> tuple[Tallies, Array, Array]:
    """Pairs shown 1 to 300 times with a relevance and an imputation; `bias`: sd of what ê is off for a pair."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(1, 2, pairs)
    imputed = truth + 0.2 * rng.standard_normal(pairs)
    shown = np.where(rng.random(pairs) < 0.5, 300, rng.integers(1, 5, pairs))
    pair = np.repeat(np.arange(pairs), shown)
    position = rng.integers(1, 4, len(pair))
    theta, alpha, beta = TRUE.at(position)
    examined = rng.random(len(pair)) < theta
    click = (examined & (rng.random(len(pair)) < (alpha * truth[pair] + beta) / theta)).astype(float)
    e = examined * (1 + bias * rng.standard_normal(pairs)[pair])
    one = np.ones(len(pair))
    return Tallies(pair, position, one, click, one, e, e * e, click * e, pairs=pairs), truth, imputed


def learned(tallies: Tallies, imputed: Array, estimator: str = "doubly_robust") -> tuple[Pull, Looks]:
    sums = RankSums(3)
    sums.add(tallies)
    looks = sums.looks(TRUE)
    return learn_pull(lambda: [(tallies, imputed)], TRUE, looks, estimator), looks


def test_by_hand() -> None:
    made = Tallies(*(np.array([v]) for v in (0, 2, 4.0, 1.0, 4.0, 2.0, 1.5, 0.5)), pairs=2)
    imputed = np.array([0.3, 0.7])
    looks = Looks(TRUE.theta, np.array([0.1, 0.2, 0.3]) * TRUE.theta**2)
    assert zeta(made, TRUE, looks)[0] == pytest.approx(1 - 2 / 4 / 0.6)
    u = 4 * 0.2 / 16
    assert chance_share(made, TRUE, looks, 0.01).tolist() == pytest.approx([u / (u + 0.01), 1.0])
    p = 0.45 * 0.3 + 0.1
    v = 4 * p * (1 - p) / 0.45**2 / 16
    assert imputed_variance(made, TRUE, imputed)[0] == pytest.approx(v)
    y = (1 - 4 * 0.1) / 0.45 / 4 + u / (u + 0.01) * 0.3 * (1 - 2 / 4 / 0.6)
    weight = 0.04 / (0.04 + 0.9 * v)
    found = shrunken(made, TRUE, looks, imputed, Pull(bias=0.01, scale=0.9, off=0.04))
    assert found.relevance.tolist() == pytest.approx([0.3 + weight * (y - 0.3), 0.7])
    assert found.standard_error.tolist() == pytest.approx([np.sqrt(weight * 0.9 * v), 0.2])


def test_what_was_put_in_is_recovered() -> None:
    tallies, _, imputed = world(1, bias=0.1)
    pull, looks = learned(tallies, imputed)
    assert pull.off == pytest.approx(0.04, rel=0.15)
    assert pull.bias == pytest.approx(0.01, rel=0.2)  # Var of mean ê/θ beyond chance: 0.1²
    share = chance_share(tallies, TRUE, looks, pull.bias)
    often = tallies.displays > 100
    assert share[often].max() < 0.4 < 0.9 < share[~often].mean()
    assert pull.scale == pytest.approx(0.85, abs=0.15)
    plain, _ = learned(tallies, imputed, "affine")
    assert plain.bias == 0.0
    assert plain.scale > pull.scale  # ê explains some of the clicks


def test_what_was_never_shown_teaches_nothing() -> None:
    tallies, _, imputed = world(4, pairs=200)
    more = replace(tallies, pairs=tallies.pairs + 3)
    guesses = np.append(imputed, [0.1, 0.5, 0.9])
    (pull, looks), (other, _) = learned(tallies, imputed), learned(more, guesses)
    assert pull == other
    found = shrunken(more, TRUE, looks, guesses, pull)
    assert found.relevance[-3:].tolist() == [0.1, 0.5, 0.9]
    assert found.standard_error[-3:] == pytest.approx(np.sqrt(pull.off))


def test_it_is_nearer_than_both_where_much_and_little_was_shown() -> None:
    tallies, truth, imputed = world(2, bias=0.1)
    pull, looks = learned(tallies, imputed)
    found = shrunken(tallies, TRUE, looks, imputed, pull)
    affine = estimate(tallies, TRUE, "affine").relevance
    published = estimate(tallies, TRUE, "doubly_robust", imputed).relevance

    def error(values: Array, some: Array) -> float:
        return float(((values - truth)[some] ** 2).mean())

    for some in (tallies.displays > 100, tallies.displays < 100):
        assert error(found.relevance, some) < min(error(imputed, some), error(affine, some))
    often = tallies.displays > 100
    assert error(found.relevance, often) < error(affine, often) < error(published, often)  # the bias of ê
    off = ((found.relevance - truth) / found.standard_error) ** 2
    assert off[often].mean() == pytest.approx(1, abs=0.15)
    assert off.mean() == pytest.approx(1, abs=0.15)


def window(tmp_path: Path) -> Path:
    """A sorted file of a few hundred pairs with one to three positions each, and an imputation."""
    rng = np.random.default_rng(3)
    rows = [
        (query, document, position)
        for query in range(30)
        for document in range(12)
        for position in sorted(rng.choice([1, 2, 3], rng.integers(1, 4), replace=False))
    ]
    n = rng.integers(1, 40, len(rows))
    sums = dict.fromkeys(SUMS, np.zeros(len(rows), np.int64))
    clicks = rng.binomial(n, [0.1 + 0.07 * (document % 9) for _, document, _ in rows])
    sums |= {"displays": n, "clicks": clicks, "estimated": n, "random_displays": n, "random_clicks": clicks}
    seen = rng.binomial(n, 0.6)
    sums |= {"examined": 1000 * seen, "examined_squared": 10**6 * seen, "examined_clicks": 1000 * clicks}
    ids = {
        name: np.array(values)
        for name, values in zip(("query_id", "doc_id", "position"), zip(*rows, strict=True), strict=True)
    }
    guess = {"imputation": np.array([0.1 + 0.05 * (document % 7) for _, document, _ in rows])}
    pq.write_table(pa.table(ids | sums | guess), tmp_path / "window.parquet", row_group_size=100)
    return tmp_path / "window.parquet"


@pytest.mark.parametrize("curves", ["shuffled", "em"])
@pytest.mark.parametrize("rows", [1, 17, 10**6])
def test_batches_change_nothing(rows: int, curves: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = window(tmp_path)
    found = []
    for size in (10**6, rows):
        monkeypatch.setattr(
            "unskew.tracking.judgments.pair_batches", lambda files, size=size: pair_batches(files, size)
        )
        judging = Judging([file], 3, 0.2, "doubly_robust")
        assumed, looks = judging.assumed(curves, (0.6, 0.2))
        tables = list(judging.judged(assumed, looks))
        if size < 100:
            assert len(tables) > 5
            assert max(map(len, tables)) <= size + 3
        found.append((assumed, pa.concat_tables(tables)))
    (one, whole), (other, parts) = found
    np.testing.assert_allclose(one.alpha, other.alpha, rtol=1e-9)
    assert whole.select(["query_id", "doc_id", "displays", "clicks"]).equals(
        parts.select(["query_id", "doc_id", "displays", "clicks"])
    )
    for name in ("relevance", "standard_error"):
        np.testing.assert_allclose(whole[name].to_numpy(), parts[name].to_numpy(), rtol=1e-7)


@pytest.mark.parametrize("rows", [1, 17])
def test_batches_of_queries_change_nothing_without_an_imputation(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, found = window(tmp_path), []
    for size in (10**6, rows):
        monkeypatch.setattr(
            "unskew.tracking.judgments.pair_batches", lambda files, by, size=size: pair_batches(files, size, by)
        )
        judging = Judging([file], 3, None, "affine")
        curves = TrustCurves([1, 0.8, 0.6], [0.9, 0.7, 0.5], [0.05, 0.02, 0.01])
        tables = list(judging.judged(curves, Looks(curves.theta, np.zeros(3))))
        assert len(tables) == (2 if size > 1000 else 30)  # the last query is a batch of its own
        found.append(pa.concat_tables(tables))
    whole, parts = found
    for name in ("relevance", "standard_error", "click_rate", "coec", "mean_rank"):
        np.testing.assert_allclose(whole[name].to_numpy(), parts[name].to_numpy(), rtol=1e-9)


def test_no_pair_is_cut_in_two(tmp_path: Path) -> None:
    file = window(tmp_path)
    whole = batch_of(pq.read_table(file))
    for rows in (1, 5, 64):
        parts = list(pair_batches([file], rows))
        assert sum(len(part.starts) for part in parts) == len(whole.starts) == 360
        together = np.concatenate([part.tallies().displays for part in parts])
        assert together.tolist() == whole.tallies().displays.tolist()
