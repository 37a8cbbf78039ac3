"""Put small faults into a copy of the sources, one at a time, and see whether the test that guards there fails.

    python tests/faults/run.py [--name AREA, AREA.NAME or a pattern ...] [--jobs N] [--sample N] [--seed N]

Each TOML file beside this one is an area, and each of its tables a fault:

    [a_name]
    place = "Class.method"             # the function, class or constant that the text stands in
    old = "text found exactly once in places of this name, however it is laid out"
    new = "what stands there instead"
    says = "what would be wrong for a user"
    test = ["test_that_must_fail"]     # also a file's stem, stem::test, or doctest: those of the place's module
    slow = true                        # only where its test is marked slow
    survives = "why"                   # only where no test kills it yet; counted as survived
    equivalent = "why"                 # only where no user can see a difference; not run, not counted

The named tests run once without any fault, then with each fault alone; a sample trusts them to pass. A process is
forked for every fault after the large libraries are imported, so that a fault costs about what its test costs.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import functools
import gc
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARIES = (
    "torch numpy pandas scipy.stats sklearn pyarrow.parquet duckdb ibis ibis.backends.duckdb lightgbm pydantic "
    "typer.testing altair vl_convert rich.console safetensors.torch hypothesis.strategies pytest doctest pdb"
)
"""Imported once, before anything of ours; one that is missing is passed over."""
SOURCES = ("src", "reproductions/src")
"""Where code that faults are put into lies, below the root of the project."""
TESTS = ("tests", "reproductions/tests")
PATIENCE = 300.0
"""Seconds after which a test that hangs counts as failed."""
PASSING = 0.95
"""The share of faults that tests must kill."""


class Fault(NamedTuple):
    """One fault: where, what, what it would do, and who must catch it."""

    area: str
    name: str
    place: str
    old: str
    new: str
    says: str
    test: tuple[str, ...] = ()
    slow: bool = False
    survives: str = ""
    equivalent: str = ""

    @property
    def id(self) -> str:
        """Area and name, as they are printed and asked for."""
        return f"{self.area}.{self.name}"


def read_faults(folder: Path = HERE) -> list[Fault]:
    """All faults of a folder; a key that is unknown or missing is an error that names the fault."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            try:
                found.append(Fault(path.stem, name, **{**entry, "test": tuple(entry.get("test", ()))}))
            except TypeError as error:
                raise SystemExit(f"{path.name}: [{name}]: {error}") from None
    return found


TOKEN = re.compile(r"\w+|[^\w\s]")
"""A word or one sign: what is left of code when its layout is taken away."""


CLOSING = (")", "]", "}")


class Token(NamedTuple):
    """One token of a text, and where it stands."""

    text: str
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """The tokens of code in order; commas before a closing bracket are layout and left out."""
    every = [Token(found.group(), *found.span()) for found in TOKEN.finditer(text)]
    after = [token.text for token in every[1:]] + [""]
    return [
        token
        for token, next_text in zip(every, after, strict=True)
        if not (token.text == "," and next_text in CLOSING)
    ]


