"""Vectorization with other vectors that embeddings are projected on to be ranked: three ways to find them.

Reference: Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased Learning to Rank", KDD 2022, sections
4.2 and 4.3 and appendix E.

    factor    b = o(t*), t* = argmax_t prod_i P(t | x_i)        most likely bias factors of the list  (Eq. 5, 6)
    labels    b = argmin sum_i (y_i - r_i . b)^2                from a few labels                     (section 4.2)
    pca       b = the direction in which r varies most          a baseline, found not better          (appendix E)

Differences from the paper: those of `vectorization`.

Legend: B lists, K documents of a list, d length of an embedding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from unskew.errors import ConfigError, Key
from unskew.learning.methods.contract import Context
from unskew.learning.methods.vectorization import Vectorization, VectorizationMethod
from unskew.types import ClickBatch
from unskew_reproductions.methods.found_vectors import (
    FoundVector,
    by_factor,
    factor_loss,
    label_vector,
    likely_values,
)


class ProjectedMethod(VectorizationMethod):
    """Softmax loss of r . o, and another vector that is projected on."""

    config: Projected
    common: FoundVector

    def __init__(self, config: Projected, context: Context) -> None:
        super().__init__(config, context)
        self.common = FoundVector(self.outputs, config.project)
        side, width = self.side, sum(self.factors.sizes.values())
        if config.project == "factor" and not width:
            what = "needs the rank, or a column of few values"
            raise ConfigError(what, argument=Key("method.project"), value=config.project)
        self.side = replace(side, width=width) if side is not None and config.project == "factor" else None

    def side_loss(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Stage 2: how likely the factors of the documents shown are; nothing where there is no second network."""
        if self.side is None:
            return torch.zeros(())
        logits = by_factor(relevance[..., self.outputs :], self.factors.sizes)
        return factor_loss(logits, self.factors.of(batch), where=batch.where, weights=batch.impressions)

    def settle(self, relevance: Tensor, labels: Tensor, where: Tensor) -> None:
        """Solve for the base vector that labels ask for."""
        self.common.solved.copy_(label_vector(relevance[..., : self.outputs], labels, where))

    def score_weights(self) -> Tensor | None:
        """b, or None where every list has a base vector of its own."""
        return torch.as_tensor(self.common()) if self.side is None else None

    def base(self, relevance: Tensor, where: Tensor) -> Tensor:
        """b of each list, [B, d]."""
        if self.side is None or self.ready == 0:
            return torch.as_tensor(self.common()).expand(len(relevance), -1)
        likely = likely_values(relevance[..., self.outputs :], self.factors, where)
        return torch.as_tensor(self.observation(likely))


class Projected(Vectorization):
    """Vectorization that projects on something else than the most likely observation embedding of the list."""

    module = ProjectedMethod
    name: Literal["vectorization_projected"] = "vectorization_projected"  # type: ignore[assignment]
    project: Literal["factor", "labels", "pca"] = "pca"
    """What embeddings are projected on to be ranked: o of the most likely factors of the list; a vector from
    labelled validation lists; or, a baseline, where they vary most."""

    @property
    def settles(self) -> bool:
        """Labels of validation lists say what to project on, where that is asked for."""
        return self.project == "labels"
