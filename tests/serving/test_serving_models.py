"""Several models at once: shadows, two that are interleaved, reasons in the order that was explored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from servers import TABLE, make, request
from test_serving_answers import Pages

import unskew
from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import Linear
from unskew.learning.scoring.model import build
from unskew.serving.explore import TeamDraft
from unskew.serving.requests.parsing import read_request
from unskew.serving.scoring.models import Models
from unskew.serving.service.answers import Answering, Noted
from unskew.serving.settings import ServeSettings
from unskew.serving.telemetry import Metrics
from unskew.tables.lists.scaling import fit_scaler


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of the same features, and one of others."""
    folder = tmp_path_factory.mktemp("models")
    make(folder / "live", 1, Linear())
    make(folder / "new", 4, Linear())
    lists = unskew.make_lists(queries=5, features=7, documents=(3, 9), seed=1)
    strange = build(METHODS["naive"](), Linear(), fit_scaler("standard", lists), 7, Context(positions=5))
    strange.save(folder / "strange")
    return folder


def answers(place: Path, asked: list[dict[str, Any]], pages: Pages) -> tuple[list[Any], Noted]:
    models = Models.open({name: place / name for name in ("live", "new", "strange")})
    drafted = TeamDraft(first="live", second="new")
    here = Answering(
        models,
        ServeSettings(shadows=("new", "strange"), tell_chances=True, secret=b"3"),
        None,
        drafted,
        pages,
        "new",
    )
    found = here.answer([read_request(each) for each in asked], facts := Noted())
    return found, facts


def test_models_are_interleaved_shadowed_and_explained_together(place: Path) -> None:
    asked = [request(request_id=f"r{at}", why=True) for at in range(12)]
    asked += [request(request_id="own", model="new")]
    found, facts = answers(place, asked, pages := Pages())
    best = {name: np.argsort(-unskew.load(place / name).score(TABLE), kind="stable") for name in ("live", "new")}
    assert best["live"].tolist() != best["new"].tolist()
    orders = {tuple(one["was"] - 1 for one in each["ranking"]) for each in found[:12]}
    assert len(orders) > 1  # some pages begin with the one model's best, some with the other's
    for each in found[:12]:
        assert each["policy"] == "team_draft(first=live,second=new)"
        offsets = {round(one["score"] - sum(one["why"].values()), 4) for one in each["ranking"]}
        assert len(offsets) == 1  # reasons are those of the document beside them
    assert (found[12]["policy"], [one["was"] - 1 for one in found[12]["ranking"]]) == (
        "none",
        best["new"].tolist(),
    )
    assert [page[0][3].policy_id for page in pages] == [each["policy"] for each in found]
    seen = {each["request_id"]: each["order"] for each in facts.shadows if each["model"] == "new"}
    assert seen == {f"r{at}": [f"d{each}" for each in best["new"]] for at in range(12)}
    troubles = [each["error"] for each in facts.shadows if each["model"] == "strange"]
    assert len(troubles) == 2  # one for each model that answered; nobody else is told
    assert "without names" in troubles[0]


def test_a_second_model_that_cannot_score_leaves_the_page_as_it_was(place: Path) -> None:
    models = Models.open({"live": place / "live", "strange": place / "strange"})
    drafted = TeamDraft(first="live", second="strange")
    here = Answering(models, ServeSettings(tell_chances=True), None, drafted, None, "strange")
    (found,) = here.answer([read_request(request())], Noted())
    best = np.argsort(-unskew.load(place / "live").score(TABLE), kind="stable")
    assert (found["policy"], [one["was"] - 1 for one in found["ranking"]]) == ("none", best.tolist())


def test_a_version_that_was_replaced_is_counted_no_more() -> None:
    metrics = Metrics()
    metrics.answers({"a": "1", "b": "1"})
    metrics.answers({"a": "2", "b": "1"})
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("unskew_model{")]
    assert sorted(line for line in lines if line.endswith(" 1.0")) == [
        'unskew_model{model="a",version="2"} 1.0',
        'unskew_model{model="b",version="1"} 1.0',
    ]
