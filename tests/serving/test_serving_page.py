"""The page at `/` in a browser: what it asks, shows and says is wrong; names of a request stay text."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from tests.helpers.browser import Browser, browser, installed
from tests.serving.test_serving_http import TOKEN, make, request, serving
from unskew.learning.rankers import MLP, Linear
from unskew.pages import colours
from unskew.pages.colours import PAGE

torch.set_num_threads(1)
needs_browser = pytest.mark.skipif(installed() is None, reason="no Chromium here")
SOURCE = files("unskew.serving.service").joinpath("page.html").read_text(encoding="utf-8")
EVIL = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'
SHOWN = "!at('shown').hidden && [...at('ranking').tBodies[0].rows].map(row => row.cells[1].firstChild.data)"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server of two models that asks for a token."""
    place = tmp_path_factory.mktemp("page")
    make(place / "shoes", 1, MLP(sizes=(4,)))
    make(place / "other", 2, Linear())
    (place / "token").write_text(TOKEN)
    with serving(place / "log", place / "shoes", place / "other", "--token-file", place / "token") as opened:
        opened.headers["authorization"] = f"Bearer {TOKEN}"
        yield opened


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for all tests."""
    profile = tmp_path_factory.mktemp("profile")
    with browser(profile) as opened:
        yield opened
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture
def tab(chromium: Browser, client: Any) -> Browser:
    """The page, with the token given and an example in it."""
    chromium.problems.clear()
    chromium.open(str(client.base_url), width=1280)
    chromium.until("!at('locked').hidden")
    give(chromium, "token", TOKEN)
    chromium.until("at('request').value")
    return chromium


def give(tab: Browser, field: str, value: str) -> None:
    """Type into a field, and leave it."""
    tab.run(f"at('{field}').value = {json.dumps(value)}; at('{field}').dispatchEvent(new Event('change'))")


def ask(tab: Browser, content: object) -> None:
    """Paste a request, and press the button."""
    give(tab, "request", content if isinstance(content, str) else json.dumps(content, indent=1))
    tab.run("at('rank').click()")


@needs_browser
def test_the_example_of_each_model_is_ranked_in_the_order_of_the_server(tab: Browser, client: Any) -> None:
    for place, name in enumerate(("shoes", "other")):
        tab.run(f"at('model').selectedIndex = {place}; at('model').dispatchEvent(new Event('change'))")
        body = json.loads(tab.run("at('request').value"))
        assert (body["model"], [*body["documents"][0]["features"]]) == (name, ["price", "brand"])
        tab.run("at('shown').hidden = true; at('rank').click()")
        answer = client.post("/v1/rank", json=body).json()
        assert tab.until(SHOWN) == [one["id"] for one in answer["ranking"]]
        assert f"by {name}" in tab.run("at('shown').querySelector('.facts').textContent")
        assert tab.run("at('how').textContent").startswith(f"Why: {answer['reasons']}")
        first = tab.run("at('ranking').tBodies[0].rows[0].textContent")
        assert {"price", "brand"} <= {*re.findall("price|brand", first)}
    quiet = [each for each in tab.problems if "401" not in each]  # it asks before it has the token
    assert quiet == []


@needs_browser
def test_moves_are_drawn_and_told(tab: Browser, client: Any) -> None:
    ask(tab, request())
    tab.until(SHOWN)
    ranking = client.post("/v1/rank", json=request()).json()["ranking"]
    moves = [one["was"] - one["rank"] for one in ranking]
    told = tab.run("[...document.querySelectorAll('td.move')].map(each => each.getAttribute('aria-label'))")
    ways = [f"{'up' if move > 0 else 'down'} {abs(move)}" if move else "stays" for move in moves]
    assert [each.partition(",")[0] for each in told] == ways
    assert tab.run("document.querySelectorAll('#moves path').length") == len(ranking)
    moved = sum(map(bool, moves))
    assert f"{moved} of 3 documents moved" in tab.run("document.querySelector('figcaption').textContent")


@needs_browser
@pytest.mark.parametrize(
    ("change", "head", "marked"),
    [
        (lambda body: body["documents"][1]["features"].update(price="x"), "documents.1.features.price", '"x"'),
        (lambda body: body.update(model="sheos"), "model", '"sheos"'),
        (lambda body: body.update(colour=1), "colour", "1"),
    ],
)
def test_an_error_is_shown_where_it_is(tab: Browser, change: Any, head: str, marked: str) -> None:
    body = json.loads(json.dumps(request()))
    change(body)
    ask(tab, body)
    tab.until("!at('trouble').hidden")
    assert tab.run("at('trouble').textContent").startswith(f"{head}, line ")
    chosen = "at('request').value.slice(at('request').selectionStart, at('request').selectionEnd)"
    assert tab.run(chosen) == marked
    assert tab.run("[at('shown').hidden, at('request').getAttribute('aria-invalid')]") == [True, "true"]
    ask(tab, request())
    assert tab.until(SHOWN)
    assert tab.run("[at('trouble').hidden, at('request').hasAttribute('aria-invalid')]") == [True, False]


@needs_browser
def test_what_is_not_json_and_a_wrong_token_are_told(tab: Browser) -> None:
    ask(tab, '{"documents": [}')
    tab.until("!at('trouble').hidden")
    assert "not JSON" in tab.run("at('trouble').textContent")
    give(tab, "token", "wrong")
    tab.until("at('models').textContent.includes('token')")
    ask(tab, request())
    tab.until("at('trouble').textContent.includes('bring the token')")


@needs_browser
def test_names_are_text_and_never_markup(tab: Browser) -> None:
    body = request()
    body["documents"][0]["id"] = EVIL
    ask(tab, body | {"request_id": EVIL})
    assert EVIL in tab.until(SHOWN)
    ask(tab, body | {"model": EVIL})
    tab.until("!at('trouble').hidden")
    answer = {"id": EVIL, "rank": 1, "was": 1, "score": 1, "why": {EVIL: 1}}
    told = dict.fromkeys(("model", "version", "request_id", "policy", "reasons"), EVIL) | {"ranking": [answer]}
    tab.run(f"show({json.dumps(told)})")
    assert tab.run("[window.hit, document.images.length, document.scripts.length]") == [None, 0, 1]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", SOURCE)


@needs_browser
def test_a_model_that_has_no_reasons_is_shown_without(tab: Browser) -> None:
    refused = '{"error": "it has none", "where": "why"}'
    tab.run(f"""const own = fetch; window.fetch = (path, asked) => JSON.parse(asked.body).why
      ? Promise.resolve(new Response({json.dumps(refused)}, {{status: 422}})) : own(path, asked)""")
    ask(tab, request(why=True))
    assert len(tab.until(SHOWN)) == 3
    assert tab.run("at('how').textContent") == "No reasons: it has none."
    assert "Bearer $(cat token)" in tab.run("at('shell').textContent")


@needs_browser
def test_explored_slots_are_marked(tab: Browser) -> None:
    ranking = [
        {"id": name, "rank": at + 1, "was": at + 1, "score": score, "propensity": 0.25}
        for at, (name, score) in enumerate((("a", 1.0), ("c", -1.0), ("b", 0.5)))
    ]
    told = {
        "model": "m",
        "version": "v",
        "request_id": "r",
        "policy": "shuffle",
        "logged": True,
        "ranking": ranking,
    }
    tab.run(f"show({json.dumps(told)})")
    rows = tab.run("[...at('ranking').tBodies[0].rows].map(row => row.textContent)")
    assert ["explored" in row for row in rows] == [False, True, True]
    assert "explored; by score 3" in rows[1]
    assert all("propensity 0.25" in row for row in rows)
    facts = tab.run("document.querySelector('.facts').textContent")
    assert "explored by shuffle" in facts
    assert "written to the log" in facts


@needs_browser
def test_many_documents_are_shown_in_two_steps(tab: Browser) -> None:
    rows = request()["documents"]
    many = [{"id": f"d{at}", "features": rows[at % 3]["features"]} for at in range(120)]
    ask(tab, {"documents": many})
    assert len(tab.until(SHOWN)) == 50
    tab.run("at('all').click()")
    assert len(set(tab.run(SHOWN))) == 120
    assert tab.run("document.querySelectorAll('#moves path').length") <= 40


@needs_browser
def test_the_page_fits_every_screen_and_its_fields_have_names(chromium: Browser, client: Any) -> None:
    for width, dark in ((320, True), (400, False), (1280, True)):
        chromium.open(str(client.base_url), width=width, dark=dark)
        chromium.until("!at('locked').hidden")
        give(chromium, "token", TOKEN)
        chromium.until("at('request').value")
        ask(chromium, request(why=True))
        chromium.until(SHOWN)
        assert chromium.run("document.documentElement.scrollWidth") <= width
        paper = PAGE["paper"][int(dark)]
        own = f"rgb({', '.join(str(int(paper[at : at + 2], 16)) for at in (1, 3, 5))})"
        assert chromium.run("getComputedStyle(document.body).backgroundColor") == own
    every = "[...document.querySelectorAll('{}')].every(each => each.{})"
    assert chromium.run(every.format("input, select, textarea", "labels.length"))
    assert chromium.run(every.format("button, summary, a", "textContent.trim()"))
    chromium.run("at('shown').hidden = true; at('request').focus()")
    event = "new KeyboardEvent('keydown', {key: 'Enter', ctrlKey: true, bubbles: true})"
    chromium.run(f"at('request').dispatchEvent({event})")
    assert chromium.until(SHOWN)


def test_colours_are_those_of_reports_and_nothing_is_loaded() -> None:
    known = {each for colour in (*PAGE.values(), *colours.SERIES) for each in colour}
    sheet = SOURCE[SOURCE.index("<style>") : SOURCE.index("</style>")]
    assert set(re.findall(r"#[0-9a-f]{6}\b", sheet)) <= known
    assert not re.search(r"""(?:src|href)=["'](?!data:|/)""", SOURCE)
