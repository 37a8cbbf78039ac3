"""The documents say what is true: the tree, the methods, the version, and examples that run."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import unskew
from unskew.learning.methods import LEARNERS
from unskew.simulation import BEHAVIOURS
from unskew.terminal.main import app
from unskew.workflows.runs.request import ask
from unskew_reproductions.methods import METHODS as BESIDE

torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "unskew"


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def printed_tree(text: str) -> dict[str, str]:
    """Every folder that the tree in ARCHITECTURE.md names, with its line: indentation says what it is in."""
    block = re.search(r"^ *src/unskew/.*\n((?: +\S.*\n)+)", text, re.MULTILINE)
    assert block is not None, "ARCHITECTURE.md prints no tree that begins with src/unskew/"
    found: dict[str, str] = {}
    folders: list[tuple[int, str]] = []
    for line in block[1].splitlines():
        indent, (name, *purpose) = len(line) - len(line.lstrip()), line.split(maxsplit=1)
        folders = [*((depth, folder) for depth, folder in folders if depth < indent), (indent, name)]
        found["".join(folder for _, folder in folders).rstrip("/")] = purpose[0] if purpose else ""
    return found


def test_the_tree_names_every_room_and_no_other() -> None:
    tree = printed_tree((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    rooms = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("*/**/__init__.py")}
    assert set(tree) == rooms
    assert [name for name, purpose in tree.items() if not purpose] == [], "named without a line that says what for"


def test_paths_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text.split("## One log")[1]))
    assert len(named) > 20
    assert [
        name for name in named if not any((place / name).exists() for place in (SOURCE, ROOT / "src", ROOT))
    ] == []


def test_faults_quote_the_code_as_it_is_and_name_tests_that_exist() -> None:
    """Where this fails, the code that a fault of tests/faults quotes has changed: quote it anew."""
    script = runpy.run_path(str(ROOT / "tests" / "faults" / "run.py"))
    wrong = script["problems"](script["read_faults"]())
    assert wrong == [], "\n".join(wrong)


def test_every_module_says_what_it_is_for() -> None:
    for path in SOURCE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_the_table_of_methods_is_complete() -> None:
    text = (ROOT / "docs" / "explanation" / "methods.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.MULTILINE))
    assert set(rows) == set(LEARNERS)
    for name, config in LEARNERS.items():
        linked = re.search(r"\((?:\.\./)+(src/\S+\.py)\)", rows[name])
        assert linked is not None, f"the row of {name} links no file"
        assert (ROOT / linked[1]).read_text(encoding="utf-8").count(f"class {config.__name__}(") == 1
    beside = re.findall(r"^\| `([\w.]+:\w+)` \|", text, re.MULTILINE)
    assert beside == [f"{config.__module__}:{config.__name__}" for config in BESIDE.values()]


def test_the_readme_is_short(readme: str) -> None:
    assert len(readme.splitlines()) < 120


def test_the_readme_has_a_table_of_eight_rows_and_the_list_behind_it_every_page(readme: str) -> None:
    index = readme.split("## What is where")[1].split("\n## ")[0]
    assert len(re.findall(r"^\| (?!you want)\w", index, re.MULTILINE)) == 8
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    pages = {page for page in pages if not page.startswith("records/")} - {"all_pages.md"}
    listed = (ROOT / "docs" / "all_pages.md").read_text(encoding="utf-8")
    assert pages - set(re.findall(r"\]\(([^)#]+)", listed)) == set()


def test_the_site_has_a_place_for_every_page() -> None:
    places = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if f" {page}\n" not in places] == [], "add them to nav in mkdocs.yml"


def test_links_lead_somewhere() -> None:
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")):
        links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        local = [link for link in links if not link.startswith(("http://", "https://"))]
        assert [link for link in local if not (path.parent / link).exists()] == [], path


def test_every_record_is_listed_and_names_its_command() -> None:
    records = {path.name for path in (ROOT / "docs" / "records").glob("*.md")} - {"README.md"}
    listed = re.findall(
        r"^\| \[\w+\]\((\S+)\) \|", (ROOT / "docs" / "records" / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(records)
    for name in records:
        text = (ROOT / "docs" / "records" / name).read_text(encoding="utf-8")
        assert re.search(r"^    +(python|unskew|make) ", text, re.MULTILINE), f"{name} names no command"


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("explanation/which_method", 60),
        ("how_to/bias_factors", 3),
        ("how_to/shuffled_traffic", 2),
        ("how_to/own_lightgbm", 2),
    ],
)
def test_numbers_stand_in_the_records_that_are_linked(page: str, least: int) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    told = 0
    for part in re.split(r"\n(?=[|\-\d#])|\n\n", text):
        linked = re.findall(r"\]\(\.\./(records/\w+\.md)\)", part)
        records = "".join((ROOT / "docs" / link).read_text(encoding="utf-8") for link in linked)
        there = [float(number) for number in re.findall(r"\d+\.\d+", records)]
        for number in re.findall(r"\d+\.\d{2,}", part if linked or page.startswith("expl") else ""):
            near = 0.5 * 10.0 ** -len(number.partition(".")[2]) + 1e-9
            assert any(abs(each - float(number)) <= near for each in there), (number, part)
            told += 1
    assert told >= least


def test_the_decision_table_knows_many_methods() -> None:
    text = (ROOT / "docs" / "explanation" / "which_method.md").read_text(encoding="utf-8")
    assert len(set(re.findall(r"`(\w+)`", text.split("## Where naive")[0])) & set(LEARNERS)) >= 15


@pytest.mark.parametrize(
    ("name", "lines"), [("EXPERIMENTS.md", 40), ("BENCHMARKS.md", 70), ("ARCHITECTURE.md", 150)]
)
def test_what_people_read_first_is_short(name: str, lines: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= lines


def test_the_changelog_knows_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[?([^\]\s]+)\]?", text, re.MULTILINE)
    assert {"Unreleased", unskew.__version__} & set(headings)
    assert re.search(r"^### (Added|Changed|Fixed|Removed|Deprecated|Security)$", text, re.MULTILINE)


def test_the_python_example_runs(readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = next(code for code in fenced(readme, "python") if "unskew.learn(" in code)
    for long, short in (
        ("queries=2000", "queries=50"),
        ("pages=1_000_000", "pages=2_000"),
        ('ranker="mlp"', 'ranker="mlp", steps=5'),
    ):
        assert example.count(long) == 1, f"the example in README.md has no {long} to make smaller"
        example = example.replace(long, short)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)  # our own documentation
    assert isinstance(names["run"], unskew.Run)
    assert names["run"].model.card.method["name"] == "dla"
    saved = re.findall(r'run\.save\("([^"]+)"\)', example)
    assert [unskew.load(tmp_path / folder).features for folder in saved] == [40]


@pytest.mark.slow
def test_the_python_example_recovers_examination(
    readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands: a million pages, none shuffled, and the defaults that a user gets."""
    example = next(code for code in fenced(readme, "python") if "unskew.learn(" in code)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)  # our own documentation
    run, curve = names["run"], unskew.behaviours.PositionBias().curve
    assert isinstance(run, unskew.Run)
    truth = [value / curve[0] for value in curve]
    assert run.propensity() == pytest.approx(truth, rel=0.1)


