"""Ranking metrics against golden values, plain math, ir-measures, and properties."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, ERR, RR, P, nDCG

from unskew.errors import ConfigError, DataError
from unskew.measuring import (
    DEFAULT_METRICS,
    arp_legacy_metric,
    arp_metric,
    dcg_metric,
    err_metric,
    map_metric,
    measure_ranking,
    mrr_metric,
    ndcg_metric,
    precision_metric,
    rank_lists,
)
from unskew.types import Lists

GRADES = [3, 0, 1, 4, 0]  # in ranked order; the golden values below are worked out by hand from the formulas
SCORES = [5, 4, 3, 2, 1]
ALL_METRICS = (*DEFAULT_METRICS, "dcg@3", "dcg", "ndcg", "err", "mrr", "map@3", "arp_legacy")


def one_list(metric, labels, **options):
    scores = -np.arange(len(labels), dtype=float)
    return metric(scores, labels, offsets=[0, len(labels)], **options)[0]


# ---- golden values and plain math ----------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "value"), [(1, 0.466667), (3, 0.376572), (5, 0.700934)])
def test_ndcg_golden(at, value):
    assert one_list(ndcg_metric, GRADES, at=at) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize(("at", "value"), [(1, 0.4375), (3, 0.449219), (5, 0.572815)])
def test_err_golden(at, value):
    assert one_list(err_metric, GRADES, at=at) == pytest.approx(value, abs=5e-7)


def test_arp_golden():
    assert one_list(arp_metric, GRADES) == pytest.approx(2.75)
    assert one_list(arp_legacy_metric, GRADES, slots=5) == pytest.approx(4.4)
    assert one_list(arp_legacy_metric, GRADES, slots=10) == pytest.approx(2.2)


def plain_dcg(grades, at, gain):
    return sum(gain(y) / math.log2(1 + rank) for rank, y in enumerate(grades[:at], 1))


def plain_err(grades, at, ymax):
    value, going = 0.0, 1.0
    for rank, y in enumerate(grades[:at], 1):
        chance = (2**y - 1) / 2**ymax
        value += going * chance / rank
        going *= 1 - chance
    return value


def plain_ap(grades, at, relevant_from):
    hits, total = 0, 0.0
    for rank, y in enumerate(grades, 1):
        if y >= relevant_from:
            hits += 1
            total += hits / rank if rank <= at else 0
    return total / hits


def plain_rr(grades, at, relevant_from):
    return next((1 / rank for rank, y in enumerate(grades[:at], 1) if y >= relevant_from), 0.0)


def ragged(seed, queries=60, levels=6, grades=5, shortest=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(shortest, 31, queries)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    labels = rng.integers(0, grades, offsets[-1]) * (rng.random(offsets[-1]) < 0.3)
    scores = rng.integers(0, levels, offsets[-1]) / 8.0  # many ties
    return scores, labels, offsets


def ranked_lists(scores, labels, offsets):
    """Grades of each query in ranked order, by Python's stable sort."""
    for start, end in itertools.pairwise(offsets):
        order = sorted(range(start, end), key=lambda row: -scores[row])
        yield [int(labels[row]) for row in order]


