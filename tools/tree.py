"""Print every module of the package with the first line of its docstring: `python tools/tree.py`."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "unskew"


def purpose(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0].rstrip(".")


def lines(folder: Path, depth: int = 1) -> list[str]:
    """A line for each file and folder, files first."""
    files = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    found = [f"{'  ' * depth}{path.name:<{32 - 2 * depth}}{purpose(path)}" for path in files]
    for room in sorted(path.parent for path in folder.glob("*/__init__.py")):
        found += [f"{'  ' * depth}{room.name + '/':<{32 - 2 * depth}}{purpose(room / '__init__.py')}"]
        found += lines(room, depth + 1)
    return found


if __name__ == "__main__":
    print("\n".join(["src/unskew/", *lines(SOURCE)]))
