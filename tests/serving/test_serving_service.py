"""A server that looks features up, explores and logs: its log, as `ingest` reads it, is what it showed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from servers import make, request, serving

import unskew
from unskew.learning.rankers import Linear
from unskew.serving.settings import Limits
from unskew.serving.store import open_store


class Exploring:
    """A server of two models that are interleaved."""

    def __init__(self, client: Any, place: Path) -> None:
        self.client, self.place = client, place


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exploring]:
    place = tmp_path_factory.mktemp("exploring")
    make(place / "shoes", 1, Linear())
    make(place / "other", 2, Linear())
    items = pa.table({"doc_id": ["d0", "d1", "d2"], "price": [1.5, None, 7.0], "brand": ["bolt", "acme", None]})
    pq.write_table(items, place / "items.parquet")
    with open_store(place / "features") as store:
        store.put(items=[place / "items.parquet"])
    words = place / "shoes", place / "other", "--store", place / "features", "--log", place / "served"
    chance = "--explore", "team_draft", "--against", "other", "--tell-chances"
    with serving(place / "log", *words, *chance) as client:
        yield Exploring(client, place)


def test_ids_are_looked_up(server: Exploring) -> None:
    by_id = server.client.post("/v1/rank", json=request(documents=[{"id": "d0"}, {"id": "d2"}], model="other"))
    whole = request(model="other")["documents"]
    given = server.client.post("/v1/rank", json=request(documents=[whole[0], whole[2]], model="other"))
    assert by_id.json()["ranking"] == given.json()["ranking"]
    unknown = server.client.post("/v1/rank", json=request(documents=[{"id": "d9"}]))
    assert (unknown.status_code, unknown.json()["where"]) == (422, "documents.0.id")


def test_the_log_is_what_was_shown(server: Exploring) -> None:
    shown = {}
    for at in range(40):
        answer = server.client.post("/v1/rank", json=request(request_id=f"r{at}", results=2, user="u1")).json()
        assert answer["policy"] == "team_draft(first=shoes,second=other)"
        shown[f"r{at}"] = [one["id"] for one in answer["ranking"][:2]]
    assert len({tuple(ids) for ids in shown.values()}) > 1
    clicks = [{"request_id": page, "id": ids[1], "dwell_time": 2.5} for page, ids in shown.items()][:30]
    answer = server.client.post("/v1/clicks", json={"clicks": clicks})
    assert (answer.status_code, answer.json()) == (202, {"written": 30})
    lines = [
        json.loads(line)
        for path in (server.place / "served").glob(".events-*")
        for line in path.read_text().splitlines()
    ]
    pages: dict[str, list[str]] = {}
    for line in lines:
        if line["event"] == "impression" and line["page_id"] in shown:
            pages.setdefault(line["page_id"], []).append(line["doc_id"])
            assert (line["user_id"], line["query_id"]) == ("u1", "shoes")
            assert line["team"] in ("shoes", "other")
    assert pages == shown
    assert sum(line["event"] == "click" for line in lines) == 30


def test_a_wrong_click_is_refused(server: Exploring) -> None:
    for wrong in ({"clicks": []}, {"clicks": [{"request_id": "a"}]}, {"clicks": [{"request_id": "", "id": "b"}]}):
        assert server.client.post("/v1/clicks", json=wrong).status_code == 422
    late = {"clicks": [{"request_id": "a", "id": "b", "dwell_time": -1}]}
    answer = server.client.post("/v1/clicks", json=late)
    assert (answer.status_code, answer.json()["where"]) == (422, "clicks.0.dwell_time")


def test_the_end_closes_the_log_and_ingest_joins_its_clicks(tmp_path: Path) -> None:
    make(tmp_path / "shoes", 1, Linear())
    words = tmp_path / "shoes", "--log", tmp_path / "served", "--explore", "shuffle", "--share", "1"
    with serving(tmp_path / "log", *words) as client:
        for at in range(30):
            answer = client.post("/v1/rank", json=request(request_id=f"r{at}")).json()
            if at % 2:
                clicked = {"request_id": answer["request_id"], "id": answer["ranking"][0]["id"]}
                client.post("/v1/clicks", json={"clicks": [clicked]})
    assert not list((tmp_path / "served").glob(".*"))
    unskew.ingest(tmp_path / "served", tmp_path / "read")
    found = [row for path in (tmp_path / "read").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len(found) == 90
    assert {row["page_id"] for row in found if row["click"]} == {f"r{at}" for at in range(1, 30, 2)}
    assert {row["position"] for row in found if row["click"]} == {1}
    assert {round(row["propensity"], 6) for row in found} == {0.333333}
    assert all(row["randomized"] for row in found)


def test_nothing_large_is_imported_to_serve(server: Exploring) -> None:
    code = (
        "import sys; from unskew.terminal.main import main\n"
        "try: main()\nfinally: print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    place = server.place
    words = place / "shoes", "--store", place / "features", "--log", place / "checked", "--explore", "shuffle"
    command = [sys.executable, "-c", code, "serve", *map(str, words), "--check", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = set(ast.literal_eval(done.stdout))
    assert {"fastapi", "onnxruntime", "lmdb"} <= found
    assert not found & {"torch", "pandas", "ibis", "duckdb", "pyarrow", "scipy", "altair", "sklearn", "lightgbm"}


def test_the_docs_know_every_path_limit_count_and_option(server: Exploring) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/how_to/serve.md").read_text(encoding="utf-8")
    usual = {name: f"{field.default:,}" for name, field in Limits.model_fields.items()}
    assert dict(re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|", text, re.M)) == usual
    counts = {name.removesuffix("_total") for name in re.findall(r"^\| `(unskew_\w+)", text, re.M)}
    told = server.client.get("/metrics").text
    kinds = [name for name in re.findall(r"^# TYPE (\w+) ", told, re.M) if not name.endswith("_created")]
    assert counts == {name.removesuffix("_total") for name in kinds}
    paths = server.client.get("/v1/nothing").json()["error"].partition("there are ")[2].split(", ")
    assert {"/", "/metrics", "/openapi.json", "/v1/clicks"} <= {*paths}
    assert [path for path in paths if path not in text] == []
    schema = server.client.get("/openapi.json").json()
    codes = {code for each in schema["paths"].values() for method in each.values() for code in method["responses"]}
    assert {code for code in codes if int(code) >= 400} <= {*re.findall(r"^\| (\d{3}) \|", text, re.M)}
    head = text.partition("## ")[0]
    assert {flag for flag in flags() if flag not in head} == {"--help"}


def flags() -> set[str]:

    from unskew.terminal.main import made

    options = made("serve").params
    return {max(each.opts, key=len) for each in options if each.opts[0].startswith("-")} | {"--help"}
