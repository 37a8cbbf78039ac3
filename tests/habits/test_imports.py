"""The shape of the package: stages import in one direction, public names are documented, startup is light."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "unskew"
MODULES = sorted(SOURCE.rglob("*.py"))
BESIDE = SOURCE.parents[1] / "reproductions" / "src" / "unskew_reproductions"
BESIDE_MODULES = sorted(BESIDE.rglob("*.py"))
STAGES = (
    "files",
    "tables",
    "logs",
    "simulation",
    "tracking",
    "diagnosis",
    "learning",
    "measuring",
    "pages",
    "workflows",
    "serving",
    "studies",
    "sklearn",
    "terminal",
)
"""In the order of the data: a stage imports from itself and from those before it."""
FOR_ALL = {"engine_prior", "errors", "examination", "files", "names", "options", "results", "settings", "types"}
"""Root modules and rooms, and the one stage, that every stage may import."""
ROOMS: dict[str, tuple[str, ...]] = {
    "logs": ("ingest", ".", "counts"),
    "tables": ("engine", "reading", ".", "lists", "features"),
    "serving": (".", "explore", "store", "scoring", "requests", "service", "export"),
    "pages": (".", "documents"),
    "workflows": ("inputs", "proofs", "runs", "inspections", "twins"),
    "learning": (".", "rankers", "methods", "scoring", "fitting"),
    "measuring": ("counterfactual", "experiments", "."),
    "diagnosis": ("evidence", "curves", "verdicts", "click_models", "causal", "."),
}
"""Rooms of a stage in order, `.` for the files beside them: a room imports from itself and those before it."""
CROWDED = {
    "learning/methods": 26,
}
"""Rooms that may hold more files than a dozen."""


def module_id(path: Path) -> str:
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else BESIDE).as_posix()


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that is imported, wherever it stands: `from a import b` -> a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def ours(path: Path) -> Iterator[tuple[str, str, str]]:
    """Place, stage or root module, and room, of everything of ours that a file imports."""
    for line, name in imported(ast.parse(path.read_text())):
        top, *parts = name.split(".")
        if top == "unskew" and parts and not parts[0].startswith("__"):
            inside = len(parts) > 1 and (SOURCE / parts[0] / parts[1]).is_dir()
            yield f"{path}:{line} imports {name}", parts[0], parts[1] if inside else "."


def test_every_folder_of_the_package_is_a_stage() -> None:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders == {*STAGES, "options"}


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent != SOURCE], ids=module_id)
def test_a_stage_imports_only_from_earlier_stages(path: Path) -> None:
    stage, *rest = path.relative_to(SOURCE).parts
    room = rest[0] if len(rest) > 1 else "."
    rooms = ROOMS.get(stage, ())
    for told, part, its_room in ours(path):
        if part not in FOR_ALL:
            assert part in STAGES, f"{told}, which is no stage's"
            assert STAGES.index(part) <= STAGES.index(stage), f"{told}: {part} comes after {stage}"
        if part == stage and rooms:
            assert rooms.index(its_room) <= rooms.index(room), f"{told}: {its_room} comes after {room}"


def test_nothing_asks_for_the_package_beside() -> None:
    asking = {
        path.relative_to(SOURCE).parts[0]
        for path in MODULES
        for _, name in imported(ast.parse(path.read_text()))
        if name.startswith(BESIDE.name)
    }
    assert asking == set()


@pytest.mark.parametrize("stage", sorted(ROOMS))
def test_every_room_of_a_stage_has_its_place(stage: str) -> None:
    folders = {path.parent.name for path in (SOURCE / stage).glob("*/__init__.py")}
    assert {*ROOMS[stage], "."} == {*folders, "."}


def test_no_room_has_more_than_a_dozen_files() -> None:
    """Methods are one paper a file; rooms still above the limit are listed with their number, which only falls."""
    counts = {
        folder.relative_to(SOURCE).as_posix(): len(
            [path for path in folder.glob("*.py") if path.stem != "__init__"]
        )
        for folder in {path.parent for path in MODULES}
    }
    counts |= {BESIDE.name: len([path for path in BESIDE.glob("*.py") if "__" not in path.stem])}
    assert {room: count for room, count in counts.items() if count > CROWDED.get(room, 12)} == {}


def test_the_package_does_not_grow() -> None:
    """A ratchet: lower it when the package gets smaller; what is added has to make something superfluous."""
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES) <= 55_000


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_files_and_bodies_are_short(path: Path) -> None:
    """A file of at most 400 lines, a function body of at most 46."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert lines <= 46, f"{path}:{node.lineno} {node.name} has a body of {lines} lines"


def test_the_root_holds_what_every_stage_may_import_and_nothing_else() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} <= FOR_ALL | {"__init__", "__main__"}


@pytest.mark.parametrize("name", sorted(FOR_ALL))
def test_what_all_stages_import_imports_no_stage(name: str) -> None:
    files = sorted((SOURCE / name).glob("*.py")) or [SOURCE / f"{name}.py"]
    for path in files:
        assert [told for told, part, _ in ours(path) if part not in FOR_ALL] == []


def undocumented(node: ast.Module | ast.ClassDef, place: str) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring, as file:line name."""
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and child.name[0] != "_":
            overload = any(ast.unparse(decorator) == "overload" for decorator in child.decorator_list)
            if ast.get_docstring(child) is None and not overload:
                yield f"{place}:{child.lineno} {child.name}"
            if isinstance(child, ast.ClassDef):
                yield from undocumented(child, place)


@pytest.mark.parametrize("path", MODULES + BESIDE_MODULES, ids=module_id)
def test_every_public_name_is_documented(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path} has no docstring"
    assert list(undocumented(tree, str(path))) == []


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES + BESIDE_MODULES:
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
