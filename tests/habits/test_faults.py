"""The faults of tests/faults: each says what it does, the script tries them rightly, and a few are caught."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tests" / "faults" / "run.py"
HERE = "tests/habits/test_faults.py"
TESTS = [*ROOT.glob("tests/*/test_*.py"), *ROOT.glob("reproductions/tests/test_*.py")]


def script(path: Path) -> Any:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(f"faults_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


faults = script(RUN)
ALL = faults.read_faults()


def test_every_fault_says_what_it_does_and_has_a_name_of_its_own() -> None:
    assert len({fault.id for fault in ALL}) == len(ALL) > 0
    for fault in ALL:
        assert fault.old != fault.new, fault.id
        assert len(fault.says) > 20, f"{fault.id}: say what would be wrong for a user"
        assert fault.test or fault.equivalent, f"{fault.id}: name the test that must catch it"


def test_no_fault_is_caught_for_a_name_that_is_not_there(tmp_path: Path) -> None:
    """A misspelt fault fails every test, and would prove nothing."""
    for fault in ALL:
        (tmp_path / f"{fault.id}.py").write_text(faults.faulty(fault, ROOT), encoding="utf-8")
    words = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821,F823", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def mentioned(tree: ast.Module) -> set[str]:
    """Every name that a file reads or asks for, and every text, as fixtures may be named by one."""
    return {
        str(getattr(node, field))
        for node in ast.walk(tree)
        for kind, field in ((ast.Name, "id"), (ast.arg, "arg"), (ast.Attribute, "attr"), (ast.Constant, "value"))
        if isinstance(node, kind)
    }


def idle(path: Path) -> list[str]:
    """Functions that are neither tests nor used by them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = mentioned(tree)
    made = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    used = {node.name for node in made if any("autouse" in ast.unparse(by) for by in node.decorator_list)} | known
    return [node.name for node in made if node.name not in used and not node.name.startswith("test_")]


def test_no_test_lacks_its_prefix() -> None:
    """A function that no test calls is a test that never runs, or is not needed."""
    found = {path.name: idle(path) for path in TESTS}
    assert {name: names for name, names in found.items() if names} == {}


