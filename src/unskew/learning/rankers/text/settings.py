"""What the rankers that read may be told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field

from unskew.learning.rankers.contract import RankerConfig

FOLDER = "text"
"""Where a model folder keeps the encoder's config and the tokenizer's files."""
ROUND = 100
"""Steps of the first round, where no number of steps is given."""


class TextRanker(RankerConfig):
    """An encoder of transformers, and how it is used."""

    fitted_by: ClassVar[Literal["steps"]] = "steps"
    model: str
    """The encoder with its tokenizer: a folder, or a name on the Hugging Face hub."""
    scratch: bool = False
    """Start from random weights rather than from the model's."""
    max_length: int = Field(256, ge=8)
    """Most tokens of a query with its document; the longer of the two is cut."""
    pooling: Literal["cls", "mean"] = "cls"
    """h is the vector of [CLS], as published, or the mean over all tokens."""
    encoder_rate: float = Field(0.01, gt=0)
    """Step size of the encoder, as a share of `training.learning_rate`."""
    frozen: int = Field(0, ge=0)
    """Layers, counted from the input, that keep their weights; with any, the embeddings keep theirs too. With all
    each text is encoded once, and training costs what a network on the vectors costs."""
    tokens: int = Field(16_384, ge=1)
    """Tokens encoded at once. A batch with more is encoded in parts whose gradients add up: the step is the same,
    the memory is that of one part, the time about a third more."""
    cache: int = Field(20_000, ge=0)
    """Texts whose vectors a trained model remembers from call to call; 0 remembers none."""
    pretraining: int = Field(0, ge=0)
    """Steps of masked-language training on the texts of the log before it learns from clicks."""
    pretraining_rate: float = Field(5e-5, gt=0)
    """Largest step size of that."""
    bfloat16: bool = False
    """Encode in 16 bits, which newer GPUs do faster."""

    @property
    def reads(self) -> bool:
        """It does."""
        return True

    def usual_training(self, steps: int | None) -> Mapping[str, int]:
        """Small batches, a tenth of the steps (of the first round) to warm up, and ten validations."""
        tenth = (steps or ROUND) // 10
        return {"batch": 16, "warmup": tenth, "validate_every": max(tenth, 1)}

    def located(self, folder: Path) -> Self:
        """The encoder in this folder, if it is there; else it stays a name."""
        there = (folder / self.model).is_dir()
        return self.model_copy(update={"model": str((folder / self.model).resolve())}) if there else self

    def kept_in(self, folder: Path) -> Self:
        """The same with the encoder that a model folder keeps; its weights are read with the others."""
        return self.model_copy(update={"model": str(folder / FOLDER), "scratch": True})
