"""What a vectorization model of dimension 2 learns: its embedding space, and nDCG when ranking by other vectors.

Trained models are kept in run folders under a hash of all that they depend on, so a second call trains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from unskew import __version__
from unskew.learning.fitting.training import Training
from unskew.learning.methods.base_vectors import base_vector, moments
from unskew.learning.methods.vectorization import Vectorization, VectorizationMethod
from unskew.learning.rankers import RANKERS
from unskew.learning.scoring.model import Model, load_model
from unskew.learning.scoring.scorer import Card
from unskew.measuring import mean_over_seeds, ndcg_metric
from unskew.pages.numbers import Value, around, spread, with_best
from unskew.pages.page import Figure, Section, Table
from unskew.settings import checked, table_of
from unskew.studies.compare.cells import dumped, hash_of
from unskew.studies.compare.config import Asked
from unskew.studies.compare.report import SD_OVER_SEEDS
from unskew.studies.compare.simulated import ListParts, read_data
from unskew.studies.compare.verdict import Row
from unskew.studies.terms import method_term
from unskew.types import Array, Lists
from unskew.workflows.runs.folder import status
from unskew.workflows.runs.learn import learn
from unskew_reproductions.claims import CLAIM_COLUMNS, Judged, judge, tally
from unskew_reproductions.data import DataSet
from unskew_reproductions.figures import embedding_figure, sweep_figure
from unskew_reproductions.methods.found_vectors import principal_direction
from unskew_reproductions.recipe import Claim, Recipe
from unskew_reproductions.trial import How, Tried

BASE = "base vector"
PRINCIPAL = "principal direction"
DRAWN = 1500
"""Documents of the space that are drawn."""


@dataclass(frozen=True)
class Space:
    """The embedding space of one model, on the test lists."""

    relevance: Array
    """[N, 2]."""
    observation: Array
    """[P, 2], a row for each position."""
    base: Array
    """[Q, 2], the base vector of each list."""


@dataclass(frozen=True)
class Drawn:
    """One data set and behaviour: the space of the first seed, and nDCG@10 of every projection."""

    source: DataSet
    behaviour: str
    space: Space
    grades: Array
    rows: dict[str, Row]
    judged: Sequence[Judged]

    @property
    def title(self) -> str:
        """Where it was found."""
        return f"{self.source.title}, {self.behaviour}"


def draw_spaces(recipe: Recipe, chosen: Sequence[DataSet], how: How) -> Tried:
    """Train a model for every data set, behaviour and seed, and look into it."""
    drawn = [found for source in chosen for found in _drawn(recipe, source, how)]
    judged = [one for found in drawn for one in found.judged]
    terms = [method_term("vectorization", "vectorization")]
    return Tried([_section(found) for found in drawn], embedding_records(drawn), judged, terms=terms)


def _drawn(recipe: Recipe, source: DataSet, how: How) -> list[Drawn]:
    asked = how.asked(recipe, source)
    splits = read_data(asked.file.data, Path())
    drawn: list[Drawn] = []
    total = len(asked.behaviours) * len(asked.seeds)
    for label in asked.behaviours:
        spaces: list[Space] = []
        for seed in asked.seeds:
            if how.tell is not None:
                how.tell(len(drawn) * len(asked.seeds) + len(spaces), total, [f"{label}, seed {seed}"])
            model = trained(asked, splits, label, seed, how.out / "runs", how.force)
            spaces.append(space_of(model, splits.test))
        rows = projections(spaces, splits.test)
        claims = [(Claim(first=BASE, second=[name], by="expected"), name) for name in rows if name != BASE]
        drawn.append(Drawn(source, label, spaces[0], splits.test.labels, rows, judge(rows, claims)))
    if how.tell is not None:
        how.tell(total, total, [])
    return drawn


def trained(asked: Asked, splits: ListParts, behaviour: str, seed: int, runs: Path, force: bool) -> Model:
    """The model of this behaviour and seed: from its run folder, else trained into it."""
    file, simulation = asked.file, asked.simulation(behaviour, seed)
    method = checked(Vectorization, file.methods[0], "methods.0")
    ranker = table_of("ranker", file.ranker, RANKERS)
    training = checked(Training, {"threads": 1, "seed": seed} | file.training, "training")
    configs = (simulation, simulation.behaviour, simulation.logger, ranker, method, training)
    about = {"version": __version__, "lists": splits.hashes, "scaling": file.data.scaling}
    folder = runs / hash_of(about | {"configs": [dumped(config) for config in configs]})
    if force or status(folder) != "finished":
        learn(
            simulation.draw(splits.train),
            method,
            ranker=ranker,
            scaling=file.data.scaling,
            validation=splits.validation,
            training=training,
            out=folder,
            force=force,
            engine="none",
        )
        if status(folder) == "interrupted":
            raise KeyboardInterrupt
    return load_model(folder, Card.read(folder))


def space_of(model: Model, lists: Lists) -> Space:
    """Embeddings of the lists' documents, of the positions, and base vectors of the lists."""
    method = cast(VectorizationMethod, model.method)
    model.ranker.eval()
    scaled = torch.from_numpy(np.asarray(model.scaler.apply(lists).features, np.float32))
    sizes = lists.sizes
    with torch.no_grad():
        flat = torch.cat([model.ranker(block) for block in torch.split(scaled, 65_536)])
        where = torch.from_numpy(np.arange(int(sizes.max())) < sizes[:, None])
        padded = flat.new_zeros(*where.shape, flat.shape[-1])
        padded[where] = flat
        base, r = base_vector(*moments(padded, method.outputs), where), padded[..., : method.outputs]
        observation = method.observation(method.factors.ranks())
    return Space(r[where].numpy(), observation.detach().numpy(), base.numpy())