def drawn_alone(path: Path) -> set[str]:
    """Tests that see drawn examples and no written ones: what they catch changes with the draw."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        by = [ast.unparse(each) for each in getattr(node, "decorator_list", [])]
        if any(each.startswith("given(") for each in by) and not any(each.startswith("example(") for each in by):
            found.add(str(getattr(node, "name", "")))
    return found


def test_no_fault_is_left_to_drawn_examples() -> None:
    drawn = {test for path in TESTS for test in drawn_alone(path)}
    assert drawn
    left = [
        each.id
        for each in ALL
        if each.test and {test.partition("[")[0].rpartition("::")[2] for test in each.test} <= drawn
    ]
    assert left == []


# ------------------------------------------------------------------------------------------- the script


def fault(**changes: Any) -> Any:
    about = {
        "area": "a",
        "name": "b",
        "place": "UnskewError",
        "old": "x",
        "new": "y",
        "says": "something is wrong",
    }
    return faults.Fault(**(about | changes))


def test_a_fault_whose_text_is_gone_is_told() -> None:
    with pytest.raises(ValueError, match=r"a\.b: its `old` text stands 0 times in UnskewError, not once"):
        faults.faulty(fault(old="this is not there"), ROOT)
    with pytest.raises(ValueError, match=r"a\.b: nothing in the sources is named gone"):
        faults.faulty(fault(place="gone"), ROOT)


def test_a_fault_that_is_no_python_or_names_no_test_is_told() -> None:
    old = "class UnskewError(Exception):"
    assert faults.problems([fault(old=old, new=old + ")")])[0].startswith("a.b: unmatched ')'")
    known = "test_the_score_counts_what_was_tried[x]"
    tests = ("test_gone", "gone", "doctest", "test_faults::test_the_score", known, "test_faults")
    told = faults.problems([fault(old=old, new=old + "  #", test=tests)])
    assert told == [f"a.b: there are 0 tests {test}, not one" for test in (*tests[:2], tests[3])]
    assert faults.node_ids(known, ROOT) == [f"{HERE}::{known}"]
    assert faults.node_ids_of(fault(old=old, test=("doctest",))) == ["src/unskew/errors.py"]


def test_a_fault_is_found_wherever_its_code_stands_and_however_it_is_laid_out(tmp_path: Path) -> None:
    room = tmp_path / "src" / "room"
    room.mkdir(parents=True)
    (room / "moved.py").write_text(
        "class A:\n    def b(self):\n        made = call(\n            1,\n            2,\n        )\n"
        "        return made\n"
    )
    (tmp_path / "src" / "other.py").write_text("def b():\n    return call(1, 2)\n")
    put = fault(place="A.b", old="call(1, 2)\n    return made", new="call(2, 1)\n    return made")
    lines = ["class A:", "    def b(self):", "        made = call(2, 1)", "        return made", ""]
    assert faults.faulty(put, tmp_path) == "\n".join(lines)
    with pytest.raises(ValueError, match="stands 0 times in b"):
        faults.faulty(put._replace(place="b"), tmp_path)


def test_a_key_that_is_not_known_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[b]\nplace = "UnskewError"\nolt = "x"\nnew = "y"\nsays = "z"\n')
    with pytest.raises(SystemExit, match=r"a\.toml: \[b\]: .*'olt'"):
        faults.read_faults(tmp_path)


def test_faults_are_chosen_by_area_name_and_pattern() -> None:
    every = [fault(), fault(name="c"), fault(area="d", name="e")]
    assert [found.id for found in faults.chosen(every, ["a"])] == ["a.b", "a.c"]
    assert [found.id for found in faults.chosen(every, ["e", "*.b"])] == ["a.b", "d.e"]
    with pytest.raises(SystemExit, match="no fault is named f; the areas are a, d"):
        faults.chosen(every, ["f"])


def test_a_sample_is_the_same_for_the_same_seed_and_takes_no_slow_ones() -> None:
    every = [fault(name=f"f{number}", slow=number < 50) for number in range(100)]
    some = faults.sample(every, 10, 3)
    assert some == faults.sample(every, 10, 3) != faults.sample(every, 10, 4)
    assert not any(found.slow for found in some)
    assert faults.sample(every, 10, None) == faults.sample(every, 10, None)


def test_the_score_counts_what_was_tried() -> None:
    every = [fault(name=name) for name in "bcde"]
    results = {"a.b": "killed", "a.c": "survived", "a.d": "skipped", "a.e": "equivalent"}
    text, enough = faults.score(every, results)
    assert text == "a 1 of 2\n1 of 2 killed (50.0%); 1 equivalent; 1 skipped"
    assert not enough
    assert faults.score(every, dict.fromkeys(results, "killed"))[1]
    assert not faults.score(every, dict.fromkeys(results, "killed") | {"a.b": "broken"})[1]


@pytest.mark.slow
def test_a_sample_of_the_faults_is_caught() -> None:
    words = [sys.executable, str(RUN), "--sample", "3", "--jobs", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = [line.split()[0] for line in done.stdout.splitlines()[2:5]]
    assert set(results) <= {"killed", "skipped"}, done.stdout  # skipped: what its test needs is not installed
    assert "killed" in results


# ------------------------------------------------------------------------------------------- what tests may take


def test_a_group_over_its_share_is_told_and_a_slow_machine_is_not() -> None:
    over_budget, budget = script(ROOT / "conftest.py").over_budget, {"a": 10, "b": 20, "the rest": 30}
    assert over_budget({"a": 100, "b": 200, "c": 100, "d": 200}, budget) == []
    assert over_budget({"a": 9, "b": 1, "c": 1}, budget) == []  # a quick one owes nothing
    (told,) = over_budget({"a": 80, "b": 20, "c": 20}, budget)
    assert told == "a took 80 s, and may take 20 s on a machine this slow"


def test_the_budget_names_files_that_exist() -> None:
    named = script(ROOT / "conftest.py").BUDGET
    files = [name for name in named if name.endswith(".py")]
    assert [name for name in files if not (ROOT / "tests" / name).exists() and not (ROOT / name).exists()] == []
    assert {"spark", "the rest"} <= set(named)
