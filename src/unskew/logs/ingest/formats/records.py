"""What readers of all formats share: cut a file into records, take each one, reject those that are broken."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from unskew.errors import DataError
from unskew.files import unpacked, whole_lines
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.values import Broken, parse_json
from unskew.tables.reading.options import IngestOptions

Pieces = Iterator[tuple[int, bytes, bool]]
"""Number of the line or element, its bytes, whether it was too long to be held."""
HELD = 1_000
"""Bytes kept of a line that is too long."""
_SPECIAL = re.compile(rb'["\\{}\[\]]')


class Reader(ABC):
    """Reads the files of one format into a stage; an error where a file cannot be read at all."""

    def __init__(self, stage: Stage, options: IngestOptions) -> None:
        self.stage, self.options, self.zone = stage, options, ZoneInfo(options.time.zone)

    @abstractmethod
    def read(self, paths: Sequence[Path]) -> None:
        """Stage what these files say, in their order."""


class LineReader(Reader):
    """A reader of formats in which every line is a record by itself."""

    def read(self, paths: Sequence[Path]) -> None:
        """Take every line, and reject those that are broken."""
        for path in paths:
            for row, raw, too_long in lines(path, self.options):
                if not self.stage.attempt(path, row, raw, partial(self.take, raw), too_long=too_long):
                    self.broken(raw)

    @abstractmethod
    def take(self, raw: bytes) -> None:
        """One line; raises Broken before anything of it is staged."""

    def broken(self, raw: bytes) -> None:
        """Called with each line that was rejected; does nothing unless a format needs to know."""


class JsonReader(Reader):
    """Takes every JSON object: of JSON lines, of arrays, and the documents of index exports."""

    def read(self, paths: Sequence[Path]) -> None:
        """Take every object, and reject what is none or broken."""
        for path in paths:
            for row, raw, too_long in pieces(path, self.options):
                try:
                    if too_long:
                        raise Broken("line_too_long")
                    values = unwrap(parse_json(raw))
                except Broken as reason:
                    self.stage.read()
                    self.stage.reject(path, row, str(reason), raw)
                    continue
                for value in values:
                    self.stage.read()
                    try:
                        if not isinstance(value, dict):
                            raise Broken("not_an_object")
                        self.take(value)
                    except Broken as reason:
                        self.stage.reject(path, row, str(reason), raw if len(values) == 1 else _head(value))

    @abstractmethod
    def take(self, record: Mapping[str, Any]) -> None:
        """One object; raises Broken before anything of it is staged."""


def unwrap(value: Any) -> list[Any]:
    """The documents in a value: a list's elements, the hits of a search answer, what stands under `_source`."""
    if isinstance(value, list):
        return [inner for element in value for inner in _hits(element)] or [None]
    return _hits(value)


def _hits(value: Any) -> list[Any]:
    if isinstance(value, dict) and isinstance(value.get("hits"), dict):
        inner = value["hits"].get("hits")
        return [_source(hit) for hit in inner] if isinstance(inner, list) else [value]
    return [_source(value)]


def _source(value: Any) -> Any:
    """What was indexed, where the value is a hit; exports of chosen fields have them under `fields`."""
    if isinstance(value, dict):
        for name in ("_source", "fields") if "_index" in value else ("_source",):
            if isinstance(value.get(name), dict):
                return value[name]
    return value


def _head(value: Any) -> str:
    try:
        return json.dumps(value)[:HELD]
    except (RecursionError, ValueError):
        return ""


def lines(path: Path, options: IngestOptions) -> Pieces:
    """Every line that is not blank: its number from 1, its bytes, and whether it was too long to be held whole."""
    longest = options.reader.longest_line
    for first, block, endless in whole_lines(unpacked(path, expansion=options.files.max_expansion), longest):
        for number, line in enumerate(block.split(b"\n"), first):
            too_long = endless or len(line) > longest
            if too_long or line.strip():
                yield number, (line[:HELD] if too_long else line).rstrip(b"\r"), too_long


def pieces(path: Path, options: IngestOptions) -> Pieces:
    """Lines, unless the first one shows that a value goes over several lines or that a long line is an array."""
    first, too_long = next(((raw.strip(), long) for _, raw, long in lines(path, options)), (b"", False))
    opens = first[:1] in (b"[", b"{")
    if opens and (first[-1:] in (b"[", b"{", b",") or (too_long and first[:1] == b"[")):
        return elements(path, options)
    return lines(path, options)


def elements(path: Path, options: IngestOptions) -> Pieces:
    """The objects of JSON arrays, or objects one after another, wherever their lines break.

    Only brackets and quotes are looked at, so a broken element is found out when it is parsed; brackets that do
    not match leave no way to tell where the next element begins, and that is an error.
    """
    cutter = _Cutter(options.reader.longest_line)
    for block in unpacked(path, expansion=options.files.max_expansion):
        yield from cutter.cut(block, path)
    if cutter.depth or cutter.quoted:
        raise DataError("the JSON value does not end", path=path, hint="export one object per line instead")
    yield from cutter.gap(b"")


class _Cutter:
    """Cuts elements out of JSON text that comes in blocks."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.depth = self.base = self.number = 0
        self.quoted = self.skip = self.too_long = False
        self.held = b""

    def cut(self, block: bytes, path: Path) -> Pieces:
        """Elements that end in this block, and what stands between elements but is no comma."""
        start, after_escape = 0, 0 if self.skip else -1
        self.skip = False
        for match in _SPECIAL.finditer(block):
            at, mark = match.start(), match[0]
            if at == after_escape:
                continue
            if self.quoted or mark in b'"\\':
                if mark == b"\\" and self.quoted:
                    after_escape = at + 1
                elif mark == b'"':
                    self.quoted = not self.quoted
            elif mark in b"{[":
                if self.depth == self.base:
                    yield from self.gap(block[start:at])
                    start = at + 1 if mark == b"[" and not self.depth else at
                    self.base = int(mark == b"[" and not self.depth) or self.base
                self.depth += 1
            else:
                if self.depth == self.base:
                    yield from self.gap(block[start:at])
                    start, self.base = at + 1, 0
                self.depth -= 1
                if self.depth < 0:
                    raise DataError("brackets do not match", path=path, hint="export one object per line instead")
                if self.depth == self.base and mark and start <= at:
                    self._hold(block[start : at + 1])
                    yield from self._release()
                    start = at + 1
        self.skip = after_escape == len(block)
        self._hold(block[start:])

    def gap(self, text: bytes) -> Pieces:
        """Between elements there should be nothing but commas and blanks."""
        self._hold(text)
        self.held = self.held.strip(b" \t\r\n,")
        if self.held or self.too_long:
            yield from self._release()

    def _hold(self, text: bytes) -> None:
        if not self.too_long:
            self.held += text
            if len(self.held) > self.longest:
                self.held, self.too_long = self.held[:HELD], True

    def _release(self) -> Pieces:
        self.number += 1
        yield self.number, self.held, self.too_long
        self.held, self.too_long = b"", False
