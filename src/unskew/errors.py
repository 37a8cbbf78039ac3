"""Everything that unskew raises on purpose.

    UnskewError
    ├── DataError       a file, a table or an array is not what it should be; says where
    ├── ConfigError     a setting is unknown, of the wrong type or out of range; says which
    ├── RunError        a run folder is missing, unfinished, or would be overwritten
    └── MissingExtra    an optional dependency is not installed; says the pip line

The command line prints the message without a traceback and exits with its status.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


class UnskewError(Exception):
    """Base of every error that unskew raises on purpose."""

    status = 1
    """What the command line ends with."""


class DataError(UnskewError):
    """A file, a table or an array is not what it should be.

    >>> str(DataError("label is not a number: 'x'", path="a.txt", line=3, hint="fix or delete the line"))
    "a.txt:3: label is not a number: 'x'; fix or delete the line"
    """

    def __init__(
        self, message: str, *, path: Path | str | None = None, line: int | None = None, hint: str | None = None
    ) -> None:
        place = "" if path is None else printable(path) + (": " if line is None else f":{line}: ")
        super().__init__(place + message + (f"; {hint}" if hint else ""))
        self.path, self.line, self.hint = path, line, hint


class ConfigError(UnskewError):
    """A setting is unknown, of the wrong type or out of range."""


class RunError(UnskewError):
    """A run folder is missing, unfinished, or would be overwritten."""


class MissingExtra(UnskewError):
    """An optional dependency is not installed.

    >>> str(MissingExtra("trees", "lightgbm"))
    "lightgbm is not installed; run: pip install 'unskew[trees]'"
    """

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'unskew[{extra}]'")


def optional(package: str, extra: str) -> Any:
    """A package that comes with an extra, or an error that says how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(extra, package) from error


def printable(path: Path | str) -> str:
    """A name as valid text on one line."""
    return str(path).encode("utf-8", "replace").decode().replace("\n", "\\n").replace("\r", "\\r")
