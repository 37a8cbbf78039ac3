"""Mixtures: each page is by a user of one of several click models, who does not change within the page.

    P(clicks of a page) = Σ_z π_z P_z(clicks)

The expected share r_z of each model in each page weighs that page when the model takes its own round, so each
round raises the likelihood, as it does for one model alone. Every model has its own parameters; two of one kind
start a little apart, by `seed`, as they could not part otherwise. The relevance of a pair is the chance that a
page clicks it at rank 1, Σ_z π_z P_z(c_1): the models' own measures are of different scales.

The idea is that of mixtures as in Yan et al., "Revisiting two-tower models for unbiased learning to rank", SIGIR
2022; there the mixture is of losses for a ranker (method `mixem`), here of whole click models without features.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, SerializeAsAny

from unskew.diagnosis.click_models.contract import ClickModel, log_chances
from unskew.diagnosis.click_models.em import SHARE, Assumed, Expected, Parameters, Prior
from unskew.diagnosis.click_models.pages import ClickPages
from unskew.types import Array


class MixedPages(NamedTuple):
    """Pages, and what each model counts on them, in every round by its shares."""

    pages: ClickPages
    parts: tuple[Callable[[Array], Any], ...]


class ModelMixture(ClickModel):
    """Several click models; every page follows one of them."""

    models: Annotated[tuple[SerializeAsAny[ClickModel], ...], Field(min_length=2, strict=False)]
    """The models, each with its settings."""
    seed: Annotated[int, Field(ge=0)] = 0
    """How parameters of two models of one kind start apart."""

    def priors(self) -> dict[str, Prior]:
        """Those of the models, and one more page for each."""
        kinds = enumerate(model.priors() for model in self.models)
        own = {join(z, name): prior for z, priors in kinds for name, prior in priors.items()}
        return own | {SHARE: Prior(mean=1 / len(self.models), strength=float(len(self.models)))}

    def counter(self, pages: ClickPages) -> Callable[[Array], MixedPages]:
        """The pages with these weights, and what every model needs of them."""
        parts = tuple(model.counter(pages) for model in self.models)
        return lambda weight: MixedPages(replace(pages, weight=weight), parts)

    def start(self, pages: ClickPages) -> Parameters:
        """As the models start, a little apart."""
        rng, made = np.random.default_rng(self.seed), {}
        for z, model in enumerate(self.models):
            for name, values in model.start(pages).items():
                made[join(z, name)] = np.clip(values * rng.uniform(0.9, 1.1, values.shape), 0.01, 0.99)
        return made | {SHARE: np.full(len(self.models), 1 / len(self.models))}

    def split(self, parameters: Parameters) -> list[tuple[ClickModel, Parameters, float]]:
        """Each model, its parameters under their own names, and its share."""
        found = []
        for z, (model, share) in enumerate(zip(self.models, parameters[SHARE], strict=True)):
            found.append((model, {name: parameters[join(z, name)] for name in model.priors()}, float(share)))
        return found

    def shares(self, parameters: Parameters, pages: ClickPages, *, above: bool = False) -> tuple[Array, Array]:
        """log P(clicks) of each page and the shares of the models in it, [Z, S]; `above`: of the clicks above."""
        logs = []
        for model, own, _ in self.split(parameters):
            each = log_chances(model.conditional(own, pages), pages)  # what is impossible has a small chance
            logs.append(np.cumsum(each, axis=1) - each if above else each.sum(1))
        joint = np.stack(logs) + np.log(parameters[SHARE]).reshape(-1, *[1] * logs[0].ndim)
        total = np.logaddexp.reduce(joint, axis=0)
        return total, np.exp(joint - total)

    def expect(self, counts: MixedPages, parameters: Parameters) -> Expected:
        """Each model's round, on pages weighed by its share in them."""
        weight = counts.pages.weight
        total, shares = self.shares(parameters, counts.pages)
        made: dict[str, tuple[Array, Array]] = {}
        parts = zip(self.split(parameters), counts.parts, shares, strict=True)
        for z, ((model, own, _), part, share) in enumerate(parts):
            found = model.expect(part(weight * share), own)
            made |= {join(z, name): pair for name, pair in found.counts.items()}
        made[SHARE] = shares @ weight, np.full(len(shares), weight.sum())
        return Expected(float(total @ weight), made)

    def conditional(self, parameters: Parameters, pages: ClickPages) -> Array:
        """The models' chances, by their shares given the clicks above."""
        _, shares = self.shares(parameters, pages, above=True)
        parts = zip(self.split(parameters), shares, strict=True)
        return np.asarray(sum(share * model.conditional(own, pages) for (model, own, _), share in parts))

    def marginal(self, parameters: Parameters, pages: ClickPages) -> Array:
        """The models' chances, by their shares of all pages."""
        parts = self.split(parameters)
        return np.asarray(sum(share * model.marginal(own, pages) for model, own, share in parts))

    def relevance(self, parameters: Parameters) -> Array | None:
        """Chance of a click at rank 1; None where no model tells documents apart."""
        return np.asarray(self.on_top(parameters)) if any(model.of_pairs for model in self.models) else None

    def on_top(self, parameters: Parameters) -> Array | float:
        """Σ_z π_z P_z(c_1)."""
        found: Array | float = sum(share * model.on_top(own) for model, own, share in self.split(parameters))
        return found

    def variance(self, counts: Any, parameters: Parameters, assumed: dict[str, Assumed]) -> Array | None:
        """Σ_z (π_z P_z(c_1)/relevance_z)² of each model's own variance, with shares taken as they are."""
        _, shares = self.shares(parameters, counts.pages)
        total = None
        for z, (model, own, share) in enumerate(self.split(parameters)):
            part = counts.parts[z](counts.pages.weight * shares[z])
            given = {name: assumed[join(z, name)] for name in own}
            found, relevance = model.variance(part, own, given), model.relevance(own)
            if found is not None and relevance is not None:
                scale = share * model.on_top(own) / relevance
                total = scale**2 * found + (0.0 if total is None else total)
        return total


def join(model: int, name: str) -> str:
    """What a parameter of a model is called within a mixture: `2 examination` is of the third."""
    return f"{model} {name}"
