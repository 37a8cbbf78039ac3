"""Who may ask, and what asking may do: tokens, foreign pages, files, logs and memory, on a server of loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from hostile import GOOD, Answer, Client, Server, make_run, post, running, small

from unskew.serving.service.impressions import ImpressionLog
from unskew.serving.settings import Limits
from unskew.terminal.runs import _warn_of_others

pytestmark = pytest.mark.filterwarnings("ignore:.*missing where training")
BODY = json.dumps(GOOD).encode()
TOKEN = "a-tökén-of-many-letters"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("security") / "run")


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    """One that anybody on this machine may ask."""
    with running(run, limits=Limits()) as found:
        yield found


@pytest.fixture(scope="module")
def locked(run: Path) -> Iterator[Server]:
    """One that asks for a token."""
    with running(run, token=TOKEN) as found:
        yield found


def get(server: Server, path: str, *lines: bytes, host: bytes = b"localhost") -> Answer:
    head = [b"GET " + path.encode() + b" HTTP/1.1", b"host: " + host, *lines]
    return server.ask(b"\r\n".join(head) + b"\r\n\r\n")


def bearer(token: str, kind: str = "Bearer") -> bytes:
    return f"authorization: {kind} {token}".encode()


PASSES = [bearer(TOKEN), bearer(TOKEN, "bearer"), bearer(TOKEN, "BEARER"), bearer(f"  {TOKEN} ")]
FAILS = {
    "none": [],
    "empty": [b"authorization:"],
    "no token": [b"authorization: Bearer"],
    "no kind": [b"authorization: " + TOKEN.encode()],
    "another kind": [bearer(TOKEN, "Basic")],
    "a part": [bearer(TOKEN[:-1])],
    "more": [bearer(TOKEN + "x")],
    "in another encoding": [f"authorization: Bearer {TOKEN}".encode("latin-1")],
    "10 kB": [bearer("x" * 10_000)],
    "two": [bearer(TOKEN), bearer(TOKEN)],
    "two, one wrong": [bearer("wrong"), bearer(TOKEN)],
    "not text": [b"authorization: Bearer \xff\xfe\x80"],
    "another header": [f"x-authorization: Bearer {TOKEN}".encode()],
}


@pytest.mark.parametrize("line", PASSES)
def test_the_token_opens(line: bytes, locked: Server) -> None:
    assert get(locked, "/v1/models", line).status == 200
    assert locked.ask(post(BODY, line)).status == 200


@pytest.mark.parametrize("name", FAILS)
def test_anything_else_does_not(name: str, locked: Server) -> None:
    for path in ("/v1/models", "/metrics", "/nothing", "/docs", "//v1/models", "/v1/../v1/models", "/v1/models/"):
        answer = get(locked, path, *FAILS[name])
        assert answer.status == 401, path
        assert b"www-authenticate: bearer" in answer.head
        assert "token" in answer.json["error"]
    for path in (b"/v1/rank", b"/v1/rank/batch", b"/v1/clicks"):
        assert locked.ask(post(BODY, *FAILS[name], path=path)).status == 401


def test_what_tells_nothing_is_open(locked: Server) -> None:
    assert [get(locked, path).status for path in ("/", "/healthz", "/readyz", "/openapi.json")] == [200] * 4


def test_tokens_are_compared_as_digests_in_constant_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr("hmac.compare_digest", lambda one, other: seen.append((one, other)) or one == other)
    with running(run, token=TOKEN) as server:
        assert get(server, "/v1/models", bearer("short")).status == 401
        assert get(server, "/v1/models", bearer(TOKEN)).status == 200
    assert [len(each) for pair in seen for each in pair] == [32] * 4


FOREIGN = [
    b"evil.example",
    b"evil.example:8000",
    b"localhost.evil.example",
    b"127.0.0.1.evil.example",
    b"",
]


@pytest.mark.parametrize("host", FOREIGN)
def test_another_site_cannot_take_its_name(host: bytes, server: Server) -> None:
    for path in ("/", "/v1/models", "/metrics"):
        answer = get(server, path, host=host)
        assert answer.status == 421
        assert "localhost" in answer.json["error"]
    assert get(server, "/healthz", host=host).status == 200


def test_names_of_this_machine_are_its_own(server: Server, locked: Server) -> None:
    for host in (b"localhost", b"LOCALHOST:99", b"127.0.0.1:8000", b"[::1]:8000", b"192.168.1.7"):
        assert get(server, "/v1/models", host=host).status == 200
    assert get(locked, "/v1/models", bearer(TOKEN), host=b"search.example").status == 200
    assert get(server, "/v1/models", b"host: evil.example").status == 421


@pytest.mark.parametrize("kind", [b"text/plain", b"application/x-www-form-urlencoded", b""])
def test_a_browser_sends_nothing_from_another_site(kind: bytes, server: Server) -> None:
    """Bodies of these kinds are sent without asking first; those of JSON are not, and asking is refused."""
    sent = post(BODY, b"origin: http://evil.example").replace(b"application/json", kind)
    answer = server.ask(sent)
    assert answer.status == 415
    asked = b"OPTIONS /v1/rank HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n"
    asked += b"access-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n\r\n"
    first = server.ask(asked)
    assert first.status == 405
    assert b"access-control" not in answer.head + first.head


def test_every_answer_has_the_headers(server: Server) -> None:
    answers = [get(server, path) for path in ("/", "/v1/models", "/nothing")] + [server.ask(post(b"{"))]
    for answer in answers:
        for line in (b"x-content-type-options: nosniff", b"x-frame-options: deny", b"cache-control: no-store"):
            assert line in answer.head
        assert b"server:" not in answer.head
    policy = answers[0].head.partition(b"content-security-policy: ")[2].partition(b"\r\n")[0].decode()
    assert "unsafe" not in policy
    assert {"default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'"} <= set(policy.split("; "))


PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "..\\..\\x",
    "a\x00b",
    "a\nb",
    "%2e%2e%2f",
    "~/.ssh/id_rsa",
    "\u202e\x1b[2J",
]


def test_no_word_of_a_request_becomes_a_file(run: Path, tmp_path: Path) -> None:
    """Nor a line of a log."""
    log = tmp_path / "log"
    pages = ImpressionLog(log)
    before = sorted(str(each) for each in run.parent.rglob("*"))
    with running(run, impressions=pages) as server:
        for word in PATHS:
            asked = GOOD | {"query": word, "request_id": word, "user": word}
            asked["documents"] = [{"id": word, "features": {"price": 1, "brand": word}}]
            assert server.ask(post(json.dumps(asked).encode())).status == 200
            answer = server.ask(post(json.dumps(asked | {"model": word}).encode()))
            assert (answer.status, answer.json["where"]) == (404, "model")
            clicked = {"clicks": [{"request_id": word, "id": word}]}
            assert server.ask(post(json.dumps(clicked).encode(), path=b"/v1/clicks")).status == 202
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/static/../../x", "/.git"):
            assert get(server, path).status == 404
    (written,) = log.iterdir()
    assert written.name.startswith("events-")
    lines = [json.loads(line) for line in written.read_bytes().split(b"\n") if line]
    assert [line["query_id"] for line in lines if line["event"] == "impression"] == PATHS
    assert [line["doc_id"] for line in lines if line["event"] == "click"] == PATHS
    assert sorted(str(each) for each in run.parent.rglob("*")) == before


def test_a_request_writes_little_into_the_log(run: Path, tmp_path: Path) -> None:
    pages = ImpressionLog(tmp_path)
    documents = [{"id": str(at), "features": {"price": 1, "brand": None}} for at in range(1000)]
    asked: dict[str, Any] = {"query": "q" * 10_000, "documents": documents}
    with running(run, impressions=pages) as server:
        answer = server.ask(post(json.dumps(asked).encode()))
        assert (answer.status, "results" in answer.json["error"]) == (413, True)
        assert server.ask(post(json.dumps(asked | {"results": 10}).encode())).status == 200
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 200_000


def test_too_many_large_bodies_at_once_are_refused(run: Path) -> None:
    """Those that wait for their last byte are held; what is small goes on."""
    with running(run, limits=Limits(body=2**20, held=3 * 2**20)) as server:
        right = server.good()
        large = post(BODY + b" " * (2**20 - len(BODY)))
        guard = server.guard
        with ExitStack() as open_ones:
            waiting = [open_ones.enter_context(server.connect()).send(large[:-1]) for _ in range(3)]
            assert server.waits(lambda: guard.held == 3 * (2**20 - 1))
            refused = server.ask(large)
            assert (refused.status, "ask again" in refused.json["error"]) == (503, True)
            for each in waiting:
                assert each.send(large[-1:]).answer().json == right
        assert server.ask(large).json == right
        assert server.waits(lambda: guard.held == 0)


def test_an_answer_that_takes_too_long_is_a_503(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with running(run, limits=small()) as server:
        right = server.good()
        with monkeypatch.context() as patch:
            patch.setattr("unskew.serving.service.queue.Pace.is_short", lambda *_: False)
            patch.setattr("unskew.serving.service.answers.check_work", lambda *_, **__: go.wait(20))
            answer = server.ask(post(BODY))
            assert (answer.status, "too long" in answer.json["error"]) == (503, True)
            assert b"retry-after: 1" in answer.head
            go.set()
        assert server.waits(lambda: server.ask(post(BODY)).status == 200)
        assert server.good() == right
        assert server.guard.held == 0


def test_what_is_too_much_is_refused_before_it_is_read(run: Path) -> None:
    with running(run, limits=Limits(batch=5, numbers=8, reasons=4)) as server:
        documents = [{"id": str(at), "features": {"price": 1, "brand": None}} for at in range(5)]
        asked = {"query": "q", "documents": documents}
        for content, path, told in (
            ({"requests": [{"documents": [1] * 3}, {"documents": [2] * 3}]}, b"/v1/rank/batch", "6 documents"),
            ({"requests": [{"documents": [1] * 6, "table": {"ids": []}}]}, b"/v1/rank/batch", "6 documents"),
            ({"requests": [0] * 101}, b"/v1/rank/batch", "101 requests"),
            ({"clicks": [0] * 1001}, b"/v1/clicks", "1,001 clicks"),
            ({"documents": [0] * 1001}, b"/v1/rank", "1,001 documents"),
            (asked, b"/v1/rank", "10 features"),
            (asked | {"documents": documents[:3], "why": True}, b"/v1/rank", "6 features"),
        ):
            answer = server.ask(post(json.dumps(content).encode(), path=path))
            assert answer.status == 413, answer
            assert told in answer.json["error"]
        assert server.ask(post(json.dumps(asked | {"documents": documents[:4]}).encode())).status == 200


def started(run: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "unskew", "serve", str(run), "--port", "0", "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return process, json.loads(line)["address"]


def test_a_command_keeps_to_loopback_and_its_token_to_itself(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    process, address = started(run, "--token-file", str(file))
    port = int(address.rstrip("/").rpartition(":")[2])
    try:
        heard = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert [each for each in heard if each.endswith(f":{port:04X}")][:1] == [f"0100007F:{port:04X}"]
        with Client(port) as client:
            client.send(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + bearer(TOKEN) + b"\r\n\r\n")
            assert client.answer().status == 200
        for name in ("environ", "cmdline"):
            assert TOKEN.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    finally:
        process.terminate()
        said = "".join(process.communicate(timeout=30))
    assert TOKEN not in said
    assert "can be read by others" in said


def test_what_others_can_reach_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    told = {}
    for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::", "10.0.0.1", "search.example"):
        for token in (None, file):
            _warn_of_others(host, token)
            told[host, token is not None] = capsys.readouterr().err
    assert {host for host, text in told.items() if text} == {
        (host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "search.example")
    }
    assert "--token-file" in told["0.0.0.0", False]
    file.chmod(0o640)
    _warn_of_others("127.0.0.1", file)
    assert "chmod 600" in capsys.readouterr().err
