"""Texts as the graph of an encoder takes them, and the vectors that it gives back; no torch.

| `ids`, `types`, `places` | int64 [n, L]: number of each token, 1 in the document and 0 in the query, its place |
|--------------------------|-------------------------------------------------------------------------------------|
| `mask`, `share`          | float32 [n, L]: 0 where padded, and the part of each token in the text's vector     |

A model folder keeps what this takes in `text/reading.json`, beside the tokenizer.

Legend: n texts, L tokens, H width of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError, optional
from unskew.files import read_json, write_json
from unskew.types import Array

TOKENIZER, READING = "tokenizer.json", "reading.json"
INPUTS = ("ids", "types", "places", "mask", "share")
MOST_TOKENS = 100_000
AT_ONCE = 16_384
"""Tokens encoded at once."""
LARGEST = 2**28
"""Bytes of a tokenizer that are read."""


@dataclass(frozen=True)
class TextInputs:
    """How an encoder reads."""

    longest: int
    """Most tokens of a query with its document."""
    pad: int
    """Number of the token that pads."""
    types: bool
    """Whether query and document have types of their own."""
    counted: bool
    """Whether places count the tokens that do not pad, from the number of the one that does, as RoBERTa has it."""
    mean: bool
    """Whether the vector is the mean over all tokens; else it is that of the first."""
    left: bool = False
    """Whether texts that are too long are cut at their start."""

    @classmethod
    def read(cls, folder: Path) -> TextInputs:
        """As the folder of the tokenizer says."""
        found = read_json(folder / READING)
        made = cls(**found)
        flags = (made.types, made.counted, made.mean, made.left)
        if type(made.longest) is not int or type(made.pad) is not int or {*map(type, flags)} != {bool}:
            raise DataError(f"{READING}: not as it was written")
        if not 1 <= made.longest <= MOST_TOKENS or made.pad < 0:
            raise DataError(f"{READING}: {made.longest} tokens, padded with {made.pad}")
        return made

    def write(self, folder: Path) -> None:
        """Write it beside the tokenizer."""
        write_json(folder / READING, asdict(self))

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

    def inputs(self, codes: Array) -> dict[str, Array]:
        """What the graph takes, from codes [n, L] with -1 where padded.

        >>> given = TextInputs(8, 1, types=True, counted=True, mean=True).inputs(np.array([[10, 15], [10, -1]]))
        >>> {name: value.tolist() for name, value in given.items()}
        ... # doctest: +NORMALIZE_WHITESPACE
        {'ids': [[5, 7], [5, 1]], 'types': [[0, 1], [0, 0]], 'places': [[2, 3], [2, 1]],
         'mask': [[1.0, 1.0], [1.0, 0.0]], 'share': [[0.5, 0.5], [1.0, 0.0]]}
        """
        where = codes >= 0
        ids = np.where(where, codes // 2, self.pad)
        places = np.broadcast_to(np.arange(codes.shape[1]), codes.shape)
        if self.counted:
            own = ids != self.pad
            places = np.cumsum(own, 1) * own + self.pad
        first = np.arange(codes.shape[1]) == 0
        share = where / np.maximum(where.sum(1, keepdims=True), 1) if self.mean else where * first
        return {
            "ids": ids,
            "types": np.where(where, codes % 2, 0) * self.types,
            "places": np.ascontiguousarray(places, np.int64),
            "mask": where.astype(np.float32),
            "share": share.astype(np.float32),
        }

    def vectors(self, codes: list[Array], width: int, graph: Callable[[Mapping[str, Array]], Array]) -> Array:
        """h of each text, [n, H]: those of about equal length go through the graph together."""
        found = np.zeros((len(codes), width), np.float32)
        order = sorted(range(len(codes)), key=lambda at: len(codes[at]))
        while order:
            count = max(min(AT_ONCE // max(len(codes[order[-1]]), 1), len(order)), 1)  # the longest go first
            part, order = order[-count:], order[:-count]
            padded = np.full((count, max(len(codes[part[-1]]), 1)), -1, np.int64)
            for row, at in enumerate(part):
                padded[row, : len(codes[at])] = codes[at]
            found[part] = graph(self.inputs(padded))
        return found
