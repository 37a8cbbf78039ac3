"""Documents of a request as a matrix: names in any order, gaps, categories, and what the model does not take."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from unskew.learning.boosters import Forest
from unskew.learning.scoring.scorer import Card, TreeScorer
from unskew.serving.requests.bodies import BadRequest, BatchRequest, RankRequest
from unskew.serving.requests.features import read_candidates
from unskew.serving.requests.parsing import checked, read_batch, read_request
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Array, Columns, Lists

NAMES = tuple(f"n{at}" for at in range(7))
ROWS = [{name: float(10 * row + at) for at, name in enumerate(NAMES)} for row in range(5)]


def scorer(categories: dict[str, tuple[str, ...]] | None = None) -> TreeScorer:
    """What knows names, and scores nothing."""
    values = np.arange(14, dtype=np.float32).reshape(2, 7) % 2
    columns = Columns(NAMES, categories or {})
    lists = Lists(values, np.array([0, 2]), np.zeros(2, np.int16), np.array([1]), columns=columns)
    encoding = fit_encoding(lists)
    encoded = encoding.apply(lists)
    card = Card({"name": "naive"}, None, "standard", encoded.dim, 5, encoding=encoding)
    return TreeScorer(card, fit_scaler("standard", encoded), Forest("lightgbm", [], [], np.zeros(1), np.ones(1)))


def read(rows: list[Any], known: TreeScorer) -> Lists:
    documents = [{"id": str(at), "features": row} for at, row in enumerate(rows)]
    return read_candidates(known, [read_request({"documents": documents})], None)[0]


def matrix(rows: list[dict[str, Any]]) -> Array:
    """The numbers by the names, one after another."""
    plain = [[math.nan if row[name] is None else float(row[name]) for name in NAMES] for row in rows]
    return np.array(plain, np.float32)


def shuffled(row: dict[str, Any], seed: int, **more: Any) -> dict[str, Any]:
    items = [*(row | more).items()]
    random.Random(seed).shuffle(items)
    return dict(items)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [shuffled(row, 3) for row in ROWS],
        [shuffled(row, at) for at, row in enumerate(ROWS)],
        [shuffled(row, 3, other="text", more=[1]) for row in ROWS],
        [shuffled(row | {"n2": None}, 4) for row in ROWS],
        [shuffled(row | {"n2": True, "n3": 7}, 5, other=None) for row in ROWS],
    ],
)
def test_names_are_read_in_any_order(rows: list[dict[str, Any]]) -> None:
    np.testing.assert_array_equal(read(rows, scorer()).features, matrix(rows))


@pytest.mark.parametrize("seed", [None, 6])
def test_categories_are_indices_of_their_values(seed: int | None) -> None:
    brands = ["b", None, "a", "b", 3]
    rows = [row | {"n4": brand} for row, brand in zip(ROWS, brands, strict=True)]
    rows = rows if seed is None else [shuffled(row, seed) for row in rows]
    lists = read(rows, scorer({"n4": ("x", "y")}))
    assert lists.columns is not None
    values = lists.columns.categories["n4"]
    found = [None if math.isnan(code) else values[int(code)] for code in lists.features[:, 4]]
    assert found == ["b", None, "a", "b", "3"]
    others = [at for at in range(7) if at != 4]
    np.testing.assert_array_equal(lists.features[:, others], matrix(ROWS)[:, others])


@pytest.mark.parametrize("wrong", ["cheap", [1.0], {"a": 1}, 1e39, -1e300])
@pytest.mark.parametrize("seed", [None, 8])
def test_the_place_of_what_is_no_number_is_named(wrong: object, seed: int | None) -> None:
    rows: list[dict[str, Any]] = [dict(row) for row in ROWS]
    rows[3]["n5"], rows[4]["n1"] = wrong, wrong
    rows = rows if seed is None else [shuffled(row, seed) for row in rows]
    with pytest.raises(BadRequest) as caught:
        read(rows, scorer())
    assert caught.value.where == "documents.3.features.n5"


def test_one_that_lacks_a_name_is_found_among_many() -> None:
    rows: list[dict[str, Any]] = [dict(row) for row in ROWS]
    rows[2]["n99"] = rows[2].pop("n6")
    with pytest.raises(BadRequest, match="missing features: n6") as caught:
        read(rows, scorer())
    assert caught.value.where == "documents.2.features"


def test_names_and_places_do_not_mix() -> None:
    with pytest.raises(BadRequest, match="for all") as caught:
        read([ROWS[0], [1.0] * 7], scorer())
    assert caught.value.where == "documents.1.features"
    np.testing.assert_array_equal(read([[*row.values()] for row in ROWS], scorer()).features, matrix(ROWS))


def table(rows: list[Any], names: list[str] | None = None, **more: Any) -> dict[str, Any]:
    own = {"names": [*NAMES]} if names is None else {"names": names} if names else {}
    return {"table": {"ids": [str(at) for at in range(len(rows))], "rows": rows, **own} | more}


def test_a_table_is_what_its_documents_are() -> None:
    rows = [[*row.values()] for row in ROWS]
    backwards = [row[::-1] for row in rows]
    wider = [["text", *row] for row in rows]
    gaps = [[None, *row[1:]] for row in rows]
    for content, expected in (
        (table(rows), ROWS),
        (table(rows, []), ROWS),
        (table(backwards, [*NAMES[::-1]]), ROWS),
        (table(wider, ["other", *NAMES]), ROWS),
        (table(gaps), [row | {"n0": None} for row in ROWS]),
    ):
        found = read_candidates(scorer(), [read_request(content)], None)[0]
        np.testing.assert_array_equal(found.features, matrix(expected))


def test_a_table_has_categories() -> None:
    brands = ["b", None, "a", "b", True]
    rows = [[*(row | {"n4": brand}).values()] for row, brand in zip(ROWS, brands, strict=True)]
    known = scorer({"n4": ("x", "y")})
    found = read_candidates(known, [read_request(table(rows))], None)[0]
    same = read([dict(zip(NAMES, row, strict=True)) for row in rows], known)
    np.testing.assert_array_equal(found.features, same.features)
    assert found.columns == same.columns


@pytest.mark.parametrize(
    ("content", "place", "told"),
    [
        (table([[1.0] * 7, [1.0] * 6]), "table.rows.1", "6 values, and 7 columns"),
        (table([[1.0] * 6, [1.0] * 7], []), "table.rows.1", "7 values, and 6 columns"),
        (table([[1.0] * 7], ids=["a", "b"]), "table.rows", "2 ids, and 1 rows"),
        (table([[1.0] * 7], ["n0"] * 7), "table.names.1", "two columns"),
        (table([[1.0] * 6 + ["x"]]), "table.rows.0.n6", "not a number"),
        (table([[1.0] * 7], [*NAMES[:6], "n99"]), "table.names", "missing features: n6"),
        (table([[1.0] * 6], []), "table.rows.0", "takes 7 features"),
        (table([]), "table.ids", "at least 1"),
        (table([7.0]), "table.rows.0", "list"),
        (table([[1.0] * 7], ids=[5]), "table.ids.0", "string"),
        (table([[1.0] * 7], idz=["a"]), "table.idz", "extra"),
        (table([[1.0] * 7]) | {"documents": []}, "documents", "at least 1"),
        (table([[1.0] * 7]) | {"documents": [{"id": "a"}]}, None, "give documents, or a table"),
        ({"query": "q"}, None, "give documents, or a table"),
        (table([], ["n0"], ids=["a"]), "table.rows", "1 ids, and 0 rows"),
        (table([], [], ids=["a"]), "table.rows.0", "no store"),
    ],
)
def test_a_table_that_is_wrong_says_where(content: dict[str, Any], place: str | None, told: str) -> None:
    with pytest.raises(BadRequest, match=told) as caught:
        read_candidates(scorer(), [read_request(content)], None)
    assert caught.value.where == place


CHANGED: list[dict[str, Any]] = [
    {"query": 5},
    {"query": "q" * 10_001},
    {"model": ""},
    {"why": "yes"},
    {"why": 1},
    {"unknown": 1},
    {"results": 0},
    {"documents": {}},
    {"documents": [1]},
    {"documents": [{"id": 1, "features": {}}]},
    {"documents": [{"id": "", "features": {}}]},
    {"documents": [{"id": "a" * 513, "features": {}}]},
    {"documents": [{"id": "a", "features": "x"}]},
    {"documents": [{"id": "a", "feature": {}}]},
    {"documents": [{"id": "a", "features": {}, "more": 1}]},
]


@pytest.mark.parametrize("wrong", CHANGED)
def test_what_is_taken_by_hand_is_checked_as_well(wrong: dict[str, Any]) -> None:
    good = {"query": "q", "documents": [{"id": "a", "features": {}}]}
    for content, read_it, kind in (
        (good | wrong, read_request, RankRequest),
        ({"requests": [good, good | wrong]}, read_batch, BatchRequest),
    ):
        with pytest.raises(BadRequest) as found:
            read_it(content)
        with pytest.raises(BadRequest) as expected:
            checked(kind, content)
        assert (str(found.value), found.value.where) == (str(expected.value), expected.value.where)


def test_requests_of_a_batch_are_read_each_in_its_way() -> None:
    rows = [[*row.values()] for row in ROWS]
    named = {"documents": [{"id": "a", "features": ROWS[0]}]}
    asked = read_batch({"requests": [table(rows), named | {"query": "b"}]})
    assert [(each.head.query, len(each.ids), each.prefix) for each in asked] == [
        ("", 5, "requests.0."),
        ("b", 1, "requests.1."),
    ]
    lists, _ = read_candidates(scorer(), asked, None)
    np.testing.assert_array_equal(lists.features, matrix([*ROWS, ROWS[0]]))
    assert lists.offsets.tolist() == [0, 5, 6]
    with pytest.raises(BadRequest, match="at least 1"):
        read_batch({"requests": []})
