"""What a config is in a line, and the paper that its module names: from the documentation."""

from __future__ import annotations

import inspect
import re


def says(config: type) -> str:
    """The first paragraph of its documentation, in one line.

    >>> class Walk:
    ...     '''Go somewhere,
    ...     on foot.
    ...
    ...     More.'''
    >>> says(Walk)
    'Go somewhere, on foot.'
    """
    return " ".join(inspect.cleandoc(config.__doc__ or "").split("\n\n")[0].split())


def paper(config: type) -> str:
    """The paper that the module of a method names; empty where it names none.

    >>> from unskew.learning.methods.dla import DLA
    >>> paper(DLA)
    'Ai et al., "Unbiased Learning to Rank with Unbiased Propensity Estimation", SIGIR 2018.'
    """
    about = inspect.getdoc(inspect.getmodule(config)) or ""
    found = re.search(r"^Reference: (.+?)\n\n", about + "\n\n", re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""
