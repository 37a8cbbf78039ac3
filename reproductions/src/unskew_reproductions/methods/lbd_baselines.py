"""LBD with one of its two decouplings, or with neither: the baselines of its paper.

Reference: Chen et al., "LBD: Decouple Relevance and Observation for Individual-Level Unbiased Learning to Rank",
NeurIPS 2022.

    lbd_lips     o' = o: the Lipschitz penalty alone
    lbd_ber      lambda = 0: the floor under o alone
    unlimited    o' = o and lambda = 0; nothing tells observation from relevance

Differences from the paper: those of `lbd`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unskew_reproductions.methods.lbd_released import ReleasedConfig


class LBDLips(ReleasedConfig):
    """LBD with the Lipschitz penalty alone."""

    name: Literal["lbd_lips"] = "lbd_lips"
    drop: float = Field(0.0, ge=0, lt=1)


class LBDBer(ReleasedConfig):
    """LBD with Bernoulli decoupling alone."""

    name: Literal["lbd_ber"] = "lbd_ber"
    strength: float = Field(0.0, ge=0)


class Unlimited(ReleasedConfig):
    """Observation of rank and document with nothing to keep it apart from relevance."""

    name: Literal["unlimited"] = "unlimited"
    strength: float = Field(0.0, ge=0)
    drop: float = Field(0.0, ge=0, lt=1)
