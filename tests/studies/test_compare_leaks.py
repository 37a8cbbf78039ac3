"""What a comparison may choose on, learn from and claim: nothing of the test lists, nothing of another seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unskew
from unskew.learning.fitting.training import Training
from unskew.learning.methods import METHODS
from unskew.learning.rankers import Linear
from unskew.measuring import crossed_t_test, holm, mean_over_seeds, page_ndcg_metric, rank_weights
from unskew.simulation import PositionBias, Simulation, SvmLogger
from unskew.studies.compare import simulated as cells
from unskew.studies.compare import simulated as fits
from unskew.studies.compare.arms import Point
from unskew.studies.compare.cells import Finding
from unskew.studies.compare.config import Asked, CompareData, asked_for
from unskew.studies.compare.report import tables
from unskew.studies.compare.simulated import ListParts, SimulatedCell, choose, compared, make_cell, read_data
from unskew.studies.compare.verdict import Row, verdict, winners, with_tests
from unskew.types import Log
from unskew.workflows.runs.data import LogData

torch.set_num_threads(1)

TRAIN, VALIDATION, TEST = (unskew.make_lists(queries, 5, 6, seed=queries) for queries in (24, 8, 9))
PARTS = ListParts(TRAIN, VALIDATION, TEST, ("train", "validation", "test"))
SIMULATION = Simulation(behaviour=PositionBias(), logger=SvmLogger(), pages=300, seed=4)


class Stop(Exception):
    """Raised where training would begin."""


@pytest.fixture(scope="module")
def log() -> Log:
    return SIMULATION.draw(TRAIN)


def point(name: str = "dla", **training: Any) -> Point:
    settings = {"steps": 2, "batch": 8, "validate_every": 1, "threads": 1}
    return Point(METHODS[name](), Linear(), Training(**settings | training), "")


def handed(
    monkeypatch: pytest.MonkeyPatch, log: Log, given: Point, parts: ListParts = PARTS, seed: int = 3
) -> tuple[Any, LogData]:
    """Settings and data that training is called with."""
    calls: list[tuple[Any, LogData]] = []

    def run(settings: Any, data: LogData) -> None:
        calls.append((settings, data))
        raise Stop

    monkeypatch.setattr(fits, "run", run)
    with pytest.raises(Stop):
        fits.fit(given, seed, "standard", log, parts)
    return calls[0]


# ------------------------------------------------------------------------------------------- learning


def test_weights_are_chosen_on_held_out_clicks_or_validation_lists(
    monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    _, data = handed(monkeypatch, log, point(validate_on="labels"))
    assert data.validation is VALIDATION
    assert data.held_out is None
    _, data = handed(monkeypatch, log, point(validate_on="clicks"))
    assert data.validation is None
    assert data.held_out is not None
    assert data.held_out.lists is TRAIN
    _, data = handed(monkeypatch, log, point(validate_on="nothing"))
    assert data.validation is data.held_out is None


def test_the_method_of_labels_is_never_chosen_on_clicks(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    _, data = handed(monkeypatch, log, point("labeled", validate_on="clicks"))
    assert data.validation is VALIDATION
    assert data.held_out is None
    without = replace(PARTS, validation=None)
    _, data = handed(monkeypatch, log, point("labeled", validate_on="clicks"), without)
    assert data.validation is not None
    shown = set(TRAIN.query_ids[np.unique(log.query)])
    assert set(data.validation.query_ids) == shown - set(TRAIN.query_ids[np.unique(data.train.query)])


@pytest.mark.parametrize("on", ["clicks", "labels", "nothing"])
def test_the_same_queries_are_held_out_whatever_chooses(
    monkeypatch: pytest.MonkeyPatch, log: Log, on: str
) -> None:
    """Every arm learns from the same pages; which ones, the seed says."""
    held = {}
    for seed in (3, 4):
        settings, data = handed(monkeypatch, log, point(validate_on=on), seed=seed)
        held[seed] = set(log.query) - set(data.train.query)
        assert held[seed] == set(fits.held_queries(log, seed))
        assert len(data.train) == np.isin(log.query, list(held[seed]), invert=True).sum()
        assert settings.training.seed == seed
        assert settings.scaling == "standard"
        if data.held_out is not None:
            assert set(data.held_out.query) == held[seed]
    assert held[3] != held[4]


def test_what_a_cell_keeps_of_its_validation(log: Log) -> None:
    """Numbers of held-out pages and of validation lists, and scores of the test lists."""
    asked = point(validate_on="nothing")
    found, scores = fits.fit(asked, 3, "standard", log, PARTS)
    assert len(scores) == len(TEST.features)
    held = fits.held_queries(log, 3)
    train, held_out = log.take(~np.isin(log.query, held)), log.take(np.isin(log.query, held))
    settings = {"steps": 2, "batch": 8, "validate_every": 1, "threads": 1, "validate_on": "nothing", "seed": 3}
    model = unskew.learn(train, METHODS["dla"](), ranker=Linear(), **settings).model
    assert np.allclose(model.score(TEST), scores)
    assert found["validation_ndcg@10"] == pytest.approx(fits.label_score(model, VALIDATION))
    assert found["validation_click_loglikelihood"] == pytest.approx(fits.click_score(model, held_out))
    pages = model.score(held_out.lists)[held_out.row], held_out.click
    weights = rank_weights(held_out.click, held_out.position)
    ndcg = page_ndcg_metric(*pages, offsets=held_out.offsets, weights=weights).mean
    assert found["validation_ips_ndcg@10"] == pytest.approx(ndcg)
    assert found["clicks"] == train.click.sum()
    kept, _ = fits.fit(asked, 3, "standard", log, replace(PARTS, validation=None))
    assert kept["validation_ndcg@10"] is None  # grades of the log's own lists choose nothing


@pytest.mark.parametrize("seed", [0, 7])
def test_the_logging_arm_learned_from_training_lists(seed: int) -> None:
    def cell(arm: str, seed: int) -> SimulatedCell:
        simulation = replace_seed(seed)
        return SimulatedCell("position", arm, 0, None, seed, CompareData(), Path(), "key", simulation, "")

    ours = cell("logging", seed).logged(PARTS)
    assert np.array_equal(ours, SvmLogger().fit(TRAIN, seed).scores(TEST))
    assert not np.array_equal(ours, SvmLogger().fit(TEST, seed).scores(TEST))
    chance = [cell("random", number).random(PARTS) for number in (seed, seed, seed + 1)]
    assert np.array_equal(chance[0], chance[1])
    assert not np.array_equal(chance[0], chance[2])


def replace_seed(seed: int) -> Simulation:
    return SIMULATION.model_copy(update={"seed": seed})


# ------------------------------------------------------------------------------------------- cells


def asked(**changes: Any) -> Asked:
    content: dict[str, Any] = {
        "pages": 300,
        "seeds": [3, 4],
        "data": {"synthetic": {"queries": 24, "features": 5, "documents": 6}},
        "behaviours": [{"name": "position"}, {"name": "cascade"}],
        "methods": [{"name": "dla"}, {"name": "lightgbm"}],
        "ranker": {"name": "linear"},
        "training": {"steps": 2},
    }
    return asked_for(content | changes, Path())


def key(arm: str = "dla", hashes: str = "abc", behaviour: str = "position", seed: int = 3, **changes: Any) -> str:
    return make_cell(asked(**changes), tuple(hashes), behaviour, arm, 0, seed).key


CHANGES: dict[str, dict[str, Any]] = {
    "training lists": {"hashes": "Abc"},
    "validation lists": {"hashes": "aBc"},
    "test lists": {"hashes": "abC"},
    "behaviour": {"behaviour": "cascade"},
    "seed": {"seed": 4},
    "pages": {"pages": 301},
    "logging ranker": {"logger": {"name": "oracle"}},
    "scaling": {"data": {"synthetic": {"queries": 24, "features": 5, "documents": 6}, "scaling": "none"}},
    "method": {"methods": [{"name": "dla", "max_weight": 3.0}, {"name": "lightgbm", "rounds": 3}]},
    "ranker": {"ranker": {"name": "mlp", "sizes": [3]}},
    "training": {"training": {"steps": 3}},
}
INDEPENDENT = {
    "lightgbm": {"ranker", "training"},
    "random": set(CHANGES) - {"test lists", "seed"},
    "logging": set(CHANGES) - {"test lists", "seed", "training lists", "logging ranker"},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("arm", ["dla", "lightgbm", "random", "logging"])
def test_a_cell_is_run_again_where_what_it_depends_on_has_changed(arm: str, change: str) -> None:
    same = key(arm) == key(arm, **CHANGES[change])
    assert same == (change in INDEPENDENT.get(arm, set()))


def test_a_cell_of_another_version_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr(cells, "__version__", "0.0")
    assert key() != before


def test_weights_chosen_otherwise_are_another_cell() -> None:
    for arm in ("dla", "lightgbm"):
        assert key(arm, training={"steps": 2, "validate_on": "labels"}) != key(arm, training={"steps": 2})


def test_each_seed_and_behaviour_has_a_log_of_its_own() -> None:
    made = {
        (behaviour, seed): make_cell(asked(), ("a", "b", "c"), behaviour, "dla", 0, seed)
        for behaviour in ("position", "cascade")
        for seed in (3, 4)
    }
    assert {name: cell.seed for name, cell in made.items()} == {name: name[1] for name in made}
    assert len({cell.log for cell in made.values()}) == 4
    logs = [made["position", seed].drawn(TRAIN) for seed in (3, 4)]
    assert not np.array_equal(logs[0].click, logs[1].click)
    assert not np.array_equal(logs[1].click, made["cascade", 4].drawn(TRAIN).click)
    assert made["cascade", 4].drawn(TRAIN) is made["cascade", 4].drawn(TRAIN)
    cells.forget()


def test_grades_of_every_part_are_scaled_alike(tmp_path: Path) -> None:
    for name, grades in (("train", (0, 1, 2)), ("vali", (2, 0, 0)), ("test", (0, 0, 1))):
        text = "".join(f"{grade} qid:1 1:{value}\n" for value, grade in enumerate(grades, 1))
        (tmp_path / f"{name}.txt").write_text(text + "0 qid:2 1:9\n")
    files = {"lists": "train.txt", "validation": "vali.txt", "test": "test.txt"}
    parts = read_data(CompareData(**files, label_scale=2, only_relevant=True), tmp_path)
    assert parts.validation is not None
    assert [part.labels.tolist() for part in (parts.train, parts.validation, parts.test)] == [
        [0, 2, 4],
        [4, 0, 0],
        [0, 0, 2],
    ]


# ------------------------------------------------------------------------------------------- choosing


def finding(arm: str, index: int, seed: int = 0, *, value: float = 0.5, **numbers: float | None) -> Finding:
    """A finished cell with validation numbers, all of whose test queries have one value."""
    content: dict[str, Any] = {"status": "finished", "test": dict.fromkeys(cells.MEASURED, value)}
    content["per_query"] = dict.fromkeys(cells.MEASURED, value + 0.01 * np.arange(4))
    method = METHODS[arm]() if arm in METHODS else None
    learned = None if method is None else Point(method, Linear(), Training(steps=2), f"point {index}")
    about = ("position", arm, index, learned, seed, CompareData(), Path(), f"{arm}{index}{seed}")
    return Finding(SimulatedCell(*about, replace_seed(seed), ""), content | numbers)


def numbers(clicks: float | None, labels: float | None) -> dict[str, float | None]:
    return {"validation_click_loglikelihood": clicks, "validation_ndcg@10": labels}


def test_the_mean_over_seeds_chooses_and_not_one_lucky_seed() -> None:
    steady = [finding("dla", 0, seed, **numbers(-1.0, 0.5)) for seed in (0, 1, 2)]
    lucky = [finding("dla", 1, seed, **numbers(-0.5 if seed == 2 else -2.0, 0.4)) for seed in (0, 1, 2)]
    assert choose([*steady, *lucky], "clicks") == 0
    assert choose([*lucky, *steady], "clicks") == 0


def test_each_way_chooses_by_its_own_numbers() -> None:
    found = [finding("dla", 0, **numbers(-1.0, 0.4)), finding("dla", 1, **numbers(-2.0, 0.6))]
    assert choose(found, "clicks") == 0
    assert choose(found, "labels") == 1


def test_the_method_of_labels_is_chosen_on_labels_either_way() -> None:
    found = [finding("labeled", 0, **numbers(-1.0, 0.4)), finding("labeled", 1, **numbers(-2.0, 0.6))]
    assert choose(found, "clicks") == choose(found, "labels") == 1


def test_a_ranker_without_a_click_model_is_chosen_by_its_ndcg_of_clicks() -> None:
    found = [
        finding("naive", index, **numbers(None, 0.5), **{"validation_click_ndcg@10": value})
        for index, value in enumerate((0.3, 0.7, 0.5))
    ]
    assert choose(found, "clicks") == 1


def test_test_numbers_and_corrected_clicks_choose_nothing() -> None:
    found = [
        finding("dla", 0, value=0.1, **numbers(-1.0, 0.6), **{"validation_ips_ndcg@10": 0.1}),
        finding("dla", 1, value=0.9, **numbers(-2.0, 0.5), **{"validation_ips_ndcg@10": 0.9}),
    ]
    assert choose(found, "clicks") == choose(found, "labels") == 0


def test_every_table_shows_the_settings_of_its_own_way() -> None:
    found = [
        *(finding("naive", 0, seed, **numbers(-1, 0.5)) for seed in (0, 1)),
        *(finding("dla", 0, seed, value=0.3, **numbers(-1.0, 0.4)) for seed in (0, 1)),
        *(finding("dla", 1, seed, value=0.7, **numbers(-2.0, 0.6)) for seed in (0, 1)),
    ]
    result = compared(Path(), ["position"], found, [], labels=True)
    assert not result.same_choice("position")
    shown = {text: {row.arm: row for row in rows} for text, rows in tables(result, "position")}
    clicks = shown["Settings chosen on held-out clicks."]["dla"]
    labels = shown["Settings chosen on labelled validation lists."]["dla"]
    assert (clicks.varied, labels.varied) == ("point 0", "point 1")
    assert (clicks.ndcg.mean, labels.ndcg.mean) == pytest.approx((0.3, 0.7))
    flags = {
        r["point"]: (r["selected_by_clicks"], r["selected_by_labels"]) for r in result.records() if r["point"]
    }
    assert (flags["point 1"], result.chosen["clicks", "position", "dla"]) == ((False, True), 0)


def test_where_both_ways_agree_there_is_one_table_and_where_not_two() -> None:
    one = [finding("dla", index, **numbers(-1.0 - index, 0.9 - index)) for index in (0, 1)]
    result = compared(Path(), ["position"], [finding("naive", 0), *one], [], labels=True)
    assert result.same_choice("position")
    assert [text for text, _ in tables(result, "position")] == [
        "Settings chosen on held-out clicks and on labelled validation lists, which agree."
    ]


# ------------------------------------------------------------------------------------------- tests and claims


def row(name: str, difference: float, seeds: int = 4) -> Row:
    """An arm that is better than 0.5 by so much; few seeds and queries, so that p is neither 0 nor 1."""
    rng = np.random.default_rng(abs(hash_of(name)))
    values = 0.5 + difference + 0.03 * rng.standard_normal((seeds, 12))
    metrics = {metric: mean_over_seeds(values.mean(1)) for metric in cells.MEASURED}
    return Row(name, "", metrics, dict.fromkeys(cells.MEASURED, values), tuple(map(float, values.mean(1))))


def hash_of(name: str) -> int:
    return sum(ord(letter) * 31**place for place, letter in enumerate(name))


def test_p_values_of_a_table_are_holms_over_its_methods() -> None:
    naive, labeled = row("naive", 0), row("labeled", 0.2)
    methods = [row("a", 0.02), row("b", 0.015), row("c", -0.02)]
    plain = [crossed_t_test(one.values["ndcg@10"], naive.values["ndcg@10"]) for one in methods]
    tested = [one.against for one in with_tests([naive, *methods, labeled])]
    assert tested[0] is tested[-1] is None  # references are no methods, and count in no correction
    for ours, raw, p in zip(tested[1:-1], plain, holm([test.p for test in plain]), strict=True):
        assert ours is not None
        assert ours.p == pytest.approx(p)
        assert ours.difference == pytest.approx(raw.difference)
    assert max(raw.p for raw in plain) < 1
    assert sum(ours.p > 1.5 * raw.p for ours, raw in zip(tested[1:-1], plain, strict=True) if ours) >= 2


def test_the_verdict_names_the_best_winner_and_counts_seeds_that_are_ahead() -> None:
    naive, good, better = row("naive", 0), row("good", 0.1), row("better", 0.2)
    tied = replace(better, seeds=(*naive.seeds[:2], *better.seeds[2:]))
    tested = with_tests([naive, good, tied])
    assert [one.arm for one in winners(tested)] == ["better", "good"]
    text = verdict("position", {"clicks": tested})
    assert "better reaches nDCG@10" in text
    assert "higher with 2 of 4 seeds" in text  # a tie is not ahead


def test_labels_decide_no_verdict() -> None:
    naive = row("naive", 0)
    by_clicks, by_labels = with_tests([naive, row("dla", 0.001)]), with_tests([naive, row("dla", 0.2)])
    text = verdict("position", {"clicks": by_clicks, "labels": by_labels})
    assert "do not debias" in text
    assert "which a log does not have, dla would win." in text


# ---------------------------------------------------------------------------------------- what a run was made of


def test_a_runs_fingerprint_has_all_that_it_learns_from_and_is_chosen_by(log: Log) -> None:
    half = np.arange(len(log)) % 2 == 0
    train, held = log.take(half), log.take(~half)
    other = replace(held, click=1 - held.click)
    kinds = np.array(["text", "image", None], object)[np.arange(len(train.row)) % 3]
    regraded = replace(VALIDATION, labels=VALIDATION.labels[::-1].copy())
    made = {
        "clicks": LogData(train),
        "held-out": LogData(train, held),
        "other held-out": LogData(train, other),
        "validation": LogData(train, None, VALIDATION),
        "other grades": LogData(train, None, regraded),
        "other features": LogData(train, None, replace(VALIDATION, features=VALIDATION.features + 1)),
        "moved": LogData(replace(train, position=train.position + 1)),
        "columns": LogData(replace(train, columns={"serp_media": kinds})),
        "other columns": LogData(replace(train, columns={"serp_media": kinds[::-1]})),
        "columns of another name": LogData(replace(train, columns={"serp_kind": kinds})),
        "numbers": LogData(replace(train, columns={"serp_height": np.arange(len(kinds)) / 2})),
        "shown otherwise": LogData(replace(train, row=train.row[::-1].copy())),
        "other lists": LogData(replace(train, lists=replace(TRAIN, features=TRAIN.features * 2))),
    }
    prints = {name: data.fingerprint(labels=False) for name, data in made.items()}
    assert len(set(prints.values())) == len(made)
    blind = LogData(replace(train, lists=replace(TRAIN, labels=TRAIN.labels * 0)))
    assert blind.fingerprint(labels=False) == prints["clicks"]  # grades that nobody reads
    assert blind.fingerprint(labels=True) != LogData(train).fingerprint(labels=True)
