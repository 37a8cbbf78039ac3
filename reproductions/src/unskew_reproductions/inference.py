"""The time of ranking: a vectorization model against a ranker of one number, taking turns in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from unskew.learning.fitting.runtime import threads
from unskew.learning.methods import Context, MethodConfig
from unskew.learning.methods.naive import Naive
from unskew.learning.methods.vectorization import Vectorization
from unskew.learning.rankers import MLP
from unskew.learning.scoring.model import Model, build
from unskew.pages.page import Section, Table, Term
from unskew.studies.compare.simulated import read_data
from unskew.studies.terms import method_term
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Array, Lists
from unskew_reproductions.data import DataSet
from unskew_reproductions.recipe import Inference, Recipe
from unskew_reproductions.trial import How, Tried

TIMED = ("vectorization", "scalar")
POSITIONS = 10
_WARM_UP = 3
_DUMMY = {"behaviours": [{"name": "position"}], "methods": [{"name": "naive"}]}


@dataclass(frozen=True)
class Timed:
    """Seconds of each turn of both models on one data set."""

    source: DataSet
    paper: dict[str, float]
    """Seconds that the paper prints."""
    lists: int
    documents: int
    seconds: dict[str, Array]

    @property
    def ratio(self) -> Array:
        """Vectorization over scalar, turn by turn."""
        return self.seconds["vectorization"] / self.seconds["scalar"]


def time_models(recipe: Recipe, chosen: Sequence[DataSet], how: How) -> Tried:
    """The time of both models on each data set."""
    timed = [time_ranking(recipe, source, how) for source in chosen]
    scalar = Term("scalar", "A ranker that gives a document one number, as most methods have.")
    terms = [method_term("vectorization", "vectorization"), scalar]
    return Tried([_section(found) for found in timed], inference_records(timed), terms=terms)


def time_ranking(recipe: Recipe, source: DataSet, how: How) -> Timed:
    """Rank a batch of lists again and again with both, in turns."""
    asked = recipe.inference
    assert asked is not None
    data = how.asked(recipe.model_copy(update={"compare": _DUMMY}), source).file.data
    lists = batch_of(read_data(data, Path()).test, asked.lists)
    models = {name: untrained(name, asked, lists) for name in TIMED}
    scaled = np.asarray(models["scalar"].scaler.apply(lists).features, np.float32)
    repeats = min(asked.repeats, 20) if how.quick else asked.repeats
    seconds: dict[str, list[float]] = {name: [] for name in TIMED}
    with threads(1):
        for turn in range(_WARM_UP + repeats):
            for name in TIMED if turn % 2 else TIMED[::-1]:  # neither is always first
                began = time.perf_counter()
                rank_all(models[name], scaled, lists.sizes)
                if turn >= _WARM_UP:
                    seconds[name].append(time.perf_counter() - began)
    taken = {name: np.array(times) for name, times in seconds.items()}
    return Timed(source, asked.paper, len(lists), len(lists.features), taken)


def batch_of(lists: Lists, count: int) -> Lists:
    """So many lists; those of a small set come several times."""
    return lists.take(np.arange(count) % len(lists))


def untrained(name: str, asked: Inference, lists: Lists) -> Model:
    """A model with random weights, which cost as much as trained ones."""
    method: MethodConfig = (
        Vectorization(dimension=asked.dimension, base=tuple(asked.base)) if name == "vectorization" else Naive()
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        context = Context(POSITIONS)
        model = build(method, MLP(sizes=tuple(asked.sizes)), fit_scaler("standard", lists), lists.dim, context)
    if name == "vectorization":
        model.method.get_buffer("ready").fill_(1)  # rank by the base vector, as after training
    return model


def rank_all(model: Model, scaled: Array, sizes: Array) -> Array:
    """Documents of all lists in ranked order, list after list."""
    scores = model.score_prepared(scaled, sizes)
    return np.lexsort([-scores, np.repeat(np.arange(len(sizes)), sizes)])


def _section(found: Timed) -> Section:
    paper = found.paper
    columns = ("model", "paper", "here, median", "quartiles", "")
    rows = [[name, f"{paper[name]:.3f} s", *_quartiles(found.seconds[name], "{:.4f} s"), ""] for name in TIMED]
    printed = paper["vectorization"] / paper["scalar"]
    rows.append(["ratio", f"{printed:.3f}", *_quartiles(found.ratio, "{:.3f}"), "turn by turn"])
    more = 100 * (float(np.median(found.ratio)) - 1)
    verdict = f"Vectorization takes {abs(more):.1f} % {'more' if more > 0 else 'less'} time here"
    size = (
        f"{found.lists} lists with {found.documents:,} documents, {len(found.ratio)} turns, one processor thread"
    )
    text = f"{verdict}; the paper prints {100 * (printed - 1):.1f} % more. {size}."
    return Section(found.source.title, text, [Table(columns, rows, "Time of ranking a batch", text=("",))])


def _quartiles(values: Array, form: str) -> tuple[str, str]:
    low, middle, high = (form.format(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return middle, f"{low} to {high}"


def inference_records(timed: Sequence[Timed]) -> list[dict[str, object]]:
    """Rows of numbers.parquet."""
    return [
        {"data": found.source.name, "method": name, "metric": "seconds" if name in TIMED else "ratio"}
        | {"measured": float(np.median(values)), "paper": printed[name], "comparable": name == "ratio"}
        for found in timed
        for printed in (found.paper | {"ratio": found.paper["vectorization"] / found.paper["scalar"]},)
        for name, values in (found.seconds | {"ratio": found.ratio}).items()
    ]
