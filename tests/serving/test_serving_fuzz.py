"""Requests that were bent: whatever is sent, the answer is JSON, never a 5xx, and the next good one is answered.

Longer, by hand: UNSKEW_FUZZ=20000 python -m pytest tests/serving/test_serving_fuzz.py
"""

from __future__ import annotations

import copy
import gzip
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from hostile import GOOD, Answer, InProcess, Server, app_of, make_run, post, running, small

from unskew.serving.requests.parsing import TENSORS
from unskew.serving.service.impressions import ImpressionLog

pytestmark = pytest.mark.filterwarnings("ignore:.*")
MANY = int(os.environ.get("UNSKEW_FUZZ", "0"))
FEW = settings(
    max_examples=MANY or 120,
    derandomize=not MANY,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
FORMS: dict[str, Any] = {
    "/v1/rank": GOOD | {"model": "main", "why": True, "results": 2, "user": "u"},
    "/v1/rank#table": {
        "query": "shoes",
        "table": {"ids": ["a", "b"], "names": ["price", "brand"], "rows": [[1.5, "bolt"], [None, "new"]]},
    },
    "/v1/rank/batch": {"requests": [GOOD, GOOD | {"request_id": "other"}]},
    "/v1/clicks": {"clicks": [{"request_id": "good", "id": "a", "dwell_time": 1.5}]},
}
RAW = [
    *("NaN", "-NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "-0", "00", "+1", ".5", "0x10", "1_0"),
    *('"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\x00"', '"\n"', "'a'", "nul", "True", "undefined", "", ","),
    *("9" * 400, "-" + "9" * 40, "0." + "1" * 10_000, "1e" + "9" * 400, "18446744073709551616"),
    *("[" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, "[" * 100_000 + "]" * 100_000),
    *(
        '{"a":1,"a":2}',
        '{"price":1,"price":"x","brand":null}',
        "[1,]",
        "{,}",
        '{"a"}',
        "/*c*/1",
        '"' + "x" * 20_000 + '"',
    ),
]
"""Text in the place of a value, some of it no JSON."""
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["", "a" * 513, "\x00", "a\nb", "../../etc/passwd", "main", "\U0010ffff"]),
    st.lists(st.none() | st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.none() | st.integers(), max_size=3),
)


