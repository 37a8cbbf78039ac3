"""Many small and odd logs: a page, its JSON and its Python object say one thing, and what they say is true."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from tests.helpers.uncleaned import open_tables, uncleaned
from unskew.diagnosis.diagnosis import Diagnosis
from unskew.diagnosis.evidence.evidence import measured
from unskew.errors import DataError
from unskew.pages.documents.diagnosis import SEEN, diagnosis_page
from unskew.pages.page import Page, markdown
from unskew.terminal.main import made

Columns = dict[str, Any]


def pages(
    seed: int,
    *,
    count: int = 60,
    queries: int = 20,
    documents: int = 6,
    shown: int = 5,
    moved: float = 1.0,
    shuffled: float = 0.0,
    steep: float = 1.0,
    level: float = 0.9,
) -> Columns:
    """Pages whose order is that of relevance and noise; people look at rank k as k to the power of -steep."""
    rng = np.random.default_rng(seed)
    relevance = np.linspace(0.8, 0.2, documents) * np.ones((queries, 1))
    query, random = rng.integers(queries, size=count), rng.random(count) < shuffled
    score = relevance[query] + moved * 0.3 * rng.normal(size=(count, documents))
    score[random] = rng.random((int(random.sum()), documents))
    order = np.argsort(-score, axis=1)[:, :shown]
    seen = level * np.arange(1, shown + 1) ** -steep
    click = rng.random(order.shape) < seen * np.take_along_axis(relevance[query], order, axis=1)
    found = {
        "page_id": np.repeat(np.arange(count), shown),
        "query_id": np.repeat(query, shown),
        "doc_id": order.ravel(),
        "position": np.tile(np.arange(1, shown + 1), count),
        "click": click.ravel().astype(np.int8),
    }
    return found | ({"randomized": np.repeat(random, shown)} if shuffled else {})


def where(table: Columns, kept: Callable[[Columns], Any]) -> Columns:
    rows = kept(table)
    return {name: values[rows] for name, values in table.items()}


def with_column(table: Columns, name: str, values: Any) -> Columns:
    return table | {name: values}


def clicked(table: Columns, click: int) -> Columns:
    return table | {"click": np.full(len(table["click"]), click, np.int8)}


LOGS: dict[str, Columns] = {
    "one row": where(pages(0, count=1), lambda log: log["position"] == 1),
    "one page": pages(0, count=1),
    "one rank": where(pages(1, count=80), lambda log: log["position"] == 1),
    "rank 3 alone": where(pages(1, count=80), lambda log: log["position"] == 3),
    "no rank 1": where(pages(2, count=300), lambda log: log["position"] > 1),
    "no clicks": clicked(pages(3, count=100), 0),
    "all clicks": clicked(pages(3, count=300), 1),
    "clicks at rank 1 alone": (lambda log: log | {"click": (log["position"] == 1).astype(np.int8)})(pages(4)),
    "a click below rank 1 alone": (lambda log: log | {"click": (log["position"] == 4).astype(np.int8)})(
        pages(4, count=200)
    ),
    "one order": pages(5, count=300, moved=0.0),
    "one order, no bias": pages(5, count=300, moved=0.0, steep=0.0),
    "queries once": pages(6, count=100, queries=5000),
    "queries once, shuffled": pages(6, count=400, queries=100_000, shuffled=1.0),
    "shuffled alone": pages(7, count=300, shuffled=1.0),
    "few shuffled": pages(8, count=300, shuffled=0.05, moved=0.0),
    "half shuffled": pages(9, count=400, shuffled=0.5),
    "shuffled but for rank 1": (lambda log: log | {"randomized": log["randomized"] & (log["position"] > 1)})(
        pages(10, count=300, shuffled=1.0)
    ),
    "300 rows": pages(11, count=60),
    "300 rows, steep": pages(12, count=60, steep=1.5),
    "300 rows of one query": pages(13, count=60, queries=1),
    "two queries": pages(14, count=400, queries=2),
    "many pages of one query": pages(15, count=1500, queries=1, documents=12),
    "a hole in the ranks": where(pages(16, count=300), lambda log: log["position"] != 3),
    "holes below": where(pages(17, count=400), lambda log: ~np.isin(log["position"], (3, 4))),
    "two ranks": where(pages(18, count=400), lambda log: log["position"] <= 2),
    "two worlds of ranks": (
        lambda log: log | {"doc_id": np.where(log["position"] > 2, 10, 0) + log["doc_id"] % 2}
    )(pages(19, count=600, shown=4)),
    "long pages": pages(20, count=150, documents=30, shown=25),
    "hardly any bias": pages(21, count=1500, steep=0.02),
    "no bias": pages(22, count=2000, steep=0.0),
    "no bias, shuffled": pages(22, count=2000, steep=0.0, shuffled=0.5),
    "strong bias": pages(23, count=2000, steep=1.5, shuffled=0.3),
    "rare clicks": pages(24, count=600, level=0.03),
    "clicks galore": pages(25, count=400, level=1.0, steep=0.1),
    "a column of the page": (
        lambda log: with_column(log, "serp_media", np.where(log["doc_id"] % 2 == 0, "video", "text"))
    )(pages(26, count=800)),
    "a column that is the rank": (
        lambda log: with_column(log, "serp_fold", np.where(log["position"] <= 2, "above", "below"))
    )(pages(27, count=800)),
    "a rare column": (lambda log: with_column(log, "serp_ad", (np.arange(len(log["click"])) < 3).astype(int)))(
        pages(28, count=400)
    ),
    "a column that matters": (
        lambda log: with_column(log, "serp_large", log["click"] * (np.arange(len(log["click"])) % 3 > 0))
    )(pages(29, count=1500)),
}


@dataclass(frozen=True)
class Told:
    """A log, and the three ways in which it is told what is wrong with it."""

    log: Columns
    found: Diagnosis
    json: dict[str, Any]
    page: Page
    text: str


@pytest.fixture(scope="module", params=LOGS)
def told(request: pytest.FixtureRequest) -> Told:
    log = LOGS[request.param]
    found = unskew.diagnose(uncleaned(pa.table(log)), threads=1)
    page = diagnosis_page(found)
    return Told(log, found, json.loads(found.to_json()), page, markdown(page))


def moved_rows(log: Columns, natural: bool) -> Any:
    """Rows of documents that one query saw at several ranks; not those of shuffled slots, where that is asked."""
    kept = ~log["randomized"] if natural and "randomized" in log else np.ones(len(log["click"]), bool)
    ranks: dict[Any, set[int]] = {}
    keys = list(zip(log["query_id"], log["doc_id"], strict=True))
    for key, rank, some in zip(keys, log["position"], kept, strict=True):
        if some:
            ranks.setdefault(key, set()).add(int(rank))
    return np.array([bool(some) and len(ranks[key]) > 1 for key, some in zip(keys, kept, strict=True)])


def test_the_json_makes_the_same_page_and_has_no_number_that_is_none(told: Told) -> None:
    again = Diagnosis.from_dict(told.json)
    assert again.to_dict() == told.json
    assert markdown(diagnosis_page(again)) == told.text
    assert not re.search(r"\b(nan|inf|None)\b", told.text)


def test_who_is_looked_at_is_one_curve_or_one_reason(told: Told) -> None:
    evidence, position = told.found.evidence, told.found.verdicts[0]
    seen = next(section.text for section in told.page.sections if section.heading == SEEN)
    if evidence.chosen is None:
        assert seen == f"This log cannot tell: {evidence.reason}."
        assert (position.state, position.evidence) == ("cannot tell", evidence.reason)
        assert "is looked at" not in told.text.replace("## Who is looked at", "").split("## Words on this page")[0]
        assert told.found.conclusion.recoverable != "yes"
        with pytest.raises(DataError, match=re.escape(str(evidence.reason))):
            told.found.propensities()
        with open_tables(pa.table(told.log), threads=1) as tables, pytest.raises(DataError):
            measured(tables)
        return
    curve = evidence.examination
    rank, value = re.match(r"Rank (\d+) is looked at ([\d.]+)", seen).groups()  # type: ignore[union-attr]
    assert value == f"{curve.theta[int(rank) - 1]:.2f}"
    at, claimed = re.search(r"rank (\d+) is looked at ([\d.]+) times", position.evidence).groups()  # type: ignore[union-attr]
    assert claimed == f"{curve.theta[int(at) - 1]:.2f}"
    usable = told.found.propensities()
    assert usable.theta == curve.theta[: len(usable.theta)]
    assert "cannot tell: no other rank" not in told.text
    with open_tables(pa.table(told.log), threads=1) as tables:
        assert measured(tables).values == pytest.approx(usable.values)


def test_linked_ranks_are_those_that_the_curve_tells(told: Told) -> None:
    evidence, graph = told.found.evidence, told.found.evidence.graph
    shown = sorted({int(rank) for rank in told.log["position"] if rank <= 20})
    assert sorted(rank for part in graph.components for rank in part) == shown
    if evidence.chosen is not None:
        assert list(graph.components[0]) == [k for k in shown if evidence.examination.theta[k - 1] is not None]
    assert evidence.linked is (evidence.chosen is not None and len(graph.components) == 1)
    for rank, (value, why) in enumerate(zip(evidence.examination.theta, evidence.examination.reason, strict=True)):
        assert (value is None) is (why is not None), rank


def sentences(part: Any) -> Iterator[str]:
    """All that a diagnosis says of the whole log, and not of a value of a segment."""
    if isinstance(part, str):
        yield part
    for each in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if each[0] != "contexts":
            yield from sentences(each[1])


def test_reasons_are_true_of_the_log(told: Told) -> None:
    log = told.log
    ranks, clicks = log["position"], log["click"]
    facts: dict[str, Callable[[re.Match[str]], bool]] = {
        r"one rank only": lambda _: ranks.max() == 1,
        r"no document was shown at two ranks for one query in slots that were not": lambda _: (
            not moved_rows(log, True).any()
        ),
        r"no document was shown at two ranks for one query(?! in)": lambda _: not moved_rows(log, False).any(),
        r"(\d+) clicks below rank 1 on documents": lambda found: (
            int(found[1])
            == clicks[moved_rows(log, not log.get("randomized", np.zeros(1)).all()) & (ranks > 1)].sum()
        ),
        r"(\d+) clicks below rank 1 on shuffled": lambda found: (
            int(found[1]) <= clicks[log["randomized"] & (ranks > 1)].sum()
        ),
        r"no page shows rank 1": lambda _: ranks.min() > 1,
        r"no slot is marked as random": lambda _: not log.get("randomized", np.zeros(1)).any(),
        r"everything, or always the same, was clicked": lambda _: all(
            len(set(clicks[ranks == rank])) == 1 for rank in set(ranks)
        ),
        r"(\d+) clicks do not tell how many": lambda found: int(found[1]) == clicks.sum(),
    }
    for reason in set(sentences(told.json)):
        for pattern, holds in facts.items():
            if match := re.search(pattern, reason):
                assert holds(match), reason
    for rank, why in enumerate(told.found.evidence.curves["swaps"].reason, start=1):
        if why == "no page shows it":
            assert not (ranks == rank).any()


def test_advice_names_methods_by_what_the_table_says_of_them(told: Told) -> None:
    conclusion = told.found.conclusion
    holds = {name: each.holds for each in conclusion.methods for name in each.methods}
    assert len(holds) == sum(len(each.methods) for each in conclusion.methods)
    correcting = [held for name, held in holds.items() if name != "naive"]
    if "and it can be repaired" in told.page.lead:
        assert conclusion.recoverable == "yes"
        assert any(held is not False for held in correcting)
    if conclusion.recoverable != "yes":
        assert not any(held is True for held in correcting)
    for step in conclusion.next:
        for named in re.findall(r": ([\w, ]+), whose assumptions hold here", step.text):
            assert {holds[name] for name in re.split(r", | and ", named)} == {True}
        for name in re.findall(r"such as (\w+); whether its assumptions hold is not told", step.text):
            assert holds[name] is None
    if "do not debias" in conclusion.next[0].text:
        assert told.found.verdicts[0].state == "absent"


def test_every_next_step_is_a_command_to_paste(told: Told) -> None:
    assert told.found.conclusion.next
    for step in told.found.conclusion.next:
        program, name, *words = shlex.split(step.command)
        assert program == "unskew"
        made(name).make_context(name, words)
        assert step.command in told.text
    learned = [shlex.split(step.command) for step in told.found.conclusion.next if " learn " in step.command]
    methods = {words[words.index("--method") + 1] for words in learned}
    assert methods <= {*unskew.methods.METHODS, "auto"}


def test_commands_name_files_and_columns_as_they_were_given(tmp_path: Any) -> None:
    log = LOGS["half shuffled"]
    path = tmp_path / "a log.parquet"
    pq.write_table(pa.table({**{k: v for k, v in log.items() if k != "position"}, "rank": log["position"]}), path)
    found = unskew.diagnose(path, columns={"position": "rank"}, threads=1)
    step = next(step for step in found.conclusion.next if " plan " in step.command)
    assert shlex.split(step.command)[2] == str(path)
    assert shlex.split(step.command)[-2:] == ["--column", "position=rank"]
