"""Clients that are slow, large or many on purpose, over real sockets: each ends, others are answered meanwhile."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from hostile import GOOD, Client, Server, make_run, post, running, small

pytestmark = pytest.mark.filterwarnings("ignore:.*missing where training")
BODY = json.dumps(GOOD).encode()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("slow") / "run")


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    with running(run, limits=small()) as found:
        yield found


@pytest.fixture(scope="module")
def good(server: Server) -> object:
    return server.good()


STARTS = {
    "no line": b"GE",
    "no end": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n",
    "empty lines": b"\r\n\r\n",
    "after an answer": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea",
}


def takes_all(client: Client, parts: Sequence[bytes]) -> bool:
    """Whether a server hears a client to the end that sends a part every 5 ms."""
    try:
        for part in parts:
            client.send(part)
            time.sleep(0.005)
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("name", STARTS)
def test_a_head_that_does_not_end_is_refused(name: str, server: Server, good: object) -> None:
    with server.connect() as client:
        client.send(STARTS[name])
        if name == "after an answer":
            assert client.answer().status == 200
        assert server.good() == good
        answer = client.answer()
        assert (answer.status, b"connection: close" in answer.head) == (408, True)
        assert "0.3 s" in answer.json["error"]
        assert client.ended()


def test_a_head_byte_by_byte_has_no_more_time(server: Server) -> None:
    with server.connect() as client:
        head = b"GET / HTTP/1.1\r\na: b\r\n"
        assert not takes_all(client, [*(bytes([each]) for each in head), *[b"x"] * 2000])


def test_a_client_that_says_nothing_is_closed(server: Server) -> None:
    with server.connect() as client:
        assert client.file.read() == b""


def test_a_body_that_does_not_come_is_refused(server: Server, good: object) -> None:
    with server.connect() as client:
        client.send(post(BODY)[:-1])
        assert server.good() == good
        answer = client.answer()
        assert answer.status == 408
        assert "body" in answer.json["error"]
        assert client.ended()


def test_chunks_without_end_are_refused(server: Server) -> None:
    head = post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    with server.connect() as client:
        client.send(head + b"5\r\n[1,2,\r\n")
        assert client.answer().status == 408


LARGE = {
    "one header": b"GET / HTTP/1.1\r\na: " + b"x" * 10_000,
    "many headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
    "an address": b"GET /" + b"x" * 10_000,
    "empty lines": b"\r\n" * 5000,
    "a chunk's extension": post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    + b"1;"
    + b"x" * 600_000,
    "trailers": post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    + b"1\r\n1\r\n0\r\n"
    + b"a: b\r\n" * 2000,
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_head_is_refused(name: str, server: Server, good: object) -> None:
    answer = server.ask(LARGE[name])
    assert answer.status == 431
    assert "4,096 bytes" in answer.json["error"]
    assert server.good() == good


def test_what_follows_a_refused_request_is_not_read_for_ever(server: Server) -> None:
    head = b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n"
    with server.connect() as client:
        assert client.send(head).answer().status == 404
        assert not takes_all(client, [b"x" * 100] * 2000)


def test_a_late_body_may_still_end(server: Server) -> None:
    """A client that sends all before it reads keeps its connection."""
    with server.connect() as client:
        client.send(post(BODY[:1], path=b"/nothing")[:-1])
        assert client.answer().status == 404
        client.send(b"{" + post(BODY))
        assert client.answer().status == 200


def test_an_answer_that_nobody_takes_is_dropped(run: Path, good: object) -> None:
    """A client that asks on and on, and reads nothing."""
    features = {"price": 1, "brand": None}
    many = GOOD | {"documents": [{"id": f"{at:0500}", "features": features} for at in range(1000)]}
    with running(run, limits=small(seconds=20.0)) as server, server.connect(buffer=4096) as client:
        with pytest.raises(ConnectionError):
            client.send(post(json.dumps(many).encode()) * 40)
        assert server.good() == good
        assert server.waits(lambda: not server.state.connections and not server.state.tasks)


def test_idle_connections_give_way(server: Server, good: object) -> None:
    idle: list[Client] = []
    for _ in range(60):
        idle.append(server.connect())
    assert server.good() == good
    assert len(server.state.connections) <= 20
    for each in idle:
        each.close()


def test_connections_that_send_slowly_give_way(server: Server, good: object) -> None:
    slow = [server.connect().send(post(BODY)[:-1]) for _ in range(40)]
    assert server.good() == good
    for each in slow:
        each.close()


def test_where_all_are_answered_the_next_is_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(run, limits=small(connections=1, seconds=20.0)) as server:
        monkeypatch.setattr("unskew.serving.http.connections.Connection._answering", lambda _: True)
        with server.connect():
            assert server.waits(lambda: len(server.state.connections) == 1)
            answer = server.ask(b"")
            assert (answer.status, answer.json["error"]) == (503, "too many connections; ask again")


NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01",
    b"hello\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\n\r\n",
]
NOT_HTTP += [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
NOT_HTTP += [b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n"]
NOT_HTTP += [b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12"]
NOT_HTTP += [b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"]
NOT_HTTP += [b"CONNECT example.com:443 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\na\x00b: c\r\n\r\n"]


@pytest.mark.parametrize("content", NOT_HTTP)
def test_what_is_not_http_is_refused(content: bytes, server: Server, good: object) -> None:
    answer = server.ask(content)
    assert answer.status == 400
    assert answer.json["error"]
    assert server.good() == good


def test_requests_one_after_another_are_answered_in_their_order(server: Server, good: object) -> None:
    with server.connect() as client:
        client.send(post(BODY) + post(b"{") + post(BODY))
        assert [client.answer().status for _ in range(3)] == [200, 400, 200]
        client.send(
            b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        assert client.answer().status == 200


def test_a_client_that_goes_away_leaves_nothing(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    for content in (post(BODY)[:-1], post(BODY), b"GET"):
        with server.connect() as client:
            client.send(content)
            client.socket.shutdown(socket.SHUT_RDWR)
    assert server.waits(lambda: not server.state.connections and not server.state.tasks)
    assert not [each for each in caplog.records if each.exc_info]
