"""What the library says in Python, said in flags: `force=True` becomes `--force`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

from unskew.errors import Key, Option, Sentence, spelled

FLAGS: ContextVar[dict[str, str]] = ContextVar("FLAGS", default={})  # noqa: B039
"""The flags of the command that runs."""
KEYS = {
    "validate_on": "training.validate_on",
    "learn_from": "training.learn_from",
    "missing_features": "data.missing_features",
    "doc_ids": "data.doc_ids",
}
"""Arguments of Python that a command line says with --set."""


def as_flag(flags: Mapping[str, str], option: Option) -> str:
    """An argument as the flags of a command spell it; one that it has no flag for stays as it is."""
    value = option.value
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


def in_flags(sentence: str) -> str:
    """A sentence of the library in the words of the command that runs."""
    return spelled(sentence.words, partial(as_flag, FLAGS.get())) if isinstance(sentence, Sentence) else sentence


def flags_of(options: Iterable[Any]) -> dict[str, str]:
    """The flags of a command's options, by what they are called in Python."""
    flags: dict[str, str] = {}
    for option in options:
        if option.param_type_name == "argument":
            flags[str(option.name)] = option.metavar or str(option.name).upper()
        for flag in [name for name in option.opts if name[:2] == "--"][:1]:
            flags |= {flag[2:].replace("-", "_"): flag, str(option.name): flag}
    return {f"{name}s": flag for name, flag in flags.items()} | flags  # what may be repeated is several in Python
