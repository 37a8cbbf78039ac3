"""Everything that unskew raises on purpose.

    UnskewError             status
    ├── DataError           1      a file, a table or an array is not what it should be; says where
    │   └── LimitError      3      more of it is broken or removed than a limit allows; says the limit
    ├── ConfigError         1      a setting is unknown, of the wrong type or out of range; says which
    ├── RunError            1      a run folder is missing, unfinished, or would be overwritten
    ├── StoreError          1      a store of features is missing, damaged or out of reach; a service says 503
    └── MissingExtra        1      an optional dependency is not installed; says the pip line

The command line prints the message without a traceback and exits with its status; `STATUSES` has them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

STATUSES = {
    0: "done",
    1: "refused or failed; the message on standard error says what, where and what to do",
    2: "the command line is wrong: an unknown command or flag, or a value that a flag does not take",
    3: "the data is past a limit, such as the share of broken rows; nothing was written but what was put aside",
    4: "done, and the answer is no: do not ship, or the search drifted",
    5: "done, and the answer is that nobody can tell",
    130: "interrupted by Ctrl-C; the same command goes on where it stopped, or begins again",
}
"""Every status that a command ends with."""
NO, CANNOT_TELL = 4, 5
"""What `ship` and `drift` end with besides 0."""


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


class LimitError(DataError):
    """More of the data is broken, or removed by rules, than a limit allows."""

    status = 3


class ConfigError(UnskewError):
    """A setting is unknown, of the wrong type or out of range."""


class RunError(UnskewError):
    """A run folder is missing, unfinished, or would be overwritten."""


class StoreError(UnskewError):
    """A store of features is missing, damaged, or cannot be reached now."""


class Unproven(UserWarning):
    """Clicks say that a ranking is worse than what was shown, or they cannot tell."""


class MissingExtra(UnskewError):
    """An optional dependency is not installed.

    >>> str(MissingExtra("trees", "lightgbm"))
    "lightgbm is not installed; run: pip install 'unskew[trees]'"
    """

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'unskew[{extra}]'")


@contextmanager
def located(path: Path | str) -> Iterator[None]:
    """Errors of data that name no place name this one.

    >>> with located("log.csv"):
    ...     raise DataError("the source has no rows")
    Traceback (most recent call last):
    unskew.errors.DataError: log.csv: the source has no rows
    """
    try:
        yield
    except DataError as error:
        if error.path is None and not isinstance(error, LimitError):  # which shows rows of every file
            error.path, error.args = path, (f"{printable(path)}: {error}",)
        raise


def optional(package: str, extra: str) -> Any:
    """A package that comes with an extra, or an error that says how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(extra, package) from error


def printable(path: Path | str) -> str:
    """A name as valid text on one line."""
    return str(path).encode("utf-8", "replace").decode().replace("\n", "\\n").replace("\r", "\\r")
