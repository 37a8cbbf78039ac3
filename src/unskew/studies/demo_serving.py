"""The demo's last step: a request made of its test lists, and the two commands that serve its model and ask it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from unskew.errors import MissingExtra
from unskew.types import Array, Lists

REQUEST = "request.json"
ADDRESS = "http://127.0.0.1:8000"
"""Where `unskew serve` listens unless told otherwise."""
SHOWN = 10
_PACKAGES = ("fastapi", "uvicorn", "orjson", "prometheus_client")
_ASK = (
    "from urllib.request import *; print(urlopen(Request('{address}/v1/rank', open({path!r}, 'rb').read(), "
    "{{'content-type': 'application/json'}})).read().decode())"
)


def write_request(lists: Lists, shown: Array, path: Path) -> None:
    """Write the page that the logging ranker shows for the first query, by its scores, as a request."""
    last = int(lists.offsets[1])
    order = np.argsort(-np.asarray(shown[:last]), kind="stable")[:SHOWN].tolist()
    documents = [
        {"id": f"doc-{row}", "features": [float(f"{value:.4g}") for value in lists.features[row].tolist()]}
        for row in order
    ]
    lines = ",\n  ".join(map(json.dumps, documents))
    path.write_text(f'{{"query": "query-{lists.query_ids[0]}", "documents": [\n  {lines}\n]}}\n', encoding="utf-8")


def serving_lines(out: Path | str, run: str = "dla") -> list[str]:
    """How to serve a run of the demo and ask it, with what to install before where that is missing."""
    folder = Path(out)
    lines = [f"Serve the debiased ranker; a page to try it is then at {ADDRESS}/"]
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        lines = [f"To serve the debiased ranker: {MissingExtra('serve', missing[0])}; then"]
    lines += [f"    {own_command()} serve {shlex.quote(str(folder / run))}"]
    return [*lines, "Ask it, in another terminal:", f"    {ask_command(folder / REQUEST)}"]


def ask_command(request: Path) -> str:
    """What asks the server on this machine: curl where it is installed, else Python."""
    if shutil.which("curl"):
        data = shlex.quote(f"@{request}")
        return f"curl -s {ADDRESS}/v1/rank -H 'content-type: application/json' -d {data}"
    return shlex.join([_near(sys.executable), "-c", _ASK.format(address=ADDRESS, path=str(request))])


def own_command() -> str:
    """What starts unskew here: its name where the shell finds it, else the path of it."""
    own = Path(sys.executable).with_name("unskew")
    found = shutil.which("unskew")
    if found is not None and Path(found).resolve() == own.resolve():
        return "unskew"
    return shlex.quote(_near(own)) if own.exists() else f"{shlex.quote(_near(sys.executable))} -m unskew"


def _near(path: Path | str) -> str:
    """A path from here, where it lies below; `.venv/bin/python` stays what it is, a link."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else str(path)
