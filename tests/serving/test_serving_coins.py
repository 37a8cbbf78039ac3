"""What callers can know of chance and do with it: keyed coins, chances in answers, signed ids of pages."""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from servers import make, request, serving
from starlette.testclient import TestClient

from unskew.errors import ConfigError
from unskew.learning.rankers import Linear
from unskew.options.runs import ServeArguments
from unskew.serving.explore import BoundedShuffle, TopOne
from unskew.serving.scoring.models import Models
from unskew.serving.service import answers
from unskew.serving.service.answers import Answering
from unskew.serving.service.app import make_app
from unskew.serving.service.impressions import ImpressionLog, is_signed
from unskew.serving.service.server import build_app, make_secret, plan_of, read_token
from unskew.serving.settings import ServeSettings

DRAWN = BoundedShuffle()
"""Every page is shuffled."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("coins") / "run"
    make(place, 1, Linear())
    return place


def client_of(run: Path, log: Path, policy: Any = DRAWN, **settings: Any) -> TestClient:
    here = Answering(Models.open({"run": run}), ServeSettings(**settings), None, policy, ImpressionLog(log))
    return TestClient(make_app(here), base_url="http://localhost")


def ask(client: TestClient, **more: Any) -> Any:
    return client.post("/v1/rank", json=request(**more))


def orders(client: TestClient, asked: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [tuple(each["id"] for each in ask(client, **one).json()["ranking"]) for one in asked]


def test_a_caller_cannot_choose_an_id_by_the_page_that_it_gives(run: Path, tmp_path: Path) -> None:
    with client_of(run, tmp_path / "log") as client:
        seen = ask(client, request_id="look").json()
        scores = {each["id"]: each["score"] for each in seen["ranking"]}
        ids = sorted(scores)
        best = sorted(range(3), key=lambda at: -scores[ids[at]])
        told = orders(client, [{"request_id": f"r{at}"} for at in range(60)])
    guessed = [DRAWN.rank(best, [scores[each] for each in ids], request_id=f"r{at}") for at in range(60)]
    hits = sum(page[0] == ids[each.order[0]] for page, each in zip(told, guessed, strict=True))
    assert hits < 40  # of three results, chance is right on 20 of 60; who knew the coins, on 60


def test_the_same_secret_shows_the_same_page_after_a_restart(run: Path, tmp_path: Path) -> None:
    asked = [{"request_id": f"r{at}"} for at in range(20)]
    found = []
    for log, secret in enumerate((b"one", b"one", b"two")):
        with client_of(run, tmp_path / str(log), secret=secret) as client:
            found.append(orders(client, asked))
    assert found[0] == found[1] != found[2]


def test_asking_again_changes_nothing_where_coins_fall_by_users(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        day = 1

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime(2026, 5, cls.day, 23, 59, tzinfo=tz)

    monkeypatch.setattr(answers, "datetime", Clock)
    users = [{"user": f"u{at}"} for at in range(20)]
    with client_of(run, tmp_path / "log", coins="user", secret=b"kept") as client:
        first = orders(client, users)
        assert orders(client, [one | {"request_id": f"r{at}"} for at, one in enumerate(users)]) == first
        assert orders(client, [one | {"query": "boots"} for one in users]) != first
        assert len(set(first)) > 1
        Clock.day = 2
        assert orders(client, users) != first
        refused = ask(client)
        assert (refused.status_code, refused.json()["where"]) == (422, "user")


def test_chances_are_in_the_log_and_in_answers_only_if_asked(run: Path, tmp_path: Path) -> None:
    told = []
    for tell in (False, True):
        with client_of(run, tmp_path / str(tell), TopOne(share=1.0), tell_chances=tell) as client:
            told.append(ask(client).text)
        (file,) = (tmp_path / str(tell)).glob("*.jsonl")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert (rows[0]["policy_id"], round(rows[0]["propensity"], 6)) == ("top_one", 0.333333)
    assert ["propensity" in text or "policy" in text for text in told] == [False, True]


def test_clicks_that_could_not_be_written_are_counted_as_lost(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = ImpressionLog.clicked

    def full(log: ImpressionLog, page_id: str, doc_id: str, **more: Any) -> None:
        if doc_id == "d1":
            raise OSError("no space left")
        written(log, page_id, doc_id, **more)

    monkeypatch.setattr(ImpressionLog, "clicked", full)
    with client_of(run, tmp_path / "log") as client:
        before = {done: clicks_counted(client, done) for done in ("yes", "no")}
        told = client.post("/v1/clicks", json={"clicks": [{"request_id": "r", "id": f"d{at}"} for at in range(4)]})
        assert (told.status_code, told.json()["error"]) == (
            503,
            "the log cannot be written; 1 of 4 clicks were",
        )
        after = {done: clicks_counted(client, done) for done in ("yes", "no")}
    assert (after["yes"] - before["yes"], after["no"] - before["no"]) == (1, 3)


def test_a_server_that_nobody_asks_any_more_hands_over_its_log(run: Path, tmp_path: Path) -> None:
    now = [1e9]
    log = ImpressionLog(tmp_path / "log", seconds=60.0, clock=lambda: now[0])
    here = Answering(Models.open({"run": run}), ServeSettings(poll=0.01), None, DRAWN, log)
    with TestClient(make_app(here), base_url="http://localhost") as client:
        ask(client)
        assert not [*(tmp_path / "log").glob("*.jsonl")]
        now[0] += 61
        until = time.monotonic() + 20
        while not [*(tmp_path / "log").glob("*.jsonl")] and time.monotonic() < until:
            time.sleep(0.01)
        assert [*(tmp_path / "log").glob("*.jsonl")]


def clicks_counted(client: TestClient, done: str) -> float:
    name = f'unskew_logged_total{{done="{done}",what="click"}} '
    found = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(found[0].removeprefix(name)) if found else 0.0


def test_an_id_that_a_request_may_not_have_is_not_sent_back(run: Path, tmp_path: Path) -> None:
    with client_of(run, tmp_path / "log") as client:
        for given, kept in (("mine-1", True), ("m" * 128, True), ("m" * 129, False), ("mine 1", False)):
            answer = client.get("/healthz", headers={"x-request-id": given})
            assert (answer.headers["x-request-id"] == given) == kept


def test_clicks_on_pages_never_shown_are_refused_at_the_door(run: Path, tmp_path: Path) -> None:
    with client_of(run, tmp_path / "log", signed_pages=True, secret=b"s" * 16) as client:
        page = ask(client, request_id="r1").json()["request_id"]
        assert page.startswith("r1.")
        wrong = ["r1", "r2", page.replace("r1", "r2"), page[:-1], f"{page}.", "." + page]

        def click(*pages: str) -> Any:
            return client.post("/v1/clicks", json={"clicks": [{"request_id": each, "id": "d0"} for each in pages]})

        assert click(page).json() == {"written": 1}
        assert click(page, *wrong).json() == {"written": 1, "refused": len(wrong)}
        refused = click(*wrong)
        assert (refused.status_code, refused.json()["where"]) == (422, "clicks.0.request_id")
        counts = client.get("/metrics").text
        assert f'unskew_logged_total{{done="refused",what="click"}} {2 * len(wrong)}.0' in counts
        assert 'unskew_logged_total{done="yes",what="click"} 2.0' in counts
        long = ask(client, request_id="x" * 512).json()["request_id"]
        assert click(long).json() == {"written": 1}
    (file,) = (tmp_path / "log").glob("*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["page_id"] for row in rows} == {page, long}
    assert is_signed(page, b"s" * 16)
    assert not is_signed(page, b"t" * 16)


def test_every_process_has_the_secret_and_nobody_else(run: Path, tmp_path: Path) -> None:
    words = run, "--log", tmp_path / "log", "--explore", "shuffle", "--share", 1, "--workers", 2
    with serving(tmp_path / "stderr", *words) as client:
        pages = set()
        for _ in range(30):
            with type(client)(
                base_url=client.base_url, timeout=60
            ) as other:  # a new connection may be another process's
                pages.add(orders(other, [{"request_id": "same"}])[0])
    assert len(pages) == 1


def test_a_secret_file_is_made_once_for_its_owner(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "secret"
    asked = ServeArguments(runs=(run,), log=tmp_path / "log", secret_file=place, signed_pages=True)
    plan = plan_of(asked)
    with TestClient(build_app(plan), base_url="http://localhost") as client:
        page = ask(client).json()["request_id"]
    first = read_token(place)
    assert (len(first) > 30, stat.S_IMODE(os.stat(place).st_mode)) == (True, 0o600)
    assert read_token(make_secret(place)) == first
    assert is_signed(page, first.encode())
    assert first not in plan.model_dump_json()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"signed_pages": True}, "signed_pages=.*goes with log="),
        ({"signed_pages": True, "log": "log"}, "signed_pages= needs secret_file= FILE"),
        ({"coins": "user"}, 'coins="user": is for explore='),
        ({"secret_file": "none/here/secret"}, "the token or secret cannot be read"),
    ],
)
def test_what_does_not_go_together_is_refused(
    given: dict[str, Any], told: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told):
        build_app(plan_of(ServeArguments(runs=(run,), **given)))
