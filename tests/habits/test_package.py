"""The package: what its metadata promise, extras that do something, files that must come along."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import unskew
import unskew_reproductions
from unskew.terminal.doctor import EXTRAS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(extras: dict[str, list[str]], extra: str) -> set[str]:
    """What an extra brings, with what the extras that it names bring."""
    found: set[str] = set()
    for requirement in extras[extra]:
        inner = re.fullmatch(r"unskew\[(.+)\]", requirement)
        found |= {name for each in inner[1].split(",") for name in names(extras, each)} if inner else {requirement}
    return found


def test_every_extra_does_something_and_the_doctor_knows_it(project: dict[str, dict[str, list[str]]]) -> None:
    extras = project["optional-dependencies"]
    assert set(extras) - {"dev", "docs", "all"} == set(EXTRAS)
    assert names(extras, "all") == set().union(*(names(extras, extra) for extra in EXTRAS))
    assert names(extras, "all") <= names(extras, "dev")
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for package in ("lightgbm", "xgboost", "pyspark", "causallearn", "transformers"):
        assert re.search(rf'\b(import|from) {package}\b|"{package}"', sources), f"nothing imports {package}"


def test_metadata_say_where_and_for_whom(project: dict[str, object]) -> None:
    urls, classifiers = project["urls"], project["classifiers"]
    assert isinstance(urls, dict)
    assert isinstance(classifiers, list)
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(urls)
    assert all(address.startswith("https://github.com/unskew/unskew") for address in urls.values())
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in classifiers
    assert project["scripts"] == {"unskew": "unskew.terminal.main:main"}


def test_types_and_recipes_lie_in_the_packages() -> None:
    for package in (unskew, unskew_reproductions):
        assert (Path(package.__file__).parent / "py.typed").is_file()
    assert len(list((Path(unskew_reproductions.__file__).parent / "recipes").glob("*.toml"))) > 10


def test_both_packages_have_one_version(project: dict[str, object]) -> None:
    beside = tomllib.loads((ROOT / "reproductions" / "pyproject.toml").read_text())["project"]
    assert beside["version"] == unskew.__version__


def test_the_container_recipe_takes_what_the_package_is_built_from() -> None:
    recipe = (ROOT / "Dockerfile").read_text()
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word for words in re.findall(r"^COPY (?!--)(.+) \S+$", recipe, re.MULTILINE) for word in words.split()
    }
    assert copied == kept
    torch = next(
        each
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        if "torch" in each
    )
    assert f"'{torch}'" in recipe  # the same version from the index without GPU libraries
    assert re.search(r"^USER (?!root)\w+$", recipe, re.MULTILINE)
    assert 'ENTRYPOINT ["unskew"]' in recipe
