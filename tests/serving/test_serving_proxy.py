"""The service behind nginx and Caddy, by the lines of docs/how_to/proxy.md: hostile clients are ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from hostile import GOOD, Client, Server, make_run, post, running

WHERE = f"{os.environ.get('PATH', '')}:/usr/sbin"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "proxy.md"
TOKEN = b"authorization: Bearer 0123456789abcdef"
BODY = json.dumps(GOOD).encode()
pytestmark = pytest.mark.filterwarnings("ignore:.*missing where training")


def lines_of(kind: str, behind: int) -> str:
    """The lines of the page for a proxy, before a service at a port."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(block).replace("127.0.0.1:8000", f"127.0.0.1:{behind}")


def nginx(folder: Path, port: int, behind: int) -> list[str]:
    """The words that start it at a port, with seconds that a test can wait for."""
    block = lines_of("nginx", behind).replace("listen 80;", f"listen 127.0.0.1:{port};")
    block = re.sub(
        r"(client_\w+_timeout|send_timeout|keepalive_timeout|lingering_time\w*) \d+s;", r"\1 1s;", block
    )
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi"))
    temporary += "".join(f"{name}_temp_path {folder}/{name};\n" for name in ("uwsgi", "scgi"))
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; pid {folder}/pid; error_log {folder}/errors;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{block}}}\n"
    )
    return ["-c", str(folder / "nginx.conf"), "-p", str(folder)]


def caddy(folder: Path, port: int, behind: int) -> list[str]:
    """The same of Caddy."""
    block = lines_of("caddy", behind).replace(
        "rank.example.com", f"http://127.0.0.1:{port}, http://localhost:{port}"
    )
    block = re.sub(r"(read_header|read_body|write|idle) \d+s", r"\1 1s", block)
    (folder / "Caddyfile").write_text(block.replace("{\n", "{\n    admin off\n", 1))
    return ["run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


PROXIES = {"nginx": nginx, "caddy": caddy}


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The port of a proxy, with the service behind it."""
    if (program := shutil.which(request.param, path=WHERE)) is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp("proxy")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(make_run(folder / "run"), token="0123456789abcdef") as server, (folder / "told").open("w") as out:
        words = PROXIES[request.param](folder, port, server.port)
        places = os.environ | {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
        process = subprocess.Popen([program, *words], stdout=out, stderr=out, env=places)
        front = Server(port, server.app, server.state)
        try:
            assert front.waits(lambda: process.poll() is None and heard(port)), (folder / "told").read_text()
            yield front
        finally:
            process.terminate()
            process.wait(20)


def heard(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def asked(proxy: Server) -> object:
    answer = proxy.ask(post(BODY, TOKEN))
    assert answer.status == 200, answer
    return answer.json


@pytest.fixture(scope="module")
def good(proxy: Server) -> object:
    return asked(proxy)


def takes_all(client: Client, parts: Sequence[bytes]) -> bool:
    """Whether a client that sends a part every 5 ms is heard to the end."""
    try:
        for part in parts:
            client.send(part)
            time.sleep(0.005)
    except ConnectionError:
        return False
    return True


def test_requests_and_refusals_pass(proxy: Server, good: object) -> None:
    assert proxy.ask(post(BODY)).status == 401
    assert proxy.ask(post(b"{", TOKEN)).status == 400
    with proxy.connect() as client:
        for _ in range(3):
            assert client.send(post(BODY, TOKEN)).answer().json == good


STARTS = {
    "nothing": b"",
    "no line": b"GE",
    "no end": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n",
    "after an answer": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /hea",
    "a body that does not come": post(BODY, TOKEN)[:-1],
}


@pytest.mark.parametrize("name", STARTS)
def test_a_request_that_does_not_end_is_ended(name: str, proxy: Server, good: object) -> None:
    with proxy.connect() as client:
        client.send(STARTS[name])
        if name == "after an answer":
            assert client.answer().status == 200
        assert asked(proxy) == good
        assert client.ended()


def test_a_head_byte_by_byte_has_no_more_time(proxy: Server) -> None:
    with proxy.connect() as client:
        head = b"GET / HTTP/1.1\r\na: b\r\n"
        assert not takes_all(client, [*(bytes([each]) for each in head), *[b"x"] * 2000])


LARGE = {
    "one header": b"GET / HTTP/1.1\r\na: " + b"x" * 100_000,
    "many headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
    "an address": b"GET /" + b"x" * 100_000,
    "a body": post(b"", b"content-length: 999999999", TOKEN).replace(b"content-length: 0\r\n", b""),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_too_large_is_refused(name: str, proxy: Server, good: object) -> None:
    with proxy.connect() as client, suppress(ConnectionError):  # closed while it was still sending
        assert client.send(LARGE[name]).answer().status in (400, 413, 414, 431)
    assert asked(proxy) == good


def test_what_follows_a_refused_request_is_not_read_for_ever(
    proxy: Server, request: pytest.FixtureRequest
) -> None:
    head = b"POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999\r\n\r\n"
    # which may let the service answer first, or end the connection without a word
    caddy = "caddy" in request.node.name
    with proxy.connect() as client:
        with suppress(*[ConnectionError] * caddy):
            assert client.send(head).answer().status in ((401, 413) if caddy else (413,))
        assert not takes_all(client, [b"x" * 100] * 2000)


def test_an_answer_that_nobody_takes_is_dropped(proxy: Server, good: object) -> None:
    """A client that asks on and on, and reads nothing."""
    features = {"price": 1, "brand": None}
    many = GOOD | {"documents": [{"id": f"{at:0500}", "features": features} for at in range(1000)]}
    with proxy.connect(buffer=4096) as client:
        client.socket.settimeout(30)
        with pytest.raises(ConnectionError):
            client.send(post(json.dumps(many).encode(), TOKEN) * 200)
    assert asked(proxy) == good


def test_idle_connections_reach_nobody(proxy: Server, good: object) -> None:
    idle = [proxy.connect() for _ in range(60)]
    assert len(proxy.state.connections) <= 32
    assert asked(proxy) == good
    assert all(each.ended() for each in idle)
    for each in idle:
        each.close()
