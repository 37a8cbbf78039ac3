"""Lines of bounded length from the bytes of a file, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from unskew.clicks.ingest.options import IngestOptions
from unskew.disk import unpacked

HELD = 1_000
"""Bytes kept of a line that is too long."""


def lines(path: Path, options: IngestOptions) -> Iterator[tuple[int, bytes, bool]]:
    """Every line that is not blank: its number from 1, its bytes, and whether it was too long to be held whole."""
    number, held, too_long = 1, b"", False
    for block in unpacked(path, expansion=options.files.max_expansion):
        first, *others = block.split(b"\n")
        held, too_long = _extend(held, too_long, first, options.reader.longest_line)
        for piece in others:
            if too_long or held.strip():
                yield number, held.rstrip(b"\r"), too_long
            number += 1
            held, too_long = _extend(b"", False, piece, options.reader.longest_line)
    if too_long or held.strip():
        yield number, held.rstrip(b"\r"), too_long


def _extend(held: bytes, too_long: bool, piece: bytes, longest: int) -> tuple[bytes, bool]:
    """The line so far; only the head of one that has grown too long."""
    if too_long:
        return held, True
    if len(held) + len(piece) > longest:
        return (held + piece[:HELD])[:HELD], True
    return held + piece, False