def projections(spaces: Sequence[Space], lists: Lists) -> dict[str, Row]:
    """nDCG@10 of each query when ranking by r . b, by r . o of each position, and by the principal direction."""
    each = [_vectors(space, lists.sizes) for space in spaces]
    rows = {}
    for name in each[0]:
        scores = [(space.relevance * on[name]).sum(-1) for space, on in zip(spaces, each, strict=True)]
        values = np.stack([ndcg_metric(s, lists.labels, offsets=lists.offsets, at=10) for s in scores])
        rows[name] = Row(name, "", {"ndcg@10": mean_over_seeds(np.nanmean(values, axis=1))}, {"ndcg@10": values})
    return rows


def _vectors(space: Space, sizes: Array) -> dict[str, Array]:
    """What relevance [N, 2] is projected on: a vector, or one for each document."""
    r, towards = space.relevance, torch.from_numpy(space.base.mean(0))
    moments = (torch.from_numpy(r.mean(0)), torch.from_numpy(r.T @ r / len(r)))
    positions = {f"position {k}": o for k, o in enumerate(space.observation, start=1)}
    principal = principal_direction(*moments, towards).numpy()
    return {BASE: np.repeat(space.base, sizes, axis=0), **positions, PRINCIPAL: principal}


def _section(found: Drawn) -> Section:
    means = {name: row.ndcg for name, row in found.rows.items()}
    others = [summary.mean for name, summary in means.items() if name.startswith("position")]
    text = (
        f"Projections on one position range from nDCG@10 {min(others):.3f} to {max(others):.3f}; the base vector "
        f"has {means[BASE].mean:.3f}, the principal direction {means[PRINCIPAL].mean:.3f}. {tally(found.judged)}"
    )
    against = {judged.second: judged.cells()[1:] for judged in found.judged}
    rows = [[name, spread(means[name]), *against.get(name, ["", "", "", ""])] for name in found.rows]
    columns = ("ranked by", "nDCG@10", "base ahead", *CLAIM_COLUMNS[2:4], "base vector > this")
    table = Table(columns, rows, "Projections", text=columns[-1:])
    values = {1: [Value.of(summary) for summary in means.values()]}
    table = with_best(table, values, among="the vectors projected on", spread=SD_OVER_SEEDS)
    figures = [Figure(_space_chart(found), scales=False), Figure(_projection_chart(found))]
    return Section(found.title, text, [table], figures)


def _space_chart(found: Drawn) -> Any:
    space, count = found.space, min(DRAWN, len(found.grades))
    sample = np.random.default_rng(0).choice(len(found.grades), count, replace=False)
    radius = float(np.quantile(np.abs(space.relevance[sample]), 0.99)) or 1.0
    points = [
        {"x": float(x), "y": float(y), "grade": int(grade)}
        for (x, y), grade in zip(space.relevance[sample], found.grades[sample], strict=True)
    ]
    ends = _unit(space.observation) * radius
    directions = [{"position": k, "x": float(x), "y": float(y)} for k, (x, y) in enumerate(ends, start=1)]
    base = _unit(_unit(space.base).mean(0)) * radius
    return embedding_figure(found.title, points, directions, (float(base[0]), float(base[1])), radius)


def _projection_chart(found: Drawn) -> Any:
    """Ranking by the o of each position, and dashed by the base vector."""
    rows = [
        around(row.ndcg) | {"series": BASE if name == BASE else "one position", "x": index or None}
        for index, (name, row) in enumerate(found.rows.items())  # the base vector comes first
        if name != PRINCIPAL
    ]
    return sweep_figure("Ranking by projection", rows, "position whose o is projected on", "nDCG@10")


def _unit(vectors: Array) -> Array:
    unit: Array = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit


def embedding_records(drawn: Sequence[Drawn]) -> list[dict[str, Any]]:
    """Rows of numbers.parquet."""
    return [
        {"data": found.source.name, "behaviour": found.behaviour, "method": name, "metric": "ndcg@10"}
        | {"measured": row.ndcg.mean, "sd": None if isnan(row.ndcg.sd) else row.ndcg.sd, "seeds": row.ndcg.seeds}
        for found in drawn
        for name, row in found.rows.items()
    ]
