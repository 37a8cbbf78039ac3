"""`compare` on a real log: what is learned from, chosen by and judged on, the verdict, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError
from unskew.logs.log import write_log
from unskew.measuring import ClickEvidence, GainEstimate
from unskew.simulation import SvmLogger
from unskew.studies.compare import logged
from unskew.studies.compare.cells import read_cell
from unskew.studies.compare.compare import compare
from unskew.studies.compare.config import asked_for
from unskew.studies.compare.logged import (
    LearnedRankers,
    LogComparison,
    RealLog,
    cuts,
    judged,
    log_cells,
    read_log,
)
from unskew.studies.compare.report import log_page
from unskew.studies.compare.verdict import LogRow, leading, log_verdict
from unskew.tables.lists.letor import write_letor
from unskew.terminal.main import app
from unskew.types import Log


def content(**changes: Any) -> dict[str, Any]:
    """A small compare file on a log."""
    return {
        "data": {"log": "log.parquet", "features": "docs.txt"},
        "ranker": {"name": "linear"},
        "training": {"steps": 80},
        "seeds": [0, 1],
        "methods": [{"name": "dla", "grid": {"max_weight": [3.0, 30.0]}}],
    } | changes


@pytest.fixture(scope="module")
def clicked() -> Log:
    lists = unskew.make_lists(40, features=5, seed=5)
    logger = SvmLogger(favourite=4.0)
    bias = unskew.behaviours.PositionBias()
    return unskew.simulate(lists, bias, pages=6000, seed=5, randomized=0.5, logger=logger)


@pytest.fixture(scope="module")
def place(clicked: Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and the features of its documents; their grades are 0."""
    folder = tmp_path_factory.mktemp("logs")
    write_log(clicked, folder / "log.parquet")
    write_letor(replace(clicked.lists, labels=0 * clicked.lists.labels), folder / "docs.txt")
    write_letor(clicked.lists, folder / "graded.txt")
    return folder


@pytest.fixture(scope="module")
def done(place: Path) -> LogComparison:
    found = compare(content(), place / "out", base=place, jobs=1)
    assert isinstance(found, LogComparison)
    return found


# ---- parts ----


def real(log: Log, test: Log | None = None) -> RealLog:
    return RealLog(log, test, test, None, "", "query")


def test_no_query_is_in_two_parts(clicked: Log) -> None:
    for seed in (0, 1):
        parts = real(clicked).drawn(seed)
        queries = [set(part.query.tolist()) for part in parts]
        assert not queries[0] & queries[1]
        assert not queries[0] & queries[2]
        assert not queries[1] & queries[2]
        assert [len(each) for each in queries] == [24, 8, 8]
    assert set(real(clicked).drawn(0)[2].query.tolist()) != queries[2]


def test_pages_are_cut_where_queries_are_few(clicked: Log) -> None:
    one = clicked.take(clicked.query == clicked.query[0])
    first, second = cuts(one, 2, 0)
    assert not (first & second).any()
    assert first.sum() == second.sum() == len(one) // 5


def test_no_page_judges_two_seeds(clicked: Log) -> None:
    drawn, whole = real(clicked).judging([0, 1, 2])
    queries = [set(part.query.tolist()) for part in drawn]
    assert sum(map(len, queries)) == len(set().union(*queries))
    assert sum(map(len, drawn)) == len(whole)
    assert all(part <= set(real(clicked).drawn(seed)[2].query.tolist()) for seed, part in enumerate(queries))
    shared, _ = real(clicked, clicked.take(np.arange(500))).judging([0, 1, 2])
    assert sum(map(len, shared)) == 500
    assert len({query for part in shared for query in set(part.query.tolist())}) == sum(
        len(set(part.query.tolist())) for part in shared
    )


def test_parts_that_split_wrote_are_taken_as_such(clicked: Log, place: Path) -> None:
    by_query = {"train": 0, "validation": 1, "test": 2}
    for name, number in by_query.items():
        (place / "parts" / name).mkdir(parents=True)
        write_log(clicked.take(clicked.query % 3 == number), place / "parts" / name / "part.parquet")
    asked = asked_for(content(data={"log": "parts", "features": "docs.txt"}), place)
    log = read_log(asked.file.data, place)
    for seed in (0, 7):
        parts = log.drawn(seed)
        for number, part in enumerate(parts):
            assert len(part) == int((clicked.query % 3 == number).sum())


# ---- what was found ----


