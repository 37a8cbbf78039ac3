"""Rankers that read: a cross-encoder alone, or mixed with features such as tracked clicks.

Reference: Zou et al., "Approximated Doubly Robust Search Relevance Estimation", CIKM 2022, sections 4, 6.2, 7.3.

    h = encoder([CLS] query [SEP] title abstract [SEP])        x: features of the document
    cross_encoder        w . h + b
    vanilla_mix          MLP([h, x])
    doubly_robust_mix    w . h + b,  MLP_1(x),  MLP_2(x), ...   the first output reads, the others have clicks

The last is made for the method `approximated_dr`: imputation, affine estimate and coefficient share no weight.

Differences from the paper: any encoder in the place of ERNIE 2.0; networks are LayerNorm, Linear, ELU, as others
here; the encoder takes smaller steps than they do, where the published ones all take steps of 2e-6.
Legend: n documents, D features, L tokens, H width of the encoder, O outputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.errors import ConfigError
from unskew.learning.rankers.encoder import TextEncoder, TextRanker, open_encoder
from unskew.learning.rankers.networks import MLP, NOTHING, ClickNetworks, alone, network


class TextTower(nn.Module):
    """An encoder and what makes outputs of its vectors and the features, [n, D + L] -> [n, O]."""

    def __init__(
        self,
        encoder: TextEncoder,
        features: int,
        head: nn.Module,
        *,
        mixed: bool = False,
        others: nn.Module | None = None,
    ) -> None:
        """The head takes h, with x beside it where it is `mixed`; `others` take x alone, for more outputs."""
        super().__init__()
        self.encoder, self.features, self.head, self.mixed, self.others = encoder, features, head, mixed, others

    def forward(self, documents: Tensor) -> Tensor:
        """Outputs of each document."""
        h, x = self.encoder(documents[:, self.features :]), documents[:, : self.features]
        first: Tensor = self.head(torch.cat([h, x], dim=-1) if self.mixed else h)
        return first if self.others is None else torch.cat([first, self.others(x)], dim=-1)

    def side(self, sizes: tuple[int, ...]) -> nn.Module:
        """A second network on what the encoder reads, as it stands, and on the features."""
        return OnText(self, network(self.encoder.width + self.features, sizes, MLP(), norm=False))


class OnText(nn.Module):
    """A network on the vectors of an encoder that is trained elsewhere, and on the features."""

    def __init__(self, tower: TextTower, layers: nn.Module) -> None:
        super().__init__()
        self.tower, self.layers = (tower,), layers  # in a tuple torch does not count its weights as ours

    def forward(self, documents: Tensor) -> Tensor:
        """Outputs of each document; no gradient reaches the encoder."""
        (tower,) = self.tower
        with torch.no_grad():
            h = tower.encoder(documents[:, tower.features :])
        return self.layers(torch.cat([h, documents[:, : tower.features]], dim=-1))  # type: ignore[no-any-return]


class CrossEncoder(TextRanker):
    """A cross-encoder: query and document read together."""

    name: Literal["cross_encoder"] = "cross_encoder"

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> TextTower:
        """The encoder with a new head; features are not looked at."""
        encoder = open_encoder(self)
        return TextTower(encoder, features, network(encoder.width, (outputs,), MLP(), at_zero))


class MixedRanker(TextRanker):
    """What the rankers of text and features may be told."""

    sizes: tuple[int, ...] = Field((64, 32, 16), strict=False)
    """Hidden units of the networks."""

    def opened(self, features: int) -> TextEncoder:
        """The encoder, after a check that there are features to mix with."""
        if not features:
            what = "mixes text with features, and the documents have none"
            raise ConfigError(f"{self.name} {what}; give features, or use cross_encoder")
        return open_encoder(self)


class VanillaMix(MixedRanker):
    """One network on what a cross-encoder reads and on the features."""

    name: Literal["vanilla_mix"] = "vanilla_mix"

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> TextTower:
        """The encoder with a new network on it."""
        encoder = self.opened(features)
        head = network(encoder.width + features, (*self.sizes, outputs), MLP(), at_zero)
        return TextTower(encoder, features, head, mixed=True)


class DoublyRobustMix(MixedRanker):
    """A cross-encoder for the first output, and for each other a network on the features."""

    name: Literal["doubly_robust_mix"] = "doubly_robust_mix"

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> TextTower:
        """The encoder with a new head, and new networks."""
        encoder = self.opened(features)
        head = network(encoder.width, (1,), MLP(), alone(0, at_zero, outputs))
        others = ClickNetworks(features, outputs, at_zero, self.sizes)
        return TextTower(encoder, features, head, others=others)