def places(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Every function, class and constant by its dotted name, with its first and last line."""

    def inside(node: ast.AST, within: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                yield f"{within}{child.name}", first, child.end_lineno or first
                yield from inside(child, f"{within}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                named = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
                yield from ((f"{within}{name}", child.lineno, child.end_lineno or 0) for name in sorted(named))
            else:
                yield from inside(child, within)

    return inside(tree, "")


@functools.cache
def all_places(root: Path) -> dict[str, list[tuple[Path, int, int]]]:
    """Where each name of the sources is defined: a file below `root`, and first and last character."""
    found: dict[str, list[tuple[Path, int, int]]] = {}
    for path in (path for folder in SOURCES for path in sorted((root / folder).rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        starts = [0, *itertools.accumulate(len(line) for line in text.splitlines(keepends=True))]
        for name, first, last in places(ast.parse(text)):
            found.setdefault(name, []).append((path.relative_to(root), starts[first - 1], starts[last]))
    return found


class Found(NamedTuple):
    """Where the text of a fault stands: a file below the sources, and first and last character."""

    file: Path
    start: int
    end: int


def occurrences(fault: Fault, root: Path) -> list[Found]:
    """Everywhere in places of its name that the tokens of its text stand in a row."""
    wanted = [token.text for token in tokens(fault.old)]
    found = set()
    for file, first, last in all_places(root).get(fault.place, []):
        every = tokens((root / file).read_text(encoding="utf-8")[first:last])
        texts = [token.text for token in every]
        for at in range(len(texts) - len(wanted) + 1):
            if texts[at : at + len(wanted)] == wanted:
                found.add(Found(file, first + every[at].start, first + every[at + len(wanted) - 1].end))
    return sorted(found)


def located(fault: Fault, root: Path) -> Found:
    """The one occurrence of a fault's text; `ValueError` where there is none, or several."""
    if fault.place not in all_places(root):
        raise ValueError(
            f"{fault.id}: nothing in the sources is named {fault.place}; name the place of this code now"
        )
    found = occurrences(fault, root)
    if len(found) != 1:
        raise ValueError(
            f"{fault.id}: its `old` text stands {len(found)} times in {fault.place}, not once; "
            "quote the code of now"
        )
    return found[0]


def faulty(fault: Fault, root: Path) -> str:
    """The text of its file with the fault in it, further lines indented as the code there is."""
    found = located(fault, root)
    text = (root / found.file).read_text(encoding="utf-8")
    there = indents(text[found.start : found.end])
    quoted = indents(fault.old)
    shift = there[-1] - quoted[-1] if there and quoted else 0
    first, *rest = fault.new.split("\n")
    lines = [first, *(" " * max(0, len(line) - len(line.lstrip()) + shift) + line.lstrip() for line in rest)]
    return text[: found.start] + "\n".join(lines).strip() + text[found.end :]


def indents(text: str) -> list[int]:
    """How far each line after the first is indented."""
    return [len(line) - len(line.lstrip()) for line in text.split("\n")[1:]]


def problems(faults: list[Fault], root: Path = ROOT) -> list[str]:
    """What is wrong with faults: they do not fit the sources, are no Python, or name tests that are not there."""
    wrong = []
    for fault in faults:
        try:
            compile(faulty(fault, root), fault.place, "exec")
        except SyntaxError as error:
            wrong.append(f"{fault.id}: {error}")
        except ValueError as error:
            wrong.append(str(error))
        for test in fault.test:
            if len(found := node_ids(test, root)) != 1 and test != "doctest":
                wrong.append(f"{fault.id}: there are {len(found)} tests {test}, not one")
    return wrong


@functools.cache
def tests_by_name(root: Path) -> dict[str, list[str]]:
    """Node ids of all tests by name, by file and name, and files by their stem."""
    found: dict[str, list[str]] = {}
    for path in (path for folder in TESTS for path in sorted((root / folder).rglob("test_*.py"))):
        file = path.relative_to(root).as_posix()
        found.setdefault(path.stem, []).append(file)
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.M):
            for key in (name, f"{path.stem}::{name}"):
                found.setdefault(key, []).append(f"{file}::{name}")
    return found


def node_ids(test: str, root: Path = ROOT) -> list[str]:
    """What pytest calls the tests of that name; one that is clear stands once."""
    name, bracket, parameters = test.partition("[")
    return [f"{node}{bracket}{parameters}" for node in tests_by_name(root).get(name, [])]


def node_ids_of(fault: Fault, root: Path = ROOT) -> list[str]:
    """The node ids of a fault's tests; `doctest` stands for the module that has its place."""
    module = [located(fault, root).file.as_posix()]
    return [node for test in fault.test for node in (module if test == "doctest" else node_ids(test, root))]


def chosen(faults: list[Fault], names: list[str]) -> list[Fault]:
    """Those of an area, with a name, or that match a pattern; all where nothing is asked for."""
    unknown = [name for name in names if not any(matches(fault, name) for fault in faults)]
    if unknown:
        raise SystemExit(f"no fault is named {', '.join(unknown)}; the areas are {', '.join(areas(faults))}")
    return [fault for fault in faults if not names or any(matches(fault, name) for name in names)]


def matches(fault: Fault, name: str) -> bool:
    """Whether a name on the command line means this fault."""
    return name in (fault.area, fault.name) or fnmatch.fnmatch(fault.id, name)


def areas(faults: list[Fault]) -> list[str]:
    """The areas, sorted."""
    return sorted({fault.area for fault in faults})