def test_every_method_is_held_against_naive_and_against_what_was_shown(done: LogComparison) -> None:
    """The logging ranker has a wrong favourite, and half of the pages are shuffled: what learns beats it."""
    assert [row.arm for row in done.rows] == ["naive", "dla"]
    evidence = done.rows[1].naive
    assert evidence is not None
    assert done.rows[0].naive is None
    assert 0 < evidence.pages <= 2400  # two seeds of a fifth, each page once
    assert set(done.chosen) == {"naive", "dla"}
    assert done.rows[1].varied in ("max_weight = 3.0", "max_weight = 30.0")
    assert [row.shown.verdict for row in done.rows] == ["better", "better"]
    assert done.verdict.startswith("Cannot tell whether to debias. The best is dla (direct ")
    assert done.rows[1].graded is None


def test_cells_are_kept_and_read_again(done: LogComparison, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.studies.compare.cells.run_cell", lambda *_: pytest.fail("is there already"))
    again = compare(content(), place / "out", base=place, jobs=1)
    assert isinstance(again, LogComparison)
    assert again.verdict == done.verdict
    assert [row.shown.to_dict() for row in again.rows] == [row.shown.to_dict() for row in done.rows]


def test_a_cell_is_another_where_what_it_depends_on_has_changed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys(hashed: str = "a", **changes: Any) -> set[str]:
        return {cell.key for cell in log_cells(asked_for(content(**changes), place), hashed)}

    assert keys() == keys()
    assert not keys() & keys("b")
    assert not keys() & keys(training={"steps": 81})
    assert not keys() & keys(seeds=[2])
    assert len(keys()) == 6
    data = content()["data"]
    assert not keys() & keys(data=data | {"scaling": "minmax"})
    before = keys()
    monkeypatch.setattr(logged, "__version__", "0.0")
    assert not before & keys()


def test_settings_are_chosen_on_validation_pages_and_not_on_test_pages(clicked: Log) -> None:
    first = clicked.query < 20
    log = RealLog(clicked, clicked.take(first), clicked.take(~first), None, "", "query")
    learned = LearnedRankers(log, [0], [])
    lists = clicked.lists
    good = np.where(np.repeat(np.arange(len(lists)), lists.sizes) < 20, 1.0, -1.0) * lists.labels
    learned.rankers = {("dla", 0): [-good], ("dla", 1): [good]}  # the first is right about the pages that judge
    assert learned.choose() == {"dla": 1}


def test_all_methods_together_share_the_risk(clicked: Log) -> None:
    rng, arms = np.random.default_rng(0), ("naive", "dla", "ipw", "pair_debias")
    contents = [{"scores": rng.random(len(clicked.lists.labels)), "ndcg@10": None} for _ in arms]
    findings: list[Any] = [
        SimpleNamespace(cell=SimpleNamespace(arm=arm, index=0, seed=0, varied={}), content=each, finished=True)
        for arm, each in zip(arms, contents, strict=True)
    ]
    _, rows = judged(real(clicked), [0], findings)
    assert [row.shown.level for row in rows] == pytest.approx([1 - 0.05 / 3] * 4)


def test_labels_lie_beside_and_change_nothing(done: LogComparison, place: Path) -> None:
    with_labels = content(data={"log": "log.parquet", "features": "docs.txt", "test": "graded.txt"})
    graded = compare(with_labels, place / "graded", base=place, jobs=1)
    assert isinstance(graded, LogComparison)
    assert graded.chosen == done.chosen
    assert graded.verdict == done.verdict
    assert all(row.graded is not None and 0 < row.graded.mean < 1 for row in graded.rows)
    assert "nDCG@10 by labels" in log_page(graded).sections[0].tables[0].columns
    assert "nDCG@10 by labels" not in log_page(done).sections[0].tables[0].columns


def test_what_is_written(done: LogComparison) -> None:
    table = pq.read_table(done.out / "results.parquet").to_pylist()
    assert len(table) == 6
    assert sum(row["selected"] for row in table) == 4  # one point of each arm, two seeds
    html = (done.out / "report.html").read_text()
    assert "A log as it was given" in html
    assert (done.out / "table.md").read_text().splitlines()[2].startswith("A log as it was given")
    asked = json.loads((done.out / "compare.json").read_text())
    assert asked["data"]["log"] == "log.parquet"
    cell = done.findings[0].cell
    assert (read_cell(done.out / "cells", cell) or {})["scores"].shape == (
        len(read_log(cell.data, cell.base).train.lists.features),
    )


# ---- the verdict ----


def evidence(verdict: str, ends: tuple[float, float], needed: int | None = None) -> ClickEvidence:
    middle = sum(ends) / 2
    direct = GainEstimate("direct", "nothing", "random", "dcg", 1 + middle, 1.0, middle, ends, 10.0, 1.0, 10, 10)
    names = () if verdict == "cannot tell" else ("direct",)
    return ClickEvidence((direct,), verdict, "", "", names, needed, None)  # type: ignore[arg-type]


def row(arm: str, verdict: str = "", ends: tuple[float, float] = (0, 0), needed: int | None = None) -> LogRow:
    shown = evidence("better", (0.2, 0.4))
    return LogRow(arm, "", evidence(verdict, ends, needed) if verdict else None, shown, None)


def test_verdicts() -> None:
    naive = row("naive")
    best = log_verdict(
        [naive, row("a", "better", (0.02, 0.04)), row("b", "better", (0.1, 0.2)), row("c", "worse", (-2, -1))]
    )
    assert best.startswith("Debias with b: it ranks better than naive (direct +0.1500 (+15.0%), interval +0.1000")
    assert "Also better than naive: a." in best
    assert "Against what was shown b is: better" in best
    assert best.endswith("Worse than naive: c.")
    assert log_verdict([naive, row("a", "worse", (-0.2, -0.1))]) == "Do not debias: naive ranks better than a."
    little = log_verdict([naive, row("a", "cannot tell", (-0.002, 0.009)), row("b", "worse", (-0.2, -0.1))])
    assert little.startswith("Do not debias: no method ranks better than naive by more than 1%; the best is a")
    unknown = log_verdict([naive, row("a", "cannot tell", (-0.1, 0.2), 1234)])
    assert unknown.startswith("Cannot tell whether to debias. The best is a")
    assert unknown.endswith("About 1,234 shuffled pages would decide a difference of this size.")
    assert log_verdict([naive]) == "Nothing can be said, as no method finished."
    assert log_verdict([]) == "Nothing can be said, as naive has no result."


def test_what_decided_leads() -> None:
    direct = evidence("cannot tell", (-0.1, 0.2)).estimates[0]
    swaps = replace(direct, name="swaps", grounds="display")
    both = replace(evidence("better", (0, 1)), estimates=(direct, swaps), decided_by=("swaps",))
    assert leading(both) == swaps
    assert leading(replace(both, decided_by=())) == direct
    assert leading(replace(both, estimates=())) is None


# ---- files and the command ----


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"behaviours": [{"name": "position"}]}, r"behaviours: cannot be given beside data\.log"),
        ({"pages": 100}, r"pages: cannot be given beside data\.log"),
        ({"logger": {"name": "svm"}}, r"logger: cannot be given beside data\.log"),
        ({"methods": [{"name": "labeled"}]}, "methods: beside data.log only clicks are learned from"),
        ({"training": {"validate_on": "labels"}}, "only clicks are learned from, and choose"),
        ({"data": {"log": "log.parquet"}}, r"data\.features: missing"),
        ({"data": {"log": "a", "features": "b", "synthetic": {}}}, "there is synthetic and log"),
        (
            {"data": {"log": "a", "features": "b", "label_scale": 2}},
            r"label_scale: cannot be given beside log",
        ),
        ({"data": {"synthetic": {}}, "pages": 10}, "behaviours: missing"),
    ],
)
def test_what_excludes_what(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        asked_for(content(**changes), Path())


def test_the_command(done: LogComparison, place: Path) -> None:
    text = (
        'out = "out"\nseeds = [0, 1]\n[data]\nlog = "log.parquet"\nfeatures = "docs.txt"\n'
        '[ranker]\nname = "linear"\n[training]\nsteps = 80\n'
        '[[methods]]\nname = "dla"\ngrid.max_weight = [3.0, 30.0]\n'
    )
    (place / "compare.toml").write_text(text)
    said = CliRunner().invoke(app, ["compare", str(place / "compare.toml"), "--jobs", "1", "--quiet"])
    assert said.exit_code == 0
    assert done.verdict.split()[0] in said.stdout
    (place / "compare.toml").write_text(text.replace("log.parquet", "lost.parquet"))
    lost = CliRunner().invoke(app, ["compare", str(place / "compare.toml"), "--out", str(place / "lost")])
    assert lost.exit_code != 0