@pytest.mark.parametrize("at", [1, 3, 10, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_ragged_lists_match_plain_math(seed, at):
    scores, labels, offsets = ragged(seed)
    data = {"scores": scores, "labels": labels, "offsets": offsets}
    got = {
        "ndcg": ndcg_metric(**data, at=at),
        "linear": ndcg_metric(**data, at=at, gain="linear"),
        "dcg": dcg_metric(**data, at=at),
        "err": err_metric(**data, at=at),
        "err6": err_metric(**data, at=at, ymax=6),
        "mrr": mrr_metric(**data, at=at),
        "map": map_metric(**data, at=at),
        "precision": precision_metric(**data, at=at),
        "arp": arp_metric(**data),
        "legacy": arp_legacy_metric(**data, slots=40),
    }
    for q, grades in enumerate(ranked_lists(scores, labels, offsets)):
        if not any(grades):
            assert all(math.isnan(values[q]) for values in got.values())
            continue
        best = sorted(grades, reverse=True)
        expected = {
            "ndcg": plain_dcg(grades, at, lambda y: 2**y - 1) / plain_dcg(best, at, lambda y: 2**y - 1),
            "linear": plain_dcg(grades, at, lambda y: y) / plain_dcg(best, at, lambda y: y),
            "dcg": plain_dcg(grades, at, lambda y: 2**y - 1),
            "err": plain_err(grades, at, 4),
            "err6": plain_err(grades, at, 6),
            "mrr": plain_rr(grades, at, 1),
            "map": plain_ap(grades, at, 1),
            "precision": sum(y >= 1 for y in grades[:at]) / at,
            "arp": sum(r * y for r, y in enumerate(grades, 1)) / sum(grades),
            "legacy": sum(r * y for r, y in enumerate(grades, 1)) / 40,
        }
        for name, value in expected.items():
            assert got[name][q] == pytest.approx(value, abs=1e-12), name


def test_relevant_from():
    scores, labels, offsets = ragged(3)
    data = {"scores": scores, "labels": labels, "offsets": offsets, "relevant_from": 3, "empty": "zero"}
    mrr, ap, precision = mrr_metric(**data, at=5), map_metric(**data), precision_metric(**data, at=5)
    for q, grades in enumerate(ranked_lists(scores, labels, offsets)):
        assert mrr[q] == pytest.approx(plain_rr(grades, 5, 3))
        assert precision[q] == pytest.approx(sum(y >= 3 for y in grades[:5]) / 5)
        assert ap[q] == pytest.approx(plain_ap(grades, 100, 3) if max(grades, default=0) >= 3 else 0)


def test_a_query_without_a_document_that_counts_as_relevant_is_skipped():
    """Grade 1 is relevant to the graded metrics, and not to binary ones that begin at 2."""
    for metric in (mrr_metric, map_metric, precision_metric):
        values = metric([2, 1, 2, 1], [1, 0, 2, 0], offsets=[0, 2, 4], at=2, relevant_from=2)
        assert math.isnan(values[0])
        assert values[1] == (0.5 if metric is precision_metric else 1)
    assert not np.isnan(ndcg_metric([2, 1, 2, 1], [1, 0, 2, 0], offsets=[0, 2, 4])).any()


def test_err_scale_follows_the_largest_label():
    assert one_list(err_metric, [5, 0], at=1) == pytest.approx(31 / 32)
    assert one_list(err_metric, [1, 0], at=1) == pytest.approx(1 / 16)
    with pytest.raises(ConfigError, match="ymax=2: below the largest label, 5"):
        one_list(err_metric, [5, 0], ymax=2)


def test_mrr_honours_the_cutoff_and_precision_divides_by_it():
    assert one_list(mrr_metric, [0, 0, 1], at=2) == 0
    assert one_list(mrr_metric, [0, 0, 1], at=None) == pytest.approx(1 / 3)
    assert one_list(precision_metric, [1, 1], at=10) == pytest.approx(0.2)


# ---- against ir-measures -------------------------------------------------------------------------------------


def adversarial():
    """Lists that break implementations: one document, all tied, no relevant one, all relevant, best last."""
    lists = [
        ([1.0], [1]),
        ([1.0], [0]),
        ([0.0] * 6, [0, 2, 0, 0, 4, 1]),
        ([0.5] * 4, [0, 0, 0, 0]),
        ([3.0, 1.0, 2.0], [4, 4, 4]),
        (list(np.arange(30.0)), [4] + [0] * 29),
        ([-1e6, 1e6, 0.0, 0.0], [1, 0, 3, 0]),
        ([2.0, 2.0, 1.0, 1.0, 1.0], [0, 1, 0, 1, 2]),
    ]
    offsets = np.concatenate([[0], np.cumsum([len(scores) for scores, _ in lists])])
    return np.concatenate([s for s, _ in lists]), np.concatenate([y for _, y in lists]), offsets


def trec(scores, labels, offsets, *, descending):
    """Qrels and run whose document names make the tool's tie-breaking equal to the order of the file."""
    qrels, run = {}, {}
    for q, (start, end) in enumerate(itertools.pairwise(offsets), 1):
        names = [f"d{10_000 - i if descending else i:05d}" for i in range(end - start)]
        qrels[str(q)] = dict(zip(names, map(int, labels[start:end]), strict=True))
        run[str(q)] = dict(zip(names, map(float, scores[start:end]), strict=True))
    return qrels, run


def their_values(measure, data, *, descending=True):
    qrels, run = trec(*data, descending=descending)
    values = {m.query_id: m.value for m in ir_measures.iter_calc([measure], qrels, run)}
    return np.array([values.get(str(q), 0.0) for q in range(1, len(data[2]))])


EXPONENTIAL = {y: 2**y - 1 for y in range(5)}
THEIRS = [
    *[(f"linear ndcg@{k}", nDCG @ k, ndcg_metric, {"at": k, "gain": "linear"}) for k in (1, 3, 10)],
    ("linear ndcg", nDCG, ndcg_metric, {"at": None, "gain": "linear"}),
    *[(f"ndcg@{k}", nDCG(gains=EXPONENTIAL) @ k, ndcg_metric, {"at": k}) for k in (1, 3, 5, 10)],
    ("mrr", RR, mrr_metric, {"at": None}),
    ("mrr from 2", RR(rel=2), mrr_metric, {"at": None, "relevant_from": 2}),
    ("map", AP, map_metric, {}),
    ("map from 2", AP(rel=2), map_metric, {"relevant_from": 2}),
    ("map@3", AP @ 3, map_metric, {"at": 3}),
    *[(f"precision@{k}", P @ k, precision_metric, {"at": k}) for k in (1, 5, 10)],
    ("precision@5 from 3", P(rel=3) @ 5, precision_metric, {"at": 5, "relevant_from": 3}),
]


@pytest.mark.parametrize("data", [ragged(5, shortest=1), ragged(6, levels=1, shortest=1), adversarial()])
@pytest.mark.parametrize(("measure", "ours", "options"), [t[1:] for t in THEIRS], ids=[t[0] for t in THEIRS])
def test_equals_ir_measures(data, measure, ours, options):
    scores, labels, offsets = data
    values = ours(scores, labels, offsets=offsets, empty="zero", **options)
    np.testing.assert_allclose(values, their_values(measure, data), rtol=0, atol=1e-9)


@pytest.mark.parametrize("data", [ragged(5, shortest=1), adversarial()])
@pytest.mark.parametrize("at", [1, 3, 10])
def test_mrr_at_equals_ir_measures(data, at):
    scores, labels, offsets = data
    values = mrr_metric(scores, labels, offsets=offsets, at=at, empty="zero")
    theirs = their_values(RR @ at, data, descending=False)  # this provider breaks ties by rising name
    np.testing.assert_allclose(values, theirs, rtol=0, atol=1e-9)


@pytest.mark.skipif(shutil.which("perl") is None, reason="the provider of ERR is a Perl script")
@pytest.mark.parametrize("data", [ragged(5, shortest=1), adversarial()])
@pytest.mark.parametrize("at", [1, 3, 10])
def test_err_equals_ir_measures(data, at):
    scores, labels, offsets = data
    values = err_metric(scores, labels, offsets=offsets, at=at, empty="zero")
    np.testing.assert_allclose(values, their_values(ERR @ at, data), rtol=0, atol=5.1e-6)  # prints five digits


# ---- the report ----------------------------------------------------------------------------------------------

MIXED = ([3, 2, 1, 2, 1, 1], ([0, 1, 0, 0, 0, 1], [0, 3, 5, 6, 6]))  # two of four queries without a relevant one


@pytest.mark.parametrize(("empty", "mean"), [("skip", 0.75), ("zero", 0.375), ("one", 0.875)])
def test_empty_queries(empty, mean):
    report = measure_ranking(*MIXED, metrics=("mrr@10", "ndcg@10"), empty=empty)
    assert report.means["mrr@10"] == pytest.approx(mean)
    assert (report.queries, report.without_relevant, report.empty) == (4, 2, empty)
    assert report.skipped == dict.fromkeys(("mrr@10", "ndcg@10"), 2 if empty == "skip" else 0)


@pytest.mark.parametrize("name", ALL_METRICS)
@pytest.mark.parametrize(("empty", "value"), [("zero", 0.0), ("one", 1.0)])
def test_every_metric_has_the_same_convention(name, empty, value):
    values = measure_ranking(*MIXED, metrics=(name,), empty=empty).per_query[name]
    np.testing.assert_array_equal(values[[1, 3]], value)
    assert np.isnan(measure_ranking(*MIXED, metrics=(name,)).per_query[name][[1, 3]]).all()


def test_report_equals_the_single_functions_and_takes_lists():
    scores, labels, offsets = ragged(7)
    lists = Lists(np.zeros((len(labels), 1), np.float32), offsets, labels, np.arange(len(offsets) - 1))
    report = measure_ranking(scores, lists)
    assert tuple(report.per_query) == DEFAULT_METRICS
    same = measure_ranking(scores, (labels, offsets))
    for name, values in report.per_query.items():
        np.testing.assert_array_equal(values, same.per_query[name])
    np.testing.assert_array_equal(report.per_query["ndcg@5"], ndcg_metric(scores, labels, offsets=offsets, at=5))
    np.testing.assert_array_equal(report.per_query["err@10"], err_metric(scores, labels, offsets=offsets))
    assert report.means["map"] == pytest.approx(np.nanmean(map_metric(scores, labels, offsets=offsets)))


def test_report_is_ready_for_json():
    report = measure_ranking(*MIXED, metrics=("mrr@10",))
    text = json.dumps(report.to_dict(per_query=True), allow_nan=False)
    assert json.loads(text)["per_query"] == {"mrr@10": [0.5, None, 1.0, None]}
    assert "per_query" not in report.to_dict()


@pytest.mark.parametrize("data", [([], ([], [0])), ([], ([], [0, 0, 0])), ([1.0], ([0], [0, 1]))])
def test_nothing_to_measure_gives_nan_and_no_warning(data):
    report = measure_ranking(*data, metrics=ALL_METRICS)
    assert all(math.isnan(mean) for mean in report.means.values())
    assert report.without_relevant == report.queries == len(data[1][1]) - 1
    json.dumps(report.to_dict(per_query=True), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndgc@10", "metric=: unknown name 'ndgc'. Did you mean ndcg\\?"),
        ("NDCG@10", "metric=: unknown name 'NDCG'"),
        ("ndcg@", "whole number"),
        ("ndcg@0", "whole number"),
        ("ndcg@1.5", "whole number"),
        ("ndcg@ 3", "whole number"),
        ("ndcg@3@5", "whole number"),
        ("precision", "needs a cut-off, such as precision@10"),
        ("arp@10", "takes no cut-off"),
        ("", "metric=: unknown name ''"),
    ],
)
def test_metric_names_are_strict(name, message):
    with pytest.raises(ConfigError, match=message):
        measure_ranking(*MIXED, metrics=(name,))


def test_one_metric_may_be_a_plain_string():
    assert list(measure_ranking(*MIXED, metrics="map").means) == ["map"]


@pytest.mark.parametrize(
    "options", [{"empty": "drop"}, {"gain": "exp"}, {"relevant_from": 0}, {"slots": 2, "metrics": ("arp_legacy",)}]
)
def test_wrong_options(options):
    with pytest.raises(ConfigError):
        measure_ranking(*MIXED, **options)


def test_a_metric_takes_no_option_of_another():
    with pytest.raises(TypeError, match="arp_metric\\(\\) takes no at, gain"):
        arp_metric([1], [1], offsets=[0, 1], gain="linear", at=3)


@pytest.mark.parametrize("at", [0, -1, 2.5, "3"])
def test_wrong_cutoff(at):
    with pytest.raises(ConfigError, match="whole number from 1"):
        ndcg_metric([1], [1], offsets=[0, 1], at=at)


@pytest.mark.parametrize(
    ("scores", "labels", "offsets", "message"),
    [
        ([1, math.nan], [0, 1], [0, 2], "score is not a number in 1 of 2 documents, the first at index 1"),
        ([1, 2], [0, -1], [0, 2], "label is negative"),
        ([1, 2], [0, math.nan], [0, 2], "label is negative or not a finite number"),
        ([1, 2, 3], [0, 1], [0, 2], "same length"),
        ([[1, 2]], [[0, 1]], [0, 1], "flat"),
        ([1, 2], [0, 1], [0, 1], "offsets must rise from 0 to the number of documents, 2"),
        ([1, 2], [0, 1], [0, 3, 2], "offsets"),
        ([1, 2], [0, 1], [1, 2], "offsets"),
        ([1, 2], [0, 1], [], "offsets"),
        ([1, 2], [0, 1], [0.0, 2.0], "offsets"),
        ([1, 2], [0, 2000], [0, 2], 'gain="linear"'),
    ],
)
def test_wrong_data(scores, labels, offsets, message):
    with pytest.raises(DataError, match=message):
        ndcg_metric(scores, labels, offsets=offsets)


def test_infinite_scores_and_integer_types_rank():
    ranked = rank_lists([-np.inf, 0.0, np.inf], [1, 2, 3], offsets=[0, 3])
    np.testing.assert_array_equal(ranked.labels, [3, 2, 1])
    ranked = rank_lists(
        np.array([0, 2, 1], np.uint8), np.array([1, 2, 3], np.int16), offsets=np.array([0, 3], np.uint32)
    )
    np.testing.assert_array_equal(ranked.labels, [2, 3, 1])


def test_inputs_are_left_alone():
    scores, labels, offsets = ragged(8)
    copies = scores.copy(), labels.copy(), offsets.copy()
    measure_ranking(scores, (labels, offsets), metrics=ALL_METRICS)
    for now, before in zip((scores, labels, offsets), copies, strict=True):
        np.testing.assert_array_equal(now, before)


# ---- properties ----------------------------------------------------------------------------------------------


@st.composite
def distinct_lists(draw):
    """Ragged lists with distinct scores (whole numbers, so adding a constant is exact)."""
    sizes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=6))
    documents = sum(sizes)
    scores = draw(st.lists(st.integers(-999, 999), min_size=documents, max_size=documents, unique=True))
    labels = draw(st.lists(st.integers(0, 4), min_size=documents, max_size=documents))
    return np.array(scores, float), np.array(labels, int), np.concatenate([[0], np.cumsum(sizes)]).astype(int)


