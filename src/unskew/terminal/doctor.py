"""What is installed here and what is missing: packages, engines, Java, the device of torch, and folders.

What must be there is read from the package's own metadata. Something required that is missing, too old or broken
makes `ok` false; an extra that is missing does not: its command says how to get it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from packaging.requirements import Requirement

from unskew import __version__
from unskew.settings import read_toml

EXTRAS = {
    "trees": "rankers and methods of boosted trees, and the examination model",
    "spark": "logs on Spark, with --engine spark",
    "causal": "unskew causes, and the methods bal and fb_bal",
    "text": "rankers that read query and document",
    "serve": "unskew serve and store, and networks as ONNX",
}
"""What each extra is for; those of developers are not asked for."""
_IMPORTED = {
    "trees": "lightgbm",
    "spark": "pyspark",
    "causal": "causallearn",
    "text": "transformers",
    "serve": "lmdb",
}
JAVA = 17
"""The oldest version of Java that Spark runs on."""
_GET_JAVA = f"apt install openjdk-{JAVA}-jre-headless, or set JAVA_HOME"


class Package(TypedDict):
    """A package that unskew, or an extra of it, needs."""

    name: str
    version: str | None
    needs: str
    ok: bool
    extra: str | None


def doctor() -> dict[str, Any]:
    """What is installed, by part; `ok` says whether all that is required is there, `missing` what else is not."""
    packages = list(needed_packages())
    java, extras = _java(), [_extra(name, packages) for name in EXTRAS]
    on_spark = java["ok"] and all(extra["ok"] for extra in extras if extra["name"] == "spark")
    found: dict[str, Any] = {
        "unskew": {"version": __version__, "folder": str(Path(__file__).parent.parent)},
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "machine": {"platform": platform.platform(), "processors": _processors(), "memory": _memory()},
        "packages": packages,
        "extras": extras,
        "engines": {"duckdb": _duckdb(), "spark": {"ok": on_spark}},
        "java": java,
        "torch": _torch(),
        "folders": {"cache": _folder(_cache()), "temporary": _folder(Path(tempfile.gettempdir()))},
        "environment": {name: os.environ.get(name) for name in ("UNSKEW_CACHE", "UNSKEW_DATA", "JAVA_HOME")},
    }
    broken = list(_broken(found))
    return {"ok": not broken, **found, "broken": broken, "missing": list(_missing(found))}


def _broken(found: dict[str, Any]) -> Iterator[str]:
    """What nothing works without."""
    for package in found["packages"]:
        if package["extra"] is None and not package["ok"]:
            wanted = f"{package['name']}{package['needs']}"
            yield f"{wanted}, there is {package['version'] or 'none'}: pip install '{wanted}'"
    for name, part in (("duckdb", found["engines"]["duckdb"]), ("torch", found["torch"])):
        if not part["ok"]:
            yield f"{name}: {part['error']}"
    if not found["folders"]["temporary"]["ok"]:
        yield f"temporary folder: {found['folders']['temporary']['error']}; set TMPDIR"


def _missing(found: dict[str, Any]) -> Iterator[str]:
    """What some commands need, and how to get it."""
    for extra in found["extras"]:
        if not extra["ok"]:
            yield f"{extra['what']}: {extra['get']}"
    if not found["java"]["ok"]:
        yield f"Java {JAVA} or later, for Spark on this machine: {_GET_JAVA}"
    if not found["folders"]["cache"]["ok"]:
        yield f"cache of parsed files: {found['folders']['cache']['error']}; set UNSKEW_CACHE"


def lines(found: dict[str, Any]) -> Iterator[str]:
    """What was found, in lines."""
    yield f"unskew {found['unskew']['version']}   {found['unskew']['folder']}"
    yield f"Python {found['python']['version']}   {found['python']['executable']}"
    machine = found["machine"]
    yield f"{machine['platform']}, {machine['processors']} processors, {_size(machine['memory'])} of memory"
    yield ""
    for package in found["packages"]:
        extra = f"  [{package['extra']}]" if package["extra"] else ""
        yield _line(
            package["ok"], package["name"] + extra, f"{package['version'] or 'not there'} {package['needs']}"
        )
    yield ""
    torch, java = found["torch"], found["java"]
    yield _line(torch["ok"], "torch runs on", torch.get("device") or torch["error"], _threads(torch))
    yield _line(found["engines"]["duckdb"]["ok"], "engine duckdb")
    yield _line(found["engines"]["spark"]["ok"], "engine spark")
    yield _line(java["ok"], "Java", java["version"] or "not there")
    for name, folder in found["folders"].items():
        free = f"{_size(folder['free'])} free" if folder["ok"] else folder["error"]
        yield _line(folder["ok"], f"{name} folder", f"{folder['path']}, {free}")
    if found["broken"]:
        yield "\nBroken; unskew does not work without:"
        yield from (f"  {each}" for each in found["broken"])
    if found["missing"]:
        yield "\nNot there; get it if you want:"
        yield from (f"  {each}" for each in found["missing"])


def needed_packages() -> Iterator[Package]:
    """What the metadata of unskew asks for, and which version of it is there."""
    for requirement in map(Requirement, _asked()):
        extra = _extra_of(requirement)
        if extra is not None and extra not in EXTRAS:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra or ""}):
            continue
        version = _version(requirement.name)
        ok = version is not None and requirement.specifier.contains(version, prereleases=True)
        needs = str(requirement.specifier)
        yield {"name": requirement.name, "version": version, "needs": needs, "ok": ok, "extra": extra}


def _asked() -> list[str]:
    """The requirements of unskew: of the installed one, or of the folder of sources that it is run from."""
    try:
        return metadata.requires("unskew") or []
    except metadata.PackageNotFoundError:
        file = Path(__file__).parents[3] / "pyproject.toml"
        project = read_toml(file)["project"] if file.exists() else {}
    extras = project.get("optional-dependencies", {})
    apart = [
        f"{each}{' and' if ';' in each else ';'} extra == '{extra}'"
        for extra in EXTRAS
        for each in extras.get(extra, [])
    ]
    return [*project.get("dependencies", []), *apart]


def _extra_of(requirement: Requirement) -> str | None:
    found = re.search(r"""extra == ["'](\w+)["']""", str(requirement.marker or ""))
    return found[1] if found else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _extra(name: str, packages: list[Package]) -> dict[str, Any]:
    missing = [each["name"] for each in packages if each["extra"] == name and not each["ok"]]
    missing += [] if find_spec(_IMPORTED[name]) else [_IMPORTED[name]]
    get = f"pip install 'unskew[{name}]'"
    return {"name": name, "ok": not missing, "missing": missing, "what": EXTRAS[name], "get": get}


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


def _torch() -> dict[str, Any]:
    """Where torch would compute."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"ok": False, "error": _first_line(error)}
    graphics = torch.cuda.is_available()
    device = f"cuda ({torch.cuda.get_device_name(0)})" if graphics else "cpu"
    return {"ok": True, "device": device, "threads": torch.get_num_threads()}


def _duckdb() -> dict[str, Any]:
    """Whether the engine answers."""
    try:
        from unskew.tables.engine.engine import connect

        with connect("duckdb"):
            return {"ok": True}
    except Exception as error:  # whatever is wrong with it is what is asked for
        return {"ok": False, "error": _first_line(error)}


def _cache() -> Path:
    from unskew.tables.lists.store import cache_root

    return cache_root()


def _folder(path: Path) -> dict[str, Any]:
    """Whether a folder can be written to, and how much fits."""
    from unskew.tables.lists.store import unwritable

    error = unwritable(path)
    free = None if error else shutil.disk_usage(path).free
    return {
        "path": str(path),
        "ok": error is None,
        "free": free,
        **({"error": f"{path}: {error}"} if error else {}),
    }


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def _size(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GB"


def _threads(torch: dict[str, Any]) -> str | None:
    count = torch.get("threads")
    return None if count is None else f"{count} thread{'s' * (count != 1)}"


def _line(ok: bool, name: str, *more: object) -> str:
    told = ", ".join(str(each) for each in more if each is not None)
    return f"{'ok' if ok else '--'}  {name:<36}{told}".rstrip()


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
