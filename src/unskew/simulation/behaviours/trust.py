"""Trust bias: high ranks are also clicked for being high.

A. Agarwal et al., "Addressing trust bias for unbiased learning-to-rank", WWW 2019; the numbers are those of
M. Chen et al., "Scalar is not enough: vectorization-based unbiased learning to rank", KDD 2022 (Eq. 13).

    P(c_k) = θ_k^η (ε⁺_k g + ε⁻_k (1 - g)),   ε⁺_k = 1 - (k + 1)/100,   ε⁻_k = 0.65/k

Differences from the paper: it states g without noise, its published configuration has noise 0.1; choose with
`version`. Clicks are not examination times relevance here: the truth of a log is θ^η and g.
"""

from typing import Literal

from unskew.simulation.behaviours.behaviour import (
    Curve,
    Independent,
    RankCurve,
    Shown,
    at_ranks,
    relevance_probability,
)
from unskew.types import Array


class TrustBias(RankCurve, Independent):
    """Users examine by rank, and trust the ranking when they judge."""

    called = "trust bias"

    version: Literal["paper", "published"] = "paper"
    """"paper": g has no noise; "published": g has the behaviour's noise, as in the authors' configuration."""
    relevant: Curve = tuple(1 - (k + 1) / 100 for k in range(1, 11))
    """ε⁺: probability of a click on an examined relevant result at ranks 1, 2, ..."""
    irrelevant: Curve = tuple(0.65 / k for k in range(1, 11))
    """ε⁻: probability of a click on an examined irrelevant result at ranks 1, 2, ..."""

    def relevance(self, shown: Shown) -> Array:
        """The g of every result, [S, K] float32."""
        noise = self.noise if self.version == "published" else 0.0
        return relevance_probability(shown.labels, noise=noise, max_grade=self.max_grade)

    def affine(self, ranks: int) -> tuple[Array, Array]:
        """α_k = θ_k^η (ε⁺_k - ε⁻_k) and β_k = θ_k^η ε⁻_k, so that P(c_k) = α_k g + β_k.

        >>> alpha, beta = TrustBias().affine(2)
        >>> alpha.round(3).tolist(), beta.round(3).tolist()
        ([0.224, 0.393], [0.442, 0.198])
        """
        theta = at_ranks(self.curve, ranks) ** self.severity
        plus, minus = at_ranks(self.relevant, ranks), at_ranks(self.irrelevant, ranks)
        return theta * (plus - minus), theta * minus

    def causes(self, shown: Shown) -> tuple[Array, Array, Array]:
        """α_k g + β_k, θ_k^η and g."""
        ranks, g = shown.where.shape[1], self.relevance(shown)
        alpha, beta = self.affine(ranks)
        return alpha * g + beta, self.examination(ranks), g
