"""Run the tests that a change concerns, in a minute and a half: `make test-quick`.

Changed is what differs from origin/main, or from the last commit where there is no origin, and what is not
committed. Tests run in this order as long as there is time: those that changed, tests/habits, those that import a
changed module, those of the changed stages. Slow ones are left to `make test`, as is what does not fit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 65
"""Of all processors together, for tests; the rest of a minute and a half goes into starting."""
USUAL = 3.0
"""Seconds of a file that tests/budget.toml does not name."""
TESTS = ("tests/*/test_*.py", "reproductions/tests/test_*.py")


def changed() -> list[str]:
    """Files that differ, by their place in the repository."""
    base = git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    return [*git("diff", "--name-only", base[0]), *git("ls-files", "--others", "--exclude-standard")]


def git(*words: str) -> list[str]:
    """The lines that git prints; none where it refuses."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def wanted(names: Iterable[str]) -> Iterator[str]:
    """Test files that these changes concern, the nearest first; some come twice."""
    files = sorted(str(path.relative_to(ROOT)) for pattern in TESTS for path in ROOT.glob(pattern))
    changes = list(names)
    yield from (name for name in changes if name in files)
    yield from (file for file in files if file.startswith("tests/habits/"))
    modules = [module for name in changes if (module := module_of(name))]
    imports = re.compile("|".join(rf"\b{re.escape(module)}\b" for module in modules) or "(?!)")
    yield from (file for file in files if imports.search((ROOT / file).read_text(encoding="utf-8")))
    folders = {folder_of(module) for module in modules}
    yield from (file for file in files if any(file.startswith(folder) for folder in folders))


def module_of(name: str) -> str:
    """The dotted name of a source file; empty for others.

    >>> module_of("src/unskew/logs/split.py"), module_of("README.md")
    ('unskew.logs.split', '')
    """
    found = re.fullmatch(r"(?:reproductions/)?src/(.+?)(?:/__init__)?\.py", name)
    return found[1].replace("/", ".") if found else ""


def folder_of(module: str) -> str:
    """Where the tests of a module's stage lie."""
    package, _, rest = module.partition(".")
    return f"tests/{rest.partition('.')[0]}/" if package == "unskew" else "reproductions/tests/"


def fitting(files: Iterable[str], seconds: float) -> tuple[list[str], list[str]]:
    """Those that fit into the time, and the others."""
    budget = tomllib.loads((ROOT / "tests" / "budget.toml").read_text(encoding="utf-8"))["seconds"]
    kept: list[str] = []
    left: list[str] = []
    for file in dict.fromkeys(files):
        cost = budget.get(file.removeprefix("tests/"), USUAL)
        (kept if cost <= seconds else left).append(file)
        seconds -= cost if cost <= seconds else 0
    return kept, left


def main() -> None:
    """Choose and run."""
    kept, left = fitting(wanted(changed()), SECONDS * (os.cpu_count() or 1))
    print(f"{len(kept)} files of tests", *([f"left to make test: {' '.join(left)}"] if left else []), sep="; ")
    words = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", "not slow", *kept]
    sys.exit(subprocess.run(words, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
