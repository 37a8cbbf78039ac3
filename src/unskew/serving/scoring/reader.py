"""Texts read by the encoder of a saved run, through onnxruntime: one vector for each document; no torch.

Vectors of texts are remembered from request to request, as a trained model does (`ranker.cache`): the oldest are
forgotten first.

Legend: n documents, H width of the encoder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError
from unskew.files import read_json
from unskew.learning.scoring.onnx_file import CODES, ENCODER, READER, available, read_graph
from unskew.learning.scoring.text_inputs import READING, TextInputs
from unskew.types import Array, Lists

FOLDER = "text"
MOST_REMEMBERED = 1_000_000


@dataclass
class TextReader:
    """The tokenizer and the encoder of a run."""

    reading: TextInputs
    tokenizer: Any
    graph: Callable[[Array], Array]
    """Vectors [n, H] of codes [n, L]."""
    width: int
    """H."""
    cache: int
    """Texts whose vectors are remembered."""
    known: dict[bytes, Array] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def read(cls, folder: Path, ranker: Mapping[str, Any], threads: int) -> TextReader:
        """As the folder of a run has them, or why they cannot be read without torch."""
        if not available():
            raise DataError("it reads texts, which takes onnx and onnxruntime; run: pip install 'unskew[serve]'")
        if not (folder / ENCODER).exists() or not (folder / FOLDER / READING).exists():
            told = read_json(folder / "model.json").get("no_onnx") or f"there is no {ENCODER}"
            hint = f"`unskew export {folder} --to onnx` writes it now, where the encoder allows it"
            raise DataError(f"it was saved without what reads texts: {str(told)[:400]} ({hint})")
        reading = TextInputs.read(folder / FOLDER)
        _, run = read_graph(folder / ENCODER, CODES, READER, threads)
        width = run({CODES: np.zeros((1, 1), np.int64)})[0].shape[-1]
        cache = min(int(ranker.get("cache", 0)), MOST_REMEMBERED)
        tokenizer = reading.tokenizer(folder / FOLDER)
        return cls(reading, tokenizer, lambda codes: run({CODES: codes})[0], width, cache)

    def vectors(self, lists: Lists) -> Array:
        """h of each document with its query, [n, H]."""
        if lists.texts is None:
            raise DataError("the model reads text, and the documents have none; give a query and a text for each")
        asked = np.repeat(lists.texts.query, lists.sizes)
        codes = self.reading.codes(self.tokenizer, asked, lists.texts.document)
        keys = [each.tobytes() for each in codes]
        with self.lock:
            found = {key: self.known[key] for key in keys if key in self.known}
        new = {key: each for key, each in zip(keys, codes, strict=True) if key not in found}
        if new:
            made = self.reading.vectors([*new.values()], self.width, self.graph)
            found |= dict(zip(new, made, strict=True))
            self._remember({key: found[key] for key in new})
        return np.stack([found[key] for key in keys]) if keys else np.zeros((0, self.width), np.float32)

    def _remember(self, new: dict[bytes, Array]) -> None:
        """Add vectors, and forget the oldest."""
        with self.lock:
            self.known |= new
            for key in [*self.known][: max(len(self.known) - self.cache, 0)]:
                del self.known[key]
