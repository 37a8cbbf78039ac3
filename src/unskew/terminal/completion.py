"""What a shell completes behind a flag: names of methods, rankers and the like, without importing what they name.

The tables of names are dicts in the sources (`METHODS`, `RANKERS`, ...). Their keys are read from the syntax tree:
importing them takes seconds, and a shell asks at every tab.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from importlib.resources import files

Names = Callable[[str], list[str]]
"""From what was typed to the names that begin with it."""

TABLES = {
    "methods": ("learning/methods/__init__.py", ("METHODS", "PACKAGES")),
    "rankers": ("learning/rankers/__init__.py", ("RANKERS",)),
    "scalings": ("tables/lists/scaling.py", ("SCALINGS",)),
    "behaviours": ("simulation/__init__.py", ("BEHAVIOURS",)),
    "loggers": ("simulation/logger.py", ("LOGGERS",)),
    "click_models": ("diagnosis/click_models/names.py", ("CLICK_MODELS",)),
    "exports": ("serving/export/__init__.py", ("TARGETS",)),
    "formats": ("logs/ingest/formats/__init__.py", ("READERS",)),
}
"""Where each table of names stands."""


def known_names(what: str) -> list[str]:
    """The names of a table, in its order; recipes are the files in their folder.

    >>> known_names("scalings")[:3]
    ['none', 'standard', 'minmax']
    """
    if what == "recipes":
        return _recipes()
    path, tables = TABLES[what]
    tree = ast.parse(files("unskew").joinpath(path).read_text(encoding="utf-8"))
    return [name for table in tables for name in _keys(tree, table)]


def _recipes() -> list[str]:
    """The files of recipes, where they are installed."""
    try:
        found = [each.name for each in files("unskew_reproductions").joinpath("recipes").iterdir()]
    except ModuleNotFoundError:
        return []
    return sorted(name[: -len(".toml")] for name in found if name.endswith(".toml") and name[0] != "_")


def _keys(tree: ast.Module, table: str) -> Iterator[str]:
    """The keys of the dict that is assigned to a name, where they are written out."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        named = any(isinstance(target, ast.Name) and target.id == table for target in targets)
        if named and isinstance(value := getattr(node, "value", None), ast.Dict):
            yield from (str(key.value) for key in value.keys if isinstance(key, ast.Constant))


def completes(table: str | None, *more: str) -> Names:
    """Completes the names of a table, and more."""

    def complete(incomplete: str) -> list[str]:
        names = (*more, *(known_names(table) if table else ()))
        return [name for name in names if name.startswith(incomplete)]

    return complete
