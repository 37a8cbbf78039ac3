"""What is installed here and what is missing: packages, engines, Java, the device of torch, and folders.

What must be there is read from the package's own metadata. Something required that is missing, too old or broken
makes `ok` false; an extra that is missing does not: its command says how to get it.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from unskew import __version__
from unskew.results import Result

EXTRAS = {
    "trees": "rankers and methods of boosted trees, and the examination model",
    "spark": "logs on Spark, with --engine spark",
    "causal": "unskew causes, and the method bal",
    "text": "rankers that read query and document",
    "serve": "unskew serve and store, and networks as ONNX",
}
"""What each extra is for; those of developers are not asked for."""
JAVA = 17
"""The oldest version of Java that Spark runs on."""
_GET_JAVA = f"apt install openjdk-{JAVA}-jre-headless, or set JAVA_HOME"


@dataclass(frozen=True)
class Checkup(Result):
    """What is installed, by part."""

    unskew: Mapping[str, str]
    python: Mapping[str, str]
    machine: Mapping[str, Any]
    packages: Sequence[Mapping[str, Any]]
    extras: Sequence[Mapping[str, Any]]
    engines: Mapping[str, Mapping[str, Any]]
    java: Mapping[str, Any]
    torch: Mapping[str, Any]
    folders: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, str | None]
    broken: Sequence[str] = ()
    """What nothing works without."""
    missing: Sequence[str] = ()
    """What else is not there."""
    told = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether all that is required is there."""
        return not self.broken


def doctor() -> Checkup:
    """What is installed and what is not."""
    from unskew.tables.lists.store import cache_root

    packages = list(needed_packages())
    java, extras = _java(), list[dict[str, Any]]()
    for name, what in EXTRAS.items():
        lacking = [each["name"] for each in packages if each["extra"] == name and not each["ok"]]
        get = f"pip install 'unskew[{name}]'"
        extras.append({"name": name, "ok": not lacking, "missing": lacking, "what": what, "get": get})
    on_spark = java["ok"] and all(extra["ok"] for extra in extras if extra["name"] == "spark")
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = Checkup(
        unskew={"version": __version__, "folder": str(Path(__file__).parent.parent)},
        python={"version": platform.python_version(), "executable": sys.executable},
        machine={"platform": platform.platform(), "processors": processors, "memory": _memory()},
        packages=packages,
        extras=extras,
        engines={"duckdb": _tried(_duckdb), "spark": {"ok": on_spark}},
        java=java,
        torch=_tried(_torch),
        folders={"cache": _folder(cache_root()), "temporary": _folder(Path(tempfile.gettempdir()))},
        environment={name: os.environ.get(name) for name in ("UNSKEW_CACHE", "UNSKEW_DATA", "JAVA_HOME")},
    )
    return replace(found, broken=[*_broken(found)], missing=[*_missing(found)])


def _broken(found: Checkup) -> Iterator[str]:
    """Packages and parts that nothing works without, and that are missing or too old."""
    for package in found.packages:
        if package["extra"] is None and not package["ok"]:
            wanted = f"{package['name']}{package['needs']}"
            yield f"{wanted}, there is {package['version'] or 'none'}: pip install '{wanted}'"
    for name, part in (("duckdb", found.engines["duckdb"]), ("torch", found.torch)):
        if not part["ok"]:
            yield f"{name}: {part['error']}"
    if not found.folders["temporary"]["ok"]:
        yield f"temporary folder: {found.folders['temporary']['error']}; set TMPDIR"


def _missing(found: Checkup) -> Iterator[str]:
    """What some commands need, and how to get it."""
    for extra in found.extras:
        if not extra["ok"]:
            yield f"{extra['what']}: {extra['get']}"
    if not found.java["ok"]:
        yield f"Java {JAVA} or later, for Spark on this machine: {_GET_JAVA}"
    if not found.folders["cache"]["ok"]:
        yield f"cache of parsed files: {found.folders['cache']['error']}; set UNSKEW_CACHE"


def lines(found: Checkup) -> Iterator[str]:
    """What was found, in lines."""
    yield f"unskew {found.unskew['version']}   {found.unskew['folder']}"
    yield f"Python {found.python['version']}   {found.python['executable']}"
    machine, torch, java = found.machine, found.torch, found.java
    memory = "unknown" if machine["memory"] is None else _size(machine["memory"])
    yield f"{machine['platform']}, {machine['processors']} processors, {memory} of memory"
    yield ""
    for package in found.packages:
        extra = f"  [{package['extra']}]" if package["extra"] else ""
        yield _line(package, package["name"] + extra, f"{package['version'] or 'not there'} {package['needs']}")
    yield ""
    yield _line(torch, "torch runs on", f"{torch['device']}, {torch['threads']} thread(s)" if torch["ok"] else "")
    for name, engine in found.engines.items():
        yield _line(engine, f"engine {name}")
    yield _line(java, "Java", java["version"] or "not there")
    for name, folder in found.folders.items():
        yield _line(
            folder, f"{name} folder", f"{folder['path']}, {_size(folder['free'])} free" if folder["ok"] else ""
        )
    for title, told in (
        ("Broken; unskew does not work without", found.broken),
        ("Not there; get it if you want", found.missing),
    ):
        yield from (f"\n{title}:", *(f"  {each}" for each in told)) if told else ()


def _line(part: Mapping[str, Any], name: str, more: str = "") -> str:
    """A part, whether it is well, and what is wrong with it."""
    return f"{'ok' if part['ok'] else '--'}  {name:<36}{more or part.get('error', '')}".rstrip()


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB"


def needed_packages() -> Iterator[dict[str, Any]]:
    """What the metadata of unskew asks for, and which version of it is there."""
    for requirement in map(Requirement, metadata.requires("unskew") or []):
        named = re.search(r"""extra == ["'](\w+)["']""", str(requirement.marker or ""))
        extra = named[1] if named else None
        if extra is not None and extra not in EXTRAS:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra or ""}):
            continue
        version = _version(requirement.name)
        ok = version is not None and requirement.specifier.contains(version, prereleases=True)
        needs = str(requirement.specifier)
        yield {"name": requirement.name, "version": version, "needs": needs, "ok": ok, "extra": extra}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _java() -> dict[str, Any]:
    """The Java that Spark would be started with."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    version = None
    if path is not None:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
        found = re.search(r'version "([^"]+)"', said)
        version = found[1] if found else None
    number = re.match(r"\d+", version or "")
    return {"ok": number is not None and int(number[0]) >= JAVA, "version": version, "path": path}


def _tried(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a part says of itself, or what is wrong with it, whatever that is."""
    try:
        return {"ok": True, **part()}
    except Exception as error:
        return {"ok": False, "error": str(error).strip().split("\n")[0] or type(error).__name__}


def _torch() -> dict[str, Any]:
    """Where torch would compute."""
    import torch

    graphics = torch.cuda.is_available()
    device = f"cuda ({torch.cuda.get_device_name(0)})" if graphics else "cpu"
    return {"device": device, "threads": torch.get_num_threads()}


def _duckdb() -> dict[str, Any]:
    """Nothing, if the engine answers."""
    from unskew.tables.engine.engine import connect

    with connect("duckdb"):
        return {}


def _folder(path: Path) -> dict[str, Any]:
    """Whether a folder can be written to, and how much fits."""
    from unskew.tables.lists.store import unwritable

    told: dict[str, Any] = {"path": str(path), "ok": True, "free": None}
    if error := unwritable(path):
        return told | {"ok": False, "error": f"{path}: {error}"}
    return told | {"free": shutil.disk_usage(path).free}


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None
