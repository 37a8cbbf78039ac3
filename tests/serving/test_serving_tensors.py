"""Requests as safetensors: what JSON would say, and that nothing hostile gets further than an error."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from starlette.testclient import TestClient
from test_serving_reading import NAMES, ROWS, matrix, scorer

from unskew.learning.methods import Context, Naive
from unskew.learning.rankers import Linear
from unskew.learning.scoring.model import build
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.features import read_candidates
from unskew.serving.requests.parsing import read_request, read_tensors
from unskew.serving.scoring.models import Models
from unskew.serving.service.answers import Answering
from unskew.serving.service.app import make_app
from unskew.serving.settings import Limits
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Array, Columns, Lists

IDS = [f"d{at}" for at in range(len(ROWS))]
FEATURES = matrix(ROWS)
LACKING = FEATURES.copy()
LACKING[1, 2] = np.nan


def body(features: Any = FEATURES, told: object = None, **more: Any) -> bytes:
    head = {"query": "q", "ids": IDS, "names": [*NAMES]} | more if told is None else told
    text = head if isinstance(head, str) else json.dumps(head)
    return bytes(save({"features": np.ascontiguousarray(features)}, metadata={"unskew": text}))


def raw(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def read(given: bytes, known: Any = None) -> Array:
    return read_candidates(known or scorer(), [read_tensors(given, Limits())], None)[0].features


def test_it_says_what_json_says() -> None:
    head = {"query": "q", "why": True, "results": 3}
    documents = [
        {"id": each, "features": dict(zip(NAMES, row, strict=True))}
        for each, row in zip(IDS, LACKING.tolist(), strict=True)
    ]
    documents[1]["features"]["n2"] = None  # type: ignore[index]
    asked = read_tensors(body(LACKING, **head), Limits())
    same = read_request({**head, "documents": documents})
    assert asked.ids == same.ids
    assert [getattr(asked.head, name) for name in head] == [getattr(same.head, name) for name in head]
    np.testing.assert_array_equal(read(body(LACKING)), LACKING)
    np.testing.assert_array_equal(read(body(LACKING)), read_candidates(scorer(), [same], None)[0].features)


def test_names_may_stand_in_any_order_among_others_or_be_left_out() -> None:
    np.testing.assert_array_equal(read(body(FEATURES[:, ::-1], names=[*NAMES[::-1]])), FEATURES)
    wider = np.concatenate([FEATURES[:, :1], FEATURES], axis=1)
    np.testing.assert_array_equal(read(body(wider, names=["other", *NAMES])), FEATURES)
    np.testing.assert_array_equal(read(body(names=[])), FEATURES)
    numbered = read(body(), scorer({"n4": ("x", "y")}))  # a category whose values are numbers
    assert numbered[:, 4].tolist() == [3.0, 0.0, 1.0, 2.0, 4.0]  # of "4.0", "14.0", ...: by their texts


HEADER = {"features": {"dtype": "F32", "shape": [1, 7], "data_offsets": [0, 28]}}
WRONG: dict[str, tuple[bytes, int, str | None, str]] = {
    "empty": (b"", 400, None, "not safetensors"),
    "json": (b'{"documents": []}', 400, None, "longer than the body"),
    "no json": (raw(b"x"), 400, None, "not JSON"),
    "deep": (raw(b"[" * 100_000), 400, None, "not JSON"),
    "no object": (raw([]), 400, None, "no JSON object"),
    "cut": (body()[:-1], 422, "features.shape", "139 bytes"),
    "longer": (body() + b"0", 422, "features.shape", "141 bytes"),
    "no tensor": (raw({}), 422, "features", "one tensor"),
    "another": (bytes(save({"x": FEATURES})), 422, "features", "one tensor"),
    "no request": (raw(HEADER, bytes(28)), 422, "__metadata__", "no text 'unskew'"),
    "offsets": (
        raw({"features": HEADER["features"] | {"data_offsets": [4, 32]}}, bytes(32)),
        422,
        "features.shape",
        "bytes",
    ),
    "huge": (raw({"features": HEADER["features"] | {"shape": [2**62, 2**62]}}), 422, "features.shape", "bytes"),
    "negative": (
        raw({"features": HEADER["features"] | {"shape": [-1, -7]}}, bytes(28)),
        422,
        "features.shape",
        "shape is",
    ),
    "doubles": (body(FEATURES.astype(np.float64)), 422, "features.dtype", "F32"),
    "three axes": (body(FEATURES[None]), 422, "features.shape", "documents, columns"),
    "infinite": (body(np.where(FEATURES == 25, np.inf, FEATURES)), 422, "features.2.5", "finite"),
    "not json": (body(told="{"), 400, None, "not JSON"),
    "key": (body(qurey="x"), 422, "qurey", "extra"),
    "ids": (body(ids=["a"]), 422, "ids", "1 ids, and 5 rows"),
    "names": (body(names=["a"]), 422, "names", "1 names, and 7 columns"),
    "twice": (body(names=["n0"] * 7), 422, "names.1", "two columns"),
    "lacks": (body(names=[*NAMES[:6], "n99"]), 422, "names", "missing features: n6"),
    "width": (body(FEATURES[:, :6], names=[]), 422, "features.0", "takes 7 features"),
    "rows": (
        body(np.zeros((1001, 7), np.float32), ids=[str(at) for at in range(1001)]),
        413,
        "ids",
        "1,000",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    given, status, where, told = WRONG[name]
    with pytest.raises(BadRequest, match=told) as caught:
        read(given)
    assert (caught.value.code, caught.value.where) == (status, where)


def test_damaged_bodies_are_read_or_refused() -> None:
    whole, drawn, refused = body(), random.Random(4), 0
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(drawn.choice((1, 1, 2, 8))):
            damaged[drawn.randrange(len(whole))] = drawn.choice((0, 1, 127, 128, 255, drawn.randrange(256)))
        try:
            assert read(bytes(damaged)).shape == (5, 7)
        except BadRequest:
            refused += 1
    assert 100 < refused < 500


def test_the_examples_of_the_docs_are_answered(tmp_path: Path) -> None:
    """The table as JSON, and the matrix by its own lines, which ask a server in this process."""
    columns, values = Columns(("price", "width")), np.array([[10.0, 3.0], [30.0, 5.0], [20.0, np.nan]], np.float32)
    lists = Lists(values, np.array([0, 3]), np.zeros(3, np.int16), np.array([1]), columns=columns)
    encoding = fit_encoding(lists)
    encoded = encoding.apply(lists)
    model = build(Naive(), Linear(), fit_scaler("standard", encoded), encoded.dim, Context(positions=5))
    model.card = replace(model.card, encoding=encoding)
    model.save(tmp_path / "run")
    text = (Path(__file__).resolve().parents[2] / "docs/how_to/serve.md").read_text(encoding="utf-8")
    part = text.partition("## Shorter requests")[2].partition("\n## ")[0]
    (shown,), (lines,) = (re.findall(rf"```{kind}\n(.*?)```", part, re.S) for kind in ("json", "python"))
    asked = json.loads(shown)
    asked["table"] |= {"names": ["price", "width"], "rows": [[19.9, 4.0], [25.0, None]]}
    with TestClient(
        make_app(Answering(Models.open({"main": tmp_path / "run"}))), base_url="http://localhost:8000"
    ) as client:
        found: dict[str, Any] = {}
        exec(lines.replace("import httpx\n", ""), {"httpx": client}, found)
        answers = [found["answer"], client.post("/v1/rank", json=asked)]
        refused = client.post("/v1/rank/batch", content=found["body"], headers=found["answer"].request.headers)
        types = client.get("/openapi.json").json()["paths"]["/v1/rank"]["post"]["requestBody"]["content"]
    one, other = (answer.json()["ranking"] for answer in answers)
    assert one == other
    expected = model.score({"price": [19.9, 25.0], "width": [4.0, None]})
    assert {each["id"]: each["score"] for each in one} == pytest.approx(
        dict(zip(("a7", "b2"), expected.tolist(), strict=True)), abs=1e-5
    )
    assert refused.status_code == 415
    assert "application/vnd.safetensors" in types
