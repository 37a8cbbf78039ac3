"""Clients that are slow or many on purpose, over real sockets, with no proxy before the server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from hostile import GOOD, Server, make_run, post, running, small

from unskew.serving.service import connections

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


def test_chunks_of_more_than_a_body_may_have_are_refused(run: Path) -> None:
    head = post(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    with running(run, limits=small(body=2000, seconds=20.0)) as server, server.connect() as client:
        client.send(head + 3 * (b"3e8\r\n" + 1000 * b" " + b"\r\n"))  # and it may go on
        assert client.answer().status == 413


def test_a_late_body_may_still_end(server: Server) -> None:
    """A client that sends all before it reads keeps its connection."""
    with server.connect() as client:
        client.send(post(BODY[:1], path=b"/nothing")[:-1])
        assert client.answer().status == 404
        client.send(b"{" + post(BODY))
        assert client.answer().status == 200


def test_where_there_are_many_clients_the_next_is_told(run: Path, good: object) -> None:
    with running(run, limits=small(connections=3, seconds=20.0)) as server:
        idle = [server.connect() for _ in range(3)]
        assert server.waits(lambda: len(server.state.connections) == 3)
        assert server.ask(post(BODY)).status == 503
        for each in idle:
            each.close()
        assert server.waits(lambda: not server.state.connections)
        assert server.good() == good


def test_clients_that_say_nothing_shut_nobody_out(
    run: Path, good: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection takes a file, and a process has so many: who is idle makes room, who asks does not."""
    monkeypatch.setattr(connections, "most_connections", lambda: 6)
    with running(run, limits=small(seconds=20.0)) as server, server.connect() as asking:
        asking.send(post(BODY)[:-1])
        idle = [server.connect() for _ in range(30)]
        assert server.waits(lambda: len(server.state.connections) == 6)
        assert server.good() == good
        assert all(each.ended() for each in idle[:20])
        assert asking.send(BODY[-1:]).answer().status == 200
        for each in idle:
            each.close()


def test_connections_are_half_of_the_files_that_are_left() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from unskew.serving.service.connections import most_connections; print(most_connections())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 4 <= int(found.stdout) <= 20


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
    assert (answer.status, b"connection: close" in answer.head) == (400, True)
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
