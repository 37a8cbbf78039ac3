"""A real server on loopback: what it answers and refuses, and that a new run takes over without a lost request."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from servers import TABLE, make, request, serving  # noqa: E402

from unskew.learning.rankers import MLP, Linear  # noqa: E402

TOKEN = "a-token-of-many-letters"


class Server:
    def __init__(self, client: Any, place: Path, model: Any, log: Path) -> None:
        self.client, self.place, self.model, self.log = client, place, model, log

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("serving")
    model = make(place / "shoes", 1, MLP(sizes=(4,)))
    make(place / "other", 2, Linear())
    (place / "token").write_text(TOKEN + "\n")
    words = place / "shoes", place / "other", "--name", "main", "--shadow", "other"
    with serving(place / "log", *words, "--token-file", place / "token") as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        yield Server(client, place, model, place / "log")


def test_the_order_is_that_of_the_model(server: Server) -> None:
    answer = server.client.post("/v1/rank", json=request(request_id="r1")).json()
    expected = server.model.score(TABLE)
    found = {one["id"]: one["score"] for one in answer["ranking"]}
    assert [found[f"d{at}"] for at in range(3)] == pytest.approx(expected.tolist(), abs=1e-5)
    assert [one["was"] - 1 for one in answer["ranking"]] == np.argsort(-expected, kind="stable").tolist()
    assert [one["rank"] for one in answer["ranking"]] == [1, 2, 3]
    assert (answer["request_id"], answer["model"]) == ("r1", "main")


def test_a_batch_is_its_requests(server: Server) -> None:
    asked = [request(request_id="a"), request(request_id="b", model="other", why=True), request(request_id="c")]
    asked[2]["documents"] = asked[2]["documents"][:1]
    together = server.client.post("/v1/rank/batch", json={"requests": asked}).json()["answers"]
    assert together == [server.client.post("/v1/rank", json=one).json() for one in asked]
    assert together[1]["reasons"] == "weight x input"
    one, other = (together[1]["ranking"][at] for at in (0, 1))
    parts = sum(one["why"].values()) - sum(other["why"].values())
    assert parts == pytest.approx(one["score"] - other["score"], abs=1e-4)


def changed(**more: Any) -> bytes:
    return json.dumps(request(**more)).encode()


def document(**more: Any) -> bytes:
    return changed(documents=[{"id": "a", "features": {"price": 1, "brand": "bolt"} | more}])


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "no json": (b"{", 400, "not JSON"),
    "nan": (document().replace(b'"price": 1', b'"price": NaN'), 400, "not JSON"),
    "deep": (b"[" * 100_000, 400, "not JSON"),
    "infinite": (document().replace(b'"price": 1', b'"price": 1e999'), 400, "infinity"),
    "too large": (document(price=1e300), 422, "documents.0.features.price"),
    "text": (document(price="cheap"), 422, "documents.0.features.price"),
    "list": (document(brand=["bolt"]), 422, "documents.0.features.brand"),
    "missing": (
        changed(documents=[{"id": "a", "features": {"pirce": 1, "brand": "x"}}]),
        422,
        "did you mean pirce",
    ),
    "by place": (changed(documents=[{"id": "a", "features": [1.0, 2.0]}]), 422, "category"),
    "no features": (changed(documents=[{"id": "a"}]), 422, "no store"),
    "twice": (changed(documents=request()["documents"][:1] * 2), 422, "documents.1.id"),
    "none": (changed(documents=[]), 422, "documents"),
    "unknown key": (changed(documnets=[]), 422, "documnets"),
    "unknown model": (changed(model="mian"), 404, "Did you mean main"),
    "many": (changed(documents=[{"id": str(at), "features": {}} for at in range(1001)]), 413, "1,000"),
    "long": (b" " * (17 * 2**20), 413, "bytes"),
    "no object": (b"[]", 422, "object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said(name: str, server: Server) -> None:
    body, status, told = REFUSED[name]
    answer = server.client.post("/v1/rank", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert told in json.dumps(answer.json())


def test_who_has_no_token_is_refused(server: Server) -> None:
    for given in ("", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
        for path in ("/v1/models", "/metrics"):
            answer = server.client.get(path, headers={"authorization": given})
            assert answer.status_code == 401
            assert "token" in answer.json()["error"]
    assert server.client.get("/healthz", headers={"authorization": ""}).json() == {"status": "ok"}


def test_a_form_of_another_site_is_refused(server: Server) -> None:
    answer = server.client.post("/v1/rank", content=changed(), headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert "access-control-allow-origin" not in answer.headers


def test_it_tells_of_itself(server: Server) -> None:
    models = server.client.get("/v1/models").json()
    assert [(one["name"], one["names"], one["shadow"]) for one in models] == [
        ("main", ["price", "brand"], False),
        ("other", ["price", "brand"], True),
    ]
    server.client.post("/v1/rank", json=request(request_id="told"))
    counts = server.client.get("/metrics").text
    assert 'unskew_requests_total{path="/v1/rank",status="200"}' in counts
    page = server.client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http://www.w3.org/2000/svg", "")  # a name, which nobody fetches
    schema = server.client.get("/openapi.json").json()
    asked = schema["paths"]["/v1/rank"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert asked["examples"][0]["documents"]
    assert server.client.get("/v1/nothing").status_code == 404
    (line,) = [
        line for line in server.lines() if any(each["request_id"] == "told" for each in line.get("shadows", ()))
    ]
    assert line["status"] == 200
    assert line["shadows"][0]["model"] == "other"
    assert TOKEN not in server.log.read_text()


def test_a_new_run_takes_over_without_a_lost_request(server: Server) -> None:
    old = server.client.get("/v1/models").json()[0]["version"]
    right: dict[str, list[float]] = {old: server.model.score(TABLE).tolist()}
    answers: list[Any] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(server.client.post("/v1/rank", json=request()))

    asking = threading.Thread(target=ask)
    asking.start()
    for seed in (7, 8):
        new = make(server.place / "shoes", seed, MLP(sizes=(4,)))
        for _ in range(200):
            found = httpx.get(
                server.client.base_url.join("/v1/models"), headers={"authorization": f"Bearer {TOKEN}"}, timeout=20
            ).json()[0]["version"]
            if found not in right:
                break
            time.sleep(0.05)
        right[found] = new.score(TABLE).tolist()
    done.set()
    asking.join()
    assert len(right) == 3
    for answer in answers:
        assert answer.status_code == 200
        scores = {one["id"]: one["score"] for one in answer.json()["ranking"]}
        assert [scores[f"d{at}"] for at in range(3)] == pytest.approx(right[answer.json()["version"]], abs=1e-5)
    shutil.copy(server.place / "other" / "weights.safetensors", server.place / "shoes" / "weights.safetensors")
    os.utime(server.place / "shoes" / "model.json")  # a damaged folder leaves the old model where it is
    time.sleep(1.5)
    told = server.client.get("/v1/models").json()[0]
    assert told["trouble"]
    assert told["version"] == found
    assert server.client.post("/v1/rank", json=request()).json()["version"] == found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{}/nothing"], "nothing"),
        (["{}/shoes", "--token-file", "{}/none"], "cannot be read"),
        (["{}/shoes", "{}/shoes"], "two models are called shoes"),
        (["{}/shoes", "--shadow", "x"], "--shadow: unknown name 'x'"),
    ],
)
def test_a_wrong_command_says_so(words: list[str], told: str, tmp_path: Path) -> None:
    make(tmp_path / "shoes", 1, Linear())
    code = (
        "import sys; from unskew.terminal.main import main; sys.argv = ['unskew', 'serve', *sys.argv[1:]]; main()"
    )
    command = [sys.executable, "-c", code, *(word.format(tmp_path) for word in words), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_python_serves_as_the_command_does(tmp_path: Path) -> None:
    make(tmp_path / "run", 0, Linear())
    code = f"import unskew; unskew.serve({str(tmp_path / 'run')!r}, names=['live'], port=0)"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert [model["name"] for model in httpx.get(f"{address}v1/models").json()] == ["live"]
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
