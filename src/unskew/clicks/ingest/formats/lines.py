"""Lines of bounded length from the bytes of a file, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from unskew.clicks.ingest.formats.options import ReaderOptions
from unskew.disk import unpacked

HELD = 1_000
"""Bytes kept of a line that is too long."""


def lines(path: Path, options: ReaderOptions) -> Iterator[tuple[int, bytes, bool]]:
    """Every line that is not blank: its number from 1, its bytes, and whether it was too long to be held whole."""
    number, held, too_long = 1, b"", False
    for block in blocks(path, options):
        first, *others = block.split(b"\n")
        held, too_long = _extend(held, too_long, first, options.longest_line)
        for piece in others:
            if too_long or held.strip():
                yield number, held.rstrip(b"\r"), too_long
            number += 1
            held, too_long = _extend(b"", False, piece, options.longest_line)
    if too_long or held.strip():
        yield number, held.rstrip(b"\r"), too_long


def _extend(held: bytes, too_long: bool, piece: bytes, longest: int) -> tuple[bytes, bool]:
    """The line so far; only the head of one that has grown too long."""
    if too_long:
        return held, True
    if len(held) + len(piece) > longest:
        return (held + piece[:HELD])[:HELD], True
    return held + piece, False


def blocks(path: Path, options: ReaderOptions) -> Iterator[bytes]:
    """The decompressed bytes of a file, without a byte order mark."""
    return unpacked(path, expansion=options.expansion, floor=options.expansion_floor)