def assert_same(one, two, **tolerance):
    for name, values in one.per_query.items():
        np.testing.assert_allclose(values, two.per_query[name], err_msg=name, **tolerance)


@given(distinct_lists(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_order_of_documents_never_matters(data, seed):
    scores, labels, offsets = data
    query = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    shuffled = np.lexsort((np.random.default_rng(seed).random(len(scores)), query))
    before = measure_ranking(scores, (labels, offsets), ALL_METRICS)
    after = measure_ranking(scores[shuffled], (labels[shuffled], offsets), ALL_METRICS)
    assert_same(before, after, rtol=0, atol=0)


@given(distinct_lists(), st.integers(-10_000, 10_000))
@settings(deadline=None, max_examples=60)
def test_adding_a_constant_never_matters(data, constant):
    scores, labels, offsets = data
    before = measure_ranking(scores, (labels, offsets), ALL_METRICS)
    assert_same(before, measure_ranking(scores + constant, (labels, offsets), ALL_METRICS), rtol=0, atol=0)


@given(distinct_lists())
@settings(deadline=None, max_examples=60)
def test_bounds(data):
    scores, labels, offsets = data
    report = measure_ranking(scores, (labels, offsets), ALL_METRICS)
    sizes = np.diff(offsets)
    for name, values in report.per_query.items():
        kept = ~np.isnan(values)
        assert (values[kept] >= 0).all()
        if name.startswith(("ndcg", "err", "mrr", "map", "precision")):
            assert (values[kept] <= 1 + 1e-12).all(), name
        if name == "arp":
            assert (values[kept] >= 1).all()
            assert (values[kept] <= sizes[kept]).all()


@given(distinct_lists())
@settings(deadline=None, max_examples=60)
def test_the_perfect_order_is_the_best(data):
    scores, labels, offsets = data
    perfect = measure_ranking(labels, (labels, offsets), ALL_METRICS)
    given_order = measure_ranking(scores, (labels, offsets), ALL_METRICS)
    for name, values in perfect.per_query.items():
        kept = ~np.isnan(values)
        if name.startswith("ndcg"):
            np.testing.assert_array_equal(values[kept], 1)
        better = -1 if name.startswith("arp") else 1
        assert (better * values[kept] >= better * given_order.per_query[name][kept] - 1e-12).all(), name


@given(distinct_lists())
@settings(deadline=None, max_examples=40)
def test_one_query_at_a_time_gives_the_same(data):
    scores, labels, offsets = data
    together = measure_ranking(scores, (labels, offsets), ALL_METRICS, slots=8)
    for q, (a, b) in enumerate(itertools.pairwise(offsets)):
        alone = measure_ranking(scores[a:b], (labels[a:b], [0, b - a]), ALL_METRICS, slots=8)
        for name, values in alone.per_query.items():
            np.testing.assert_allclose(values[0], together.per_query[name][q], rtol=1e-12, err_msg=name)


def calls_of(queries):
    """How many functions measuring so many queries calls."""
    rng, calls = np.random.default_rng(0), [0]
    offsets = np.arange(queries + 1) * 24
    scores, labels = rng.random(offsets[-1]), rng.integers(0, 5, offsets[-1])

    def count(_frame, _event, _argument):
        calls[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        measure_ranking(scores, (labels, offsets))
    finally:
        sys.setprofile(before)
    return calls[0]


def test_many_queries_are_measured_at_once():
    """No loop over queries: a thousand take as many calls as ten."""
    calls_of(10)  # what is done once
    assert calls_of(1000) < calls_of(10) + 100
