"""What the library says in Python, said in flags: `force=True` becomes `--force`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from unskew.errors import Key, Option

FLAGS: ContextVar[dict[str, str]] = ContextVar("FLAGS", default={})  # noqa: B039
"""The flags of the command that runs."""
_VALUE = r"""("[^"]*"|\[[^]]*\]|\{[^}]*\}|[\w%+-]+(?:\.\d+)?(?![\w/=]))"""
_SETTING = re.compile(rf"(?:set )?((?:data|training|method|ranker)\.[a-z_]+) = {_VALUE}")
"""A key of a run file, which a command that takes --set has no other flag for."""
KEYS = {
    "validate_on": "training.validate_on",
    "learn_from": "training.learn_from",
    "missing_features": "data.missing_features",
    "doc_ids": "data.doc_ids",
}
"""Arguments of Python that a command line says with --set."""
_GIVEN = re.compile(rf"(?<![\w./-])([a-z_]+)=(?:{_VALUE}|(?=[\s,;:.)]|$))")


def as_flags(message: str, flags: Mapping[str, str]) -> str:
    """The message with flags in the place of Python's arguments; other names stay as they are.

    >>> as_flags('gap="5w": write it like 30m, or pass force=True', {"gap": "--gap", "force": "--force"})
    '--gap 5w: write it like 30m, or pass --force'
    """

    def said(found: re.Match[str]) -> str:
        flag, value = flags.get(found[1]), found[2]
        if flag is None:
            key = KEYS.get(found[1]) if "set" in flags and value is not None else None
            return found[0] if key is None else f"--set {key}={' '.join(_words(value))}"
        return flag if value in (None, "True") else " ".join(f"{flag} {word}" for word in _words(value))

    if "set" in flags:
        message = _SETTING.sub(lambda found: f"--set {found[1]}={' '.join(_words(found[2]))}", message)
    message = re.sub(r"pass ([a-z_]+)=False", lambda found: f"leave out {flags.get(found[1], found[1])}", message)
    return _GIVEN.sub(said, message)


def as_flag(option: Option) -> str:
    """An argument in the words of the command that runs; one that it has no flag for stays as it is."""
    flags, value = FLAGS.get(), option.value
    if option.name in flags and not isinstance(option.name, Key):
        flag = flags[option.name]
        if value is None or value is True:
            return flag
        return f"no {flag}" if value is False else " ".join(f"{flag} {word}" for word in _typed(value))
    key = option.name if isinstance(option.name, Key) else KEYS.get(option.name)
    if key is None or value is None or "set" not in flags:
        return str(option)
    return f"--set {key}={' '.join(_typed(value))}"


def _typed(value: object) -> list[str]:
    """A value as it is typed behind a flag: ["a", "b"] as a,b; of {"a": "b"} each pair as a=b."""
    if isinstance(value, dict):
        return [shlex.quote(f"{name}={each}") for name, each in value.items()]
    if isinstance(value, bool):
        return [str(value).lower()]
    return [",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)]


def _words(value: str) -> list[str]:
    """A value of Python as it is written behind a flag: ["a", "b"] as a,b; of {"a": "b"} each pair as a=b."""
    try:
        meant = json.loads(value)
    except ValueError:
        return [value]
    if isinstance(meant, dict):
        return [shlex.quote(f"{name}={each}") for name, each in meant.items()]
    return [",".join(map(str, meant)) if isinstance(meant, list) else str(meant)]


def flags_of(options: Iterable[Any]) -> dict[str, str]:
    """The flags of a command's options, by what they are called in Python."""
    flags: dict[str, str] = {}
    for option in options:
        for flag in [name for name in option.opts if name[:2] == "--"][:1]:
            flags |= {flag[2:].replace("-", "_"): flag, str(option.name): flag}
    return {f"{name}s": flag for name, flag in flags.items()} | flags  # what may be repeated is several in Python
