"""The shape of the package: stages import in one direction, public names are documented, startup is light."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "unskew"
MODULES = sorted(SOURCE.rglob("*.py"))
FOR_ALL = {"checking", "disk", "errors", "types"}
"""Root modules that every stage may import."""


def module_id(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that is imported, wherever it stands: `from a import b` -> a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent != SOURCE], ids=module_id)
def test_a_stage_imports_only_from_earlier_stages(path: Path) -> None:
    stage = path.relative_to(SOURCE).parts[0]
    for line, name in imported(ast.parse(path.read_text())):
        top, _, rest = name.partition(".")
        part = rest.split(".")[0]
        if top == "unskew" and not part.startswith("__") and part not in FOR_ALL:
            assert (SOURCE / part).is_dir(), f"{path}:{line}: {stage} imports {name}, which is no stage's"
            assert part <= stage, f"{path}:{line}: {stage} imports from {part}, which comes later"


def test_the_root_holds_what_every_stage_may_import_and_nothing_else() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} <= FOR_ALL | {"__init__", "__main__"}


@pytest.mark.parametrize("name", sorted(FOR_ALL))
def test_what_all_stages_import_imports_no_stage(name: str) -> None:
    files = sorted((SOURCE / name).glob("*.py")) or [SOURCE / f"{name}.py"]
    for path in files:
        for line, module in imported(ast.parse(path.read_text())):
            top, _, rest = module.partition(".")
            assert top != "unskew" or rest.split(".")[0] in FOR_ALL, f"{path}:{line} imports {module}"


def undocumented(node: ast.Module | ast.ClassDef, place: str) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring, as file:line name."""
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and child.name[0] != "_":
            overload = any(ast.unparse(decorator) == "overload" for decorator in child.decorator_list)
            if ast.get_docstring(child) is None and not overload:
                yield f"{place}:{child.lineno} {child.name}"
            if isinstance(child, ast.ClassDef):
                yield from undocumented(child, place)


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_every_public_name_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path} has no docstring"
    assert list(undocumented(tree, str(path))) == []


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_":
                places.setdefault(node.name, []).append(module_id(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("module", ["unskew", "unskew.terminal.main"])
def test_startup_does_not_import_torch(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"there is no {module}")
    code = f'import {module}, sys; assert "torch" not in sys.modules, "torch was imported"'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