def places(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Ways to every value of a tree."""
    under = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [at, *(place for name, value in under for place in places(value, (*at, name)))]


def bent(draw: st.DrawFn, form: Any) -> str:
    """A tree as JSON, with one or two values replaced, dropped, doubled or added."""
    tree: Any = {"root": copy.deepcopy(form)}
    raw: dict[str, str] = {}
    for turn in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(places(tree)[1:]))
        above = tree
        for name in place[:-1]:
            above = above[name]
        kind = draw(st.sampled_from(["value", "raw", "drop", "more"]))
        if kind == "raw":
            raw[f"@{turn}@"] = draw(st.sampled_from(RAW))
            above[place[-1]] = f"@{turn}@"
        elif kind == "drop" and len(place) > 1:
            del above[place[-1]]
        elif kind == "more" and isinstance(above, dict):
            above[draw(st.text(max_size=8))] = draw(VALUES)
        else:
            above[place[-1]] = draw(VALUES)
    text = json.dumps(tree.get("root"))
    for mark, instead in raw.items():
        text = text.replace(f'"{mark}"', instead)
    return text


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good body that was bent, then perhaps its bytes too."""
    path = draw(st.sampled_from(sorted(FORMS)))
    text = bent(draw, FORMS[path])
    return path.partition("#")[0], draw(st.sampled_from(BENT))(text.encode())


@st.composite
def tensors(draw: st.DrawFn) -> bytes:
    """The same of a body that is safetensors: its header, the request in that, its lengths and its numbers."""
    told: Any = {"query": "q", "ids": ["a", "b"], "names": ["price", "brand"]}
    text = bent(draw, told) if draw(st.booleans()) else json.dumps(told)
    tensor = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    header: Any = {"features": tensor, "__metadata__": {"unskew": text}}
    head = (bent(draw, header) if draw(st.booleans()) else json.dumps(header)).encode()
    length = len(head) + draw(st.sampled_from([0, 0, 0, 1, -1, 2**63]))
    numbers = draw(st.binary(min_size=16, max_size=16) | st.binary(max_size=20))
    return (length % 2**64).to_bytes(8, "little") + head + numbers


def same(body: bytes) -> bytes:
    return body


BENT = [
    *(same,) * 12,
    gzip.compress,
    lambda body: b"\xef\xbb\xbf" + body,
    lambda body: body.decode().encode("utf-16"),
    lambda body: body[: len(body) // 2],
    lambda body: body + b"\x00",
    lambda body: body + body,
    lambda body: body.replace(b"shoes", b"sho\xff\xfe"),
    lambda body: body.replace(b'"a"', b'"\xed\xa0\x80"'),
    lambda _: b"",
]


def assert_sound(answer: Answer, path: str, secret: str) -> None:
    """An answer that tells what it should, and no more."""
    assert answer.status < 500, answer
    assert b"content-type: application/json" in answer.head
    content = answer.json
    assert b"Traceback" not in answer.body
    assert secret not in answer.body.decode()
    if answer.status >= 400:
        assert set(content) == {"error", "where"}
        assert content["error"]
        assert len(answer.body) < 20_000
    elif path != "/v1/clicks":
        for each in content.get("answers", [content]):
            assert [one["rank"] for one in each["ranking"]] == list(range(1, len(each["ranking"]) + 1))
            assert len({one["id"] for one in each["ranking"]}) == len(each["ranking"])
            assert all(math.isfinite(one["score"]) for one in each["ranking"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("fuzz") / "run")


@pytest.fixture(scope="module")
def asked(run: Path) -> Iterator[InProcess]:
    with InProcess(app_of(run, ImpressionLog(run.parent / "log"))) as found:
        yield found


@FEW
@given(sent=bodies())
def test_bent_bodies(sent: tuple[str, bytes], asked: InProcess, run: Path) -> None:
    path, body = sent
    assert_sound(asked.ask(body, path), path, str(run))
    assert asked.good()["ranking"][0]["id"] == "c"


@FEW
@given(body=tensors())
def test_bent_tensors(body: bytes, asked: InProcess, run: Path) -> None:
    answer = asked.ask(body, headers=[(b"content-type", TENSORS.encode())])
    assert_sound(answer, "/v1/rank", str(run))


def test_a_type_too_deep_to_print(asked: InProcess) -> None:
    head = b'{"features": {"shape": [1, 1], "dtype": ' + b"[" * 1000 + b"]" * 1000 + b"}}"
    body = len(head).to_bytes(8, "little") + head
    answer = asked.ask(body, headers=[(b"content-type", TENSORS.encode())])
    assert (answer.status, answer.json["where"]) == (422, "features.dtype")


FOUND = [  # by longer runs
    b'{"query": "q", "table": null}',
    b'{"requests": [{"query": "q", "table": null}]}',
    b'{"documents": [{"id": "a", "features": {"price": ' + b"[" * 900 + b"]" * 900 + b', "brand": 1}}]}',
    b'{"table": {"ids": ["a"], "names": ["' + b'x", "'.join([b""] * 2) + b'x", "x"], "rows": [[1, 2, 3]]}}',
]


@pytest.mark.parametrize("body", FOUND)
def test_what_was_found_once(body: bytes, asked: InProcess, run: Path) -> None:
    path = "/v1/rank/batch" if b"requests" in body else "/v1/rank"
    answer = asked.ask(body, path)
    assert answer.status == 422
    assert_sound(answer, path, str(run))


HEADERS = st.sampled_from(
    [
        (b"content-type", b"application/json"),
        (b"content-type", b"application/json; charset=utf-16"),
        (b"content-type", b"APPLICATION/JSON;x"),
        (b"content-type", b"text/plain"),
        (b"content-type", b"\xff"),
        (b"content-length", b"99999999999999999999999999"),
        (b"content-length", b"-1"),
        (b"content-length", "٣".encode()),
        (b"content-encoding", b"gzip"),
        (b"x-request-id", b"a\nb"),
        (b"x-request-id", b"\xff" * 10_000),
        (b"authorization", b"\xff \x00"),
        (b"accept", b"text/html"),
        (b"origin", b"null"),
        (b"host", b"evil.example"),
        (b"transfer-encoding", b"chunked"),
    ]
)
WAYS = st.sampled_from(
    [
        *("/v1/rank", "/v1/rank/batch", "/v1/clicks", "/v1/models", "/nothing", "/../v1/rank", "/%2e%2e/v1/rank"),
        *("//v1/rank", "/v1/rank/", "/V1/RANK", "/v1/rank%00", "/v1/rank?x=1", "/\u202e", "/v1/rank%0d%0aa: b"),
        *("*", "/%ff", "/v1/%72ank", "/" + "a/" * 5000),
    ]
)
METHODS = st.sampled_from(["POST", "GET", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO", "post"])


@FEW
@example(headers=[], path="/v1/rank/", method="POST")
@given(headers=st.lists(HEADERS, max_size=4), path=WAYS, method=METHODS)
def test_bent_heads(
    headers: list[tuple[bytes, bytes]], path: str, method: str, asked: InProcess, run: Path
) -> None:
    form = FORMS.get(path, GOOD)
    answer = asked.ask(json.dumps(form).encode(), path, method, headers)
    if not (method == "GET" and path == "/v1/models"):
        assert_sound(answer, path, str(run))
    assert b"evil" not in answer.head
    assert b"a\nb" not in answer.head
    assert asked.good()["ranking"][0]["id"] == "c"


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    with running(run, limits=small(seconds=0.1)) as found:
        yield found


WHOLE = post(json.dumps(GOOD).encode(), b"accept: */*")
PIECES = [
    b"\r\n",
    b"\n",
    b"\x00",
    b"\xff",
    b" ",
    b":",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"chunked",
    b"content-length: 5\r\n",
]
PIECES += [b"transfer-encoding: chunked\r\n", b"GET / HTTP/1.1\r\n", b"HTTP/1.1", b"%00", b"\t", b"a" * 5000]


@settings(FEW, max_examples=min(MANY, 2000) or 30)
@given(data=st.data())
def test_bent_bytes_on_a_socket(data: st.DataObject, server: Server, run: Path) -> None:
    sent = WHOLE
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(sent)))
        stop = data.draw(st.integers(start, min(start + 20, len(sent))))
        sent = sent[:start] + data.draw(st.sampled_from(PIECES) | st.binary(max_size=5)) + sent[stop:]
    with server.connect() as client:
        client.send(sent)
        client.socket.settimeout(0.5)
        try:
            answer = client.answer()
        except (ConnectionError, TimeoutError):
            pass  # closed, since nothing was asked; or more of its head is waited for, which a proxy would end
        else:
            assert answer.status < 500
            assert b"<html" in answer.body or b"Invalid HTTP" in answer.body or json.loads(answer.body)
            assert str(run).encode() not in answer.body
    assert server.good()["ranking"][0]["id"] == "c"