def test_the_shell_example_runs(readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line, with fewer pages and steps, in a folder that holds a copy of the example run file."""
    example = next(code for code in fenced(readme, "(?:bash|console|sh)") if "unskew learn" in code)
    run_file = (ROOT / "examples" / "run.toml").read_text(encoding="utf-8")
    (tmp_path / "examples").mkdir()
    shorter = re.sub(r"^(steps|batch) *= *\d+", r"\1 = 5", run_file, flags=re.MULTILINE)
    (tmp_path / "examples" / "run.toml").write_text(shorter, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line, comments=True) for line in example.splitlines()]
    commands = [words[words.index("unskew") + 1 :] for words in commands if "unskew" in words]
    assert len(commands) >= 4
    for words in commands:
        small = ["3000" if word == "200000" else word for word in words]
        small += {"simulate": ["--queries", "40"], "serve": ["--check"]}.get(words[0], [])  # a server does not end
        ended = CliRunner().invoke(app, small)
        assert ended.exit_code == 0, (words, ended.stdout, ended.exception)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["dla", "naive"]


def test_example_run_files_are_valid() -> None:
    files = sorted((ROOT / "examples").glob("run*.toml"))
    assert files
    for path in files:
        ask(path)


def test_every_behaviour_and_public_name_is_documented() -> None:
    for name in unskew.__all__:
        assert (getattr(unskew, name).__doc__ or "").strip(), f"unskew.{name} has no docstring"
    for behaviour in BEHAVIOURS.values():
        assert (behaviour.__doc__ or "").strip()
