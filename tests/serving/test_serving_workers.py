"""Several server processes: counted together, started again, ended together; and a queue that is full."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from hostile import GOOD, app_of, make_run  # noqa: E402
from servers import make, request, started  # noqa: E402

from unskew.learning.rankers import Linear  # noqa: E402
from unskew.serving.requests.bodies import BadRequest  # noqa: E402
from unskew.serving.service.queue import ScoringQueue  # noqa: E402
from unskew.serving.settings import Limits  # noqa: E402
from unskew.serving.telemetry import Metrics  # noqa: E402


def children(pid: int) -> set[int]:
    """Worker processes of a server; the tracker of multiprocessing is none."""
    found = set()
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                stat, line = (each / "stat").read_text(), (each / "cmdline").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid and "spawn_main" in line:
                found.add(int(each.name))
    return found


def wait_for(what: Callable[[], object]) -> None:
    for _ in range(600):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def count(text: str, line: str) -> float:
    (found,) = re.findall(rf"^{re.escape(line)} (\S+)$", text, re.M) or ["0"]
    return float(found)


ASKED = 'unskew_requests_total{path="/v1/rank",status="200"}'


def test_workers_count_together_start_again_and_end_together(tmp_path: Path) -> None:
    make(tmp_path / "shoes", 1, Linear())
    words = tmp_path / "shoes", "--workers", "2", "--log", tmp_path / "served"
    with started(tmp_path / "log", *words) as (client, process):
        address = client.base_url

        def ask() -> int:
            with httpx.Client(base_url=address, timeout=20) as fresh:  # a connection of its own, to any worker
                return int(fresh.post("/v1/rank", json=request()).status_code)

        def models() -> float:
            return sum(float(each) for each in re.findall(r"^unskew_model\{.*\} (\S+)$", counts(), re.M))

        def counts() -> str:
            return str(httpx.get(address.join("/metrics"), timeout=20).text)

        wait_for(lambda: models() == 2)
        assert {ask() for _ in range(20)} == {200}
        assert {count(counts(), ASKED) for _ in range(6)} == {20.0}
        first = children(process.pid)
        assert len(first) == 2
        os.kill(min(first), signal.SIGKILL)
        wait_for(lambda: (tmp_path / "log").read_text().count("startup complete") == 3)
        assert len(children(process.pid)) == 2
        assert models() == 2  # the new one is counted and the dead one no more
        assert count(counts(), ASKED) == 20.0
        # a request that has begun is answered, though Ctrl-C comes meanwhile
        body = json.dumps(request()).encode()
        head = "POST /v1/rank HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}"
        with socket.create_connection((address.host, address.port), timeout=20) as begun:
            begun.sendall(head.encode() + b"\r\n\r\n" + body[:50])
            wait_for(lambda: count(counts(), "unskew_open_requests") >= 2)
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.3)
            begun.sendall(body[50:])
            assert begun.recv(100).startswith(b"HTTP/1.1 200")
        assert process.wait(20) == 0
    assert children(process.pid) == set()
    assert not list((tmp_path / "served").glob(".*"))
    lines = "".join(path.read_text() for path in (tmp_path / "served").iterdir()).splitlines()
    assert len({json.loads(line)["page_id"] for line in lines}) == 21
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_no_worker_outlives_its_parent(tmp_path: Path) -> None:
    make(tmp_path / "shoes", 1, Linear())
    with started(tmp_path / "log", tmp_path / "shoes", "--workers", "2") as (client, process):
        assert client.post("/v1/rank", json=request()).status_code == 200
        workers = children(process.pid)
        process.kill()
        wait_for(lambda: not any(Path(f"/proc/{each}").exists() for each in workers))


def test_a_full_queue_refuses_at_once_and_given_up_work_is_not_done() -> None:
    done: list[str] = []
    metrics, go, begun = Metrics(), threading.Event(), threading.Event()
    queue = ScoringQueue(Limits(at_once=1, waiting=1), metrics)

    def hold() -> str:
        begun.set()
        go.wait(20)
        return "held"

    async def all_of_it() -> None:
        first = asyncio.create_task(queue.run(hold))
        await asyncio.to_thread(begun.wait, 20)
        second = asyncio.create_task(queue.run(lambda: done.append("second")))
        await asyncio.sleep(0)
        assert count(metrics.text().decode(), "unskew_waiting_requests") == 1.0
        with pytest.raises(BadRequest, match="too busy: 1 requests wait") as told:
            await queue.run(lambda: done.append("third"))
        assert told.value.code == 503
        second.cancel()
        await asyncio.wait([second])
        fourth = asyncio.create_task(queue.run(lambda: done.append("fourth")))  # there is room again
        await asyncio.sleep(0)
        go.set()
        assert await first == "held"
        await fourth
        queue.close()
        with pytest.raises(BadRequest, match="ending"):
            await queue.run(lambda: None)

    asyncio.run(all_of_it())
    assert done == ["fourth"]
    assert count(metrics.text().decode(), "unskew_waiting_requests") == 0.0


@pytest.mark.filterwarnings("ignore:.*missing where training")
def test_a_server_that_is_behind_refuses_until_it_has_caught_up(tmp_path: Path) -> None:
    app = app_of(make_run(tmp_path / "run"), limits=Limits(behind=0.2))

    async def all_of_it() -> None:
        async with app.router.lifespan_context(app):
            asked = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
            assert (await asked.post("/v1/rank", json=GOOD)).status_code == 200
            time.sleep(0.5)  # the thread that reads and writes for all does something else
            await asyncio.sleep(0.01)
            refused = await asked.post("/v1/rank", json=GOOD)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "s behind; ask again" in refused.json()["error"]
            await asyncio.sleep(0.3)
            assert (await asked.post("/v1/rank", json=GOOD)).status_code == 200

    asyncio.run(all_of_it())