def sample(faults: list[Fault], count: int, seed: int | None) -> list[Fault]:
    """Some of those that a quick test kills; without a seed, the sources themselves decide which."""
    quick = [fault for fault in faults if not (fault.slow or fault.survives or fault.equivalent)]
    if seed is None:
        texts = b"".join(path.read_bytes() for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
        seed = int.from_bytes(hashlib.sha256(texts).digest()[:4])
    print(f"a sample of {min(count, len(quick))} by seed {seed}")
    return random.Random(seed).sample(quick, min(count, len(quick)))


class Outcomes:
    """A pytest plugin that keeps what became of each test."""

    def __init__(self) -> None:
        self.by_test: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest for each phase of a test: the worst one counts."""
        if report.outcome != "passed" or report.when == "call":
            self.by_test[report.nodeid] = report.outcome


def run_tests(place: Path, tests: list[str], slow: bool) -> None:
    """In a process of its own: pytest on the copy at `place`; what was printed and the outcomes go to files."""
    os.setsid()
    os.chdir(place)
    with open(place / "printed", "w") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    sources = [str(place / folder) for folder in SOURCES]
    sys.path[:] = [*sources, *(path for path in sys.path if not path.endswith("/src"))]
    os.environ["PYTHONPATH"] = os.pathsep.join(sources)
    import pytest
    from hypothesis import Phase, settings

    settings.register_profile("unshrunk", phases=[Phase.explicit, Phase.generate])  # a failure is enough
    settings.load_profile("unshrunk")
    outcomes = Outcomes()
    which = [] if slow else ["-m", "not slow"]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={place / 'tmp'}", *which]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of a plugin that is imported above
    code = pytest.main([*options, *tests], plugins=[outcomes])
    taken = getattr(sys.modules.get("unskew"), "__file__", None)
    if taken is not None and not taken.startswith(sources[0]):
        print(f"{taken} was tested, not the copy")
        code = pytest.ExitCode.INTERNAL_ERROR
    (place / "outcomes.json").write_text(json.dumps(outcomes.by_test))
    sys.stdout.flush()
    os._exit(code)


def start(place: Path, tests: list[str], slow: bool) -> int:
    """Fork a process that runs tests on a copy; its id."""
    for name in ("outcomes.json", "printed"):
        (place / name).unlink(missing_ok=True)
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        try:
            run_tests(place, tests, slow)
        except BaseException:
            (place / "printed").write_text(traceback.format_exc())
        finally:
            os._exit(3)
    return process


def wait(process: int, seconds: float) -> int | None:
    """The exit code of a process, None once it has taken too long and was ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def copied(place: Path) -> Path:
    """A copy of the project, without what tools and runs left lying about."""
    left, hidden = shutil.ignore_patterns("runs", "demo-run", "reproduced", "dist"), shutil.ignore_patterns(".*")

    def skipped(folder: str, names: list[str]) -> set[str]:
        return hidden(folder, names) | (left(folder, names) if Path(folder) == ROOT else set())

    shutil.copytree(ROOT, place, ignore=skipped)
    return place


@contextlib.contextmanager
def put_in(fault: Fault, place: Path) -> Iterator[None]:
    """The fault in a copy, and taken out again; compiled files are removed, for their times may be the same."""
    path = place / located(fault, ROOT).file
    whole = path.read_text(encoding="utf-8")
    compiled = Path(importlib.util.cache_from_source(str(path)))
    path.write_text(faulty(fault, ROOT), encoding="utf-8")
    compiled.unlink(missing_ok=True)
    try:
        yield
    finally:
        path.write_text(whole, encoding="utf-8")
        compiled.unlink(missing_ok=True)


def try_one(fault: Fault, place: Path) -> dict[str, str]:
    """One fault in one copy: killed and by what, survived, or broken where the tests could not run at all."""
    with put_in(fault, place):
        code = wait(start(place, ["-x", *node_ids_of(fault)], fault.slow), PATIENCE)
    kept = place / "outcomes.json"
    outcomes = json.loads(kept.read_text()) if kept.exists() else {}
    if code is None or code == 1 or code < 0:  # hung, failed, or ended by a signal
        failed = (test for test, outcome in outcomes.items() if outcome == "failed")
        return {"result": "killed", "by": next(failed, "a hang or a signal")}
    if code != 0:
        return {"result": "broken"}
    return {"result": "survived" if "passed" in outcomes.values() else "skipped"}


def without_faults(faults: list[Fault], place: Path) -> dict[str, str]:
    """What becomes of every named test without a fault."""
    found: dict[str, str] = {}
    for slow in {fault.slow for fault in faults}:
        tests = sorted({test for fault in faults if fault.slow == slow for test in node_ids_of(fault)})
        code = wait(start(place, tests, slow), PATIENCE * len(tests))
        if not (place / "outcomes.json").exists() or code not in (0, 1):
            raise SystemExit((place / "printed").read_text() + "\nthe tests do not run, even without a fault")
        found |= json.loads((place / "outcomes.json").read_text())
    return found


def usable(fault: Fault, outcomes: dict[str, str]) -> str:
    """Nothing where its tests pass without the fault; else why it cannot be tried."""
    mine = [
        outcome for test, outcome in outcomes.items() if any(names(named, test) for named in node_ids_of(fault))
    ]
    if "failed" in mine:
        return "broken"
    return "" if "passed" in mine else ("skipped" if mine else "broken")


def names(named: str, test: str) -> bool:
    """Whether a node id names a test: itself, all its parameters, or its file."""
    return test == named or test.startswith((f"{named}[", f"{named}::"))


def in_copies(faults: list[Fault], copies: list[Path], tell: Callable[..., None]) -> None:
    """Every fault in one of the copies, as many at once as there are copies."""
    pending = list(reversed(faults))
    all_places(ROOT), tests_by_name(ROOT)  # read once, not in every process that is forked
    gc.freeze()  # nor does one that collects garbage copy every page of the libraries
    at_work: dict[int, tuple[Fault, Path]] = {}
    free = list(copies)
    while pending or at_work:
        while pending and free:
            fault, place = pending.pop(), free.pop()
            sys.stdout.flush()
            process = os.fork()
            if process == 0:
                result = {"result": "broken"}
                try:
                    result = try_one(fault, place)
                finally:
                    (place / "result").write_text(json.dumps(result))
                    os._exit(0)
            at_work[process] = fault, place
        ended, _ = os.wait()
        fault, place = at_work.pop(ended)
        tell(fault, **json.loads((place / "result").read_text()))
        free.append(place)
    gc.unfreeze()


def score(faults: list[Fault], results: dict[str, str]) -> tuple[str, bool]:
    """Killed by area and in all, and whether that is enough."""
    counted = [fault for fault in faults if results[fault.id] in ("killed", "survived")]
    killed = Counter(fault.area for fault in counted if results[fault.id] == "killed")
    every = Counter(fault.area for fault in counted)
    parts = ", ".join(f"{area} {killed[area]} of {every[area]}" for area in sorted(every))
    share = killed.total() / max(every.total(), 1)
    rest = Counter(result for result in results.values() if result not in ("killed", "survived"))
    others = "".join(f"; {count} {result}" for result, count in sorted(rest.items()))
    enough = share >= PASSING and not rest["broken"]
    return f"{parts}\n{killed.total()} of {every.total()} killed ({share:.1%}){others}", enough


def run(faults: list[Fault], jobs: int, scratch: Path, trusting: bool) -> bool:
    """Try all, print one line each and the score; whether it is enough. `trusting`: no run without faults."""
    for name in LIBRARIES.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    copies = [copied(scratch / str(number)) for number in range(max(1, min(jobs, len(faults))))]
    results: dict[str, str] = {}

    def tell(fault: Fault, result: str, by: str = "") -> None:
        results[fault.id] = result
        why = fault.equivalent if result == "equivalent" else fault.survives
        named = f"  by {by}" if by else f": {fault.says} ({', '.join(fault.test)})"
        print(f"{result:10} {fault.id}{named}{f' [{why}]' if why else ''}", flush=True)

    tried = [fault for fault in faults if not fault.equivalent]
    outcomes = {} if trusting or not tried else without_faults(tried, copies[0])
    for fault in faults:
        unusable = "equivalent" if fault.equivalent else "" if trusting else usable(fault, outcomes)
        if unusable:
            tell(fault, unusable)
    in_copies([fault for fault in tried if fault.id not in results], copies, tell)
    text, enough = score(faults, results)
    print(f"\n{text}")
    return enough


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Faults put into the sources, and which of them tests kill.")
    parser.add_argument("--name", nargs="*", default=[], help="areas, names or patterns; all without it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--sample", type=int, help="only so many, of those with quick tests")
    parser.add_argument("--seed", type=int, help="which ones a sample takes; without it, the sources decide")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    every = read_faults()
    faults = chosen(every, asked.name)
    by_area = Counter(fault.area for fault in every)
    print(f"{len(every)} faults: {', '.join(f'{area} {count}' for area, count in by_area.most_common())}")
    if asked.sample is not None:
        faults = sample(faults, asked.sample, asked.seed)
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        sys.exit(0 if run(faults, asked.jobs, Path(scratch), asked.sample is not None) else 1)


if __name__ == "__main__":
    main()
