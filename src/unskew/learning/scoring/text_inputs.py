"""Texts as the tokens that the graph of an encoder takes, and the vectors that it gives back; no torch.

A model folder keeps what this takes in `text/reading.json`, beside the tokenizer.

Legend: n texts, L tokens, H width of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from unskew.errors import DataError, optional
from unskew.files import read_json, write_json
from unskew.settings import Config
from unskew.types import Array

TOKENIZER, READING = "tokenizer.json", "reading.json"
MOST_TOKENS = 100_000
AT_ONCE = 16_384
"""Tokens encoded at once."""
LARGEST = 2**28
"""Bytes of a tokenizer that are read."""


class TextInputs(Config):
    """How an encoder reads."""

    longest: int = Field(ge=1, le=MOST_TOKENS)
    """Most tokens of a query with its document."""
    types: bool
    """Whether query and document have types of their own."""
    left: bool = False
    """Whether texts that are too long are cut at their start."""

    @classmethod
    def read(cls, folder: Path) -> TextInputs:
        """As the folder of the tokenizer says."""
        return cls(**read_json(folder / READING))

    def write(self, folder: Path) -> None:
        """Write it beside the tokenizer."""
        write_json(folder / READING, self.model_dump())

    def tokenizer(self, folder: Path) -> Any:
        """The tokenizer of the folder, which cuts as training did."""
        path = folder / TOKENIZER
        if path.stat().st_size > LARGEST:
            raise DataError(f"{TOKENIZER} has more than {LARGEST:,} bytes")
        try:
            found = optional("tokenizers", "serve").Tokenizer.from_file(str(path))
        except OSError:
            raise
        except Exception as error:  # the package raises no other kind
            raise DataError(f"{TOKENIZER} is no tokenizer: {str(error)[:200]}") from error
        found.no_padding()
        direction = "left" if self.left else "right"
        found.enable_truncation(self.longest, strategy="longest_first", direction=direction)
        return found

    def codes(self, tokenizer: Any, queries: Array, documents: Array) -> list[Array]:
        """2 i + s of the tokens of each document with its query: i the number, s = 1 in the document."""
        made = tokenizer.encode_batch(list(zip(queries.tolist(), documents.tolist(), strict=True)))
        return [2 * np.array(one.ids, np.int64) + np.array(one.type_ids, np.int64) * self.types for one in made]

    def vectors(self, codes: list[Array], width: int, graph: Callable[[Array], Array]) -> Array:
        """h of each text, [n, H]: those of about equal length go through the graph together."""
        found = np.zeros((len(codes), width), np.float32)
        order = sorted(range(len(codes)), key=lambda at: len(codes[at]))
        while order:
            count = max(min(AT_ONCE // max(len(codes[order[-1]]), 1), len(order)), 1)  # the longest go first
            part, order = order[-count:], order[:-count]
            padded = np.full((count, max(len(codes[part[-1]]), 1)), -1, np.int64)
            for row, at in enumerate(part):
                padded[row, : len(codes[at])] = codes[at]
            found[part] = graph(padded)
        return found
