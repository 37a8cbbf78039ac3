"""Everything that unskew raises on purpose.

    UnskewError             status
    ├── DataError           1      a file, a table or an array is not what it should be; says where
    │   └── LimitError      3      more of it is broken or removed than a limit allows; says the limit
    ├── ConfigError         1      a setting is unknown, of the wrong type or out of range; says which
    ├── RunError            1      a run folder is missing, unfinished, or would be overwritten
    ├── StoreError          1      a store of features is missing, damaged or out of reach; a service says 503
    └── MissingExtra        1      an optional dependency is not installed; says the pip line

The command line prints the message without a traceback and exits with its status; `STATUSES` has them all.
A message names an argument by an `Option`, so that readers see what they type: `force=True` or `--force`.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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


class Key(str):
    """The name of a setting in a TOML file, `training.batch`: a message writes it as the file does."""


@dataclass(frozen=True)
class Option:
    """An argument that a message speaks of: `force=True` in Python, `--force` on the command line.

    >>> str(Option("gap", "30m")), str(Option("columns")), str(Option(Key("training.batch"), 256))
    ('gap="30m"', 'columns=', 'training.batch = 256')
    """

    name: str
    value: object = None
    """What it is or could be; None where the message speaks of the argument alone."""

    def __str__(self) -> str:
        if isinstance(self.name, Key):
            return str(self.name) if self.value is None else f"{self.name} = {json.dumps(self.value, default=str)}"
        return f"{self.name}=" if self.value is None else f"{self.name}={_literal(self.value)}"


@dataclass(frozen=True)
class Column:
    """A column that a message speaks of, by our name; who opened the table knows what it is called there."""

    name: str

    def called(self, names: Mapping[str, str]) -> str:
        """Both names where a user has another.

        >>> Column("position").called({"position": "rank"}), Column("click").called({"position": "rank"})
        ('rank (position)', 'click')
        """
        theirs = names.get(self.name, self.name)
        return self.name if theirs == self.name else f"{theirs} ({self.name})"


Part = str | Option | Column
Words = Part | tuple[Part, ...]
"""A sentence, with the arguments and columns that it speaks of as values."""


def parts_of(words: Words | None) -> tuple[Part, ...]:
    """What a sentence is made of.

    >>> parts_of(("pass ", Option("force", True))), parts_of("no"), parts_of(None)
    (('pass ', Option(name='force', value=True)), ('no',), ())
    """
    return words if isinstance(words, tuple) else () if words is None else (words,)


def spelled(words: Words, spell: Callable[[Option], str] = str, names: Mapping[str, str] | None = None) -> str:
    """A sentence as text; `spell` says how an argument is written, as in Python unless given.

    `names` are ours of columns to theirs.

    >>> spelled(("choose another place, or pass ", Option("force", True)))
    'choose another place, or pass force=True'
    """
    return "".join(
        spell(part) if isinstance(part, Option) else part.called(names or {}) if isinstance(part, Column) else part
        for part in parts_of(words)
    )


class Sentence(str):
    """A sentence as Python spells it, to be kept and written as text, that still knows what it speaks of.

    >>> Sentence(("count on with ", Option("page_number", "p")))
    'count on with page_number="p"'
    """

    words: Words

    def __new__(cls, words: Words) -> Sentence:  # noqa: D102
        made = super().__new__(cls, spelled(words))
        made.words = words
        return made


class UnskewError(Exception):
    """Base of every error that unskew raises on purpose: what is wrong, where, and what to do next.

    >>> str(UnskewError("write it like 30m", argument="gap", value="5w"))
    'gap="5w": write it like 30m'
    """

    status = 1
    """What the command line ends with."""
    spell: Callable[[Option], str] = staticmethod(str)
    """How arguments are written: as in Python, or as flags where a command was typed."""

    def __init__(
        self,
        message: Words,
        *,
        argument: str | None = None,
        value: object = None,
        hint: Words | None = None,
        path: Path | str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.argument, self.value = message, argument, value
        self.hint, self.path, self.line = hint, path, line
        self.names: Mapping[str, str] | None = None
        """Our names of columns to theirs, once who opened the table has said so."""

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        place = "" if self.path is None else f"{printable(self.path)}{line}: "
        argument = "" if self.argument is None else self.spell(Option(self.argument, self.value)) + ": "
        hint = f"; {spelled(self.hint, self.spell, self.names)}" if self.hint else ""
        return place + argument + spelled(self.message, self.spell, self.names) + hint

    def speaks_of(self, *arguments: str) -> bool:
        """Whether the argument that is wrong, or one that the sentence names, is one of these."""
        parts = (*parts_of(self.message), *parts_of(self.hint))
        named = {part.name for part in parts if isinstance(part, Option)}
        return not named.isdisjoint(arguments) or self.argument in arguments


class DataError(UnskewError):
    """A file, a table or an array is not what it should be.

    >>> str(DataError("label is not a number: 'x'", path="a.txt", line=3, hint="fix or delete the line"))
    "a.txt:3: label is not a number: 'x'; fix or delete the line"
    """


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
        super().__init__(f"{package} is not installed", hint=f"run: pip install 'unskew[{extra}]'")
        self.args = (extra, package)  # what a copy of it is made from


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever called unskew: the warning names the first line outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "unskew":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


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
            error.path = path
        raise


def optional(package: str, extra: str) -> Any:
    """A package that comes with an extra, or an error that says how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(extra, package) from error


def first_line(error: BaseException) -> str:
    r"""What a package complains about, without the lines that follow; its kind where it says nothing.

    >>> first_line(ValueError("no such column\n  at line 7")), first_line(KeyboardInterrupt())
    ('no such column', 'KeyboardInterrupt')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def printable(path: Path | str) -> str:
    """A name as valid text on one line."""
    return str(path).encode("utf-8", "replace").decode().replace("\n", "\\n").replace("\r", "\\r")


def _literal(value: object) -> str:
    """A value as it is written in Python, texts in double quotes."""
    plain = str(value) if isinstance(value, Path) else value
    written = isinstance(plain, str | list | tuple | dict)
    return json.dumps(plain, ensure_ascii=False, default=str) if written else repr(plain)
