"""Serving under chaos: some events of `reproductions/experiments/serving_chaos.py`, on a real server and Redis."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("redis")
pytest.importorskip("httpx")

PLAN = ("copy", "redis_killed", "link", "broken", "both", "full", "redis_emptied", "save")
"""Each replaces, kills, fills or breaks something; between them workers die, too."""


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "reproductions" / "experiments"))
    yield importlib.import_module("serving_chaos")
    for name in ("chaos", "checks", "clients", "world"):
        sys.modules.pop(f"serving_{name}", None)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_no_wrong_answer_and_no_lost_update(chaos: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("BACK", "PAST"):  # times of a busy machine decide nothing
        monkeypatch.setattr(sys.modules["serving_checks"], limit, 1e9)
    found = chaos.run(tmp_path / "all", 1e9, "redis", seed=7, clients=2, pause=0.05, plan=PLAN, kinds=2)
    assert found["wrong, the first"] == []
    assert found["left over"] == []
    assert {name for name, count in found["events"].items() if count} == {*PLAN}
    assert min(found["updates"].values()) >= 1
    assert sum(count for kind, count in found["answers"].items() if kind.endswith(" 200")) > 20
    assert found["pages acknowledged"] > 20
    assert found["clicks acknowledged"] > 0


def test_wrong_answers_would_be_seen(chaos: Any) -> None:
    """The checks themselves: a score of another model, an old model, an error without cause, no ranking."""
    checks, clients, world = (
        importlib.import_module(f"serving_{each}") for each in ("checks", "clients", "world")
    )
    scores = {"plain": np.array([[[[1.0, 2.0]]] * 2, [[[3.0, 4.0]]] * 2])}  # model, table, window, pair
    pairs, versions = {("q", "a"): 0, ("q", "b"): 1}, {"plain": {"old": 0, "new": 1}}
    known = world.World(Path(), 1, {"q": ["a", "b"]}, [], versions, scores, pairs)
    history = checks.History()
    history.updates["plain"] += [checks.Update(0.0, 0.0, "old"), checks.Update(9.0, 10.0, "new")]

    def found(version: str, values: dict[str, float], began: float, status: int = 200) -> Any:
        ranking = [{"id": one, "score": score, "rank": at + 1} for at, (one, score) in enumerate(values.items())]
        asked = clients.Asked("plain", "q", ["a", "b"], own=True, page="p")
        answer = {"model": "plain", "version": version, "request_id": "p", "ranking": ranking, "logged": True}
        answers = [answer] if status == 200 else []
        record = clients.Record("plain", [asked], began=began, ended=began + 0.1, status=status, answers=answers)
        return checks.check(known, history, [record])

    old, new = {"b": 2.0, "a": 1.0}, {"b": 4.0, "a": 3.0}
    assert found("old", old, 8.0).wrong == found("new", new, 10.5).wrong == found("new", new, 9.5).wrong == []
    assert "has 3.0, not 1.0" in found("old", {"b": 2.0, "a": 3.0}, 8.0).wrong[0]
    assert "did not hold yet" in found("new", new, 8.0).wrong[0]
    assert "not a ranking" in found("old", dict(reversed(old.items())), 8.0).wrong[0]
    assert not found("old", old, 10.5).late["plain"]
    assert found("old", old, 11.5).late["plain"] == 1
    assert "503 without cause" in found("old", old, 8.0, 503).wrong[0]
    assert "connection broke" in found("old", old, 8.0, 0).wrong[0]
    history.troubles.append(checks.Trouble("kill", 8.05, 8.06))
    assert found("old", old, 8.0, 0).wrong == []
