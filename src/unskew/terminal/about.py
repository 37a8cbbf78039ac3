"""The commands that list what there is: methods and behaviours."""

from __future__ import annotations

import inspect
import re


def methods() -> None:
    """List the methods, with the paper of each."""
    from unskew.learning.methods import LEARNERS

    for name, config in LEARNERS.items():
        _entry(name, config)
        about = inspect.getdoc(inspect.getmodule(config)) or ""
        paper = re.search(r"^Reference: (.+?)\n\n", about, re.MULTILINE | re.DOTALL)
        if paper:
            print(" " * 18 + " ".join(paper[1].split()))


def behaviours() -> None:
    """List the behaviours that `simulate` knows."""
    from unskew.clicks.simulate import BEHAVIOURS

    for name, behaviour in BEHAVIOURS.items():
        _entry(name, behaviour)


def _entry(name: str, what: type) -> None:
    """A name and the first line of its documentation."""
    print(f"{name:<18}{(what.__doc__ or '').splitlines()[0]}")
