"""Install the wheel of dist/ into an environment of its own, and use it there: `make dist` runs this.

What the wheel depends on is borrowed from the environment that runs the script, so nothing is fetched.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 3_000_000
"""Bytes that neither file should have: more of them and something lies in it that should not."""


def main() -> None:
    """Look into both files, install the wheel and call it."""
    (wheel,), (source,) = (sorted(Path(sys.argv[1]).glob(ending)) for ending in ("*.whl", "*.tar.gz"))
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = {str(path.relative_to(ROOT / "src")) for path in needed()} - names
    assert not missing, f"the wheel lacks {sorted(missing)}"
    strange = [name for name in names if name.split("/")[0] != "unskew" and ".dist-info/" not in name]
    assert not strange, f"the wheel has {strange}"
    with tarfile.open(source) as packed:
        held = {name.split("/")[1] for name in packed.getnames() if "/" in name}
    assert {"src", "reproductions", "tests", "README.md", "LICENSE", "pyproject.toml"} <= held, held
    for path in (wheel, source):
        assert path.stat().st_size < LARGEST, f"{path} has {path.stat().st_size:,} bytes"
    with tempfile.TemporaryDirectory() as folder:
        use(wheel, Path(folder))
    print(f"{wheel.name} and {source.name} are whole; the wheel installs and runs")


def needed() -> list[Path]:
    """What must be in the wheel: modules, the mark of types, what pages look like."""
    found = (ROOT / "src" / "unskew").rglob("*")
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def use(wheel: Path, folder: Path) -> None:
    """Install it without what it depends on, and run a few commands."""
    venv.create(folder / "venv", with_pip=True)
    bin_folder = folder / "venv" / "bin"
    subprocess.run([bin_folder / "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    # files that end in .pth are not read from here, so an unskew that is installed to be edited is not found
    borrowed = os.environ | {"PYTHONPATH": os.pathsep.join(site.getsitepackages())}
    where = "import unskew; print(unskew.__file__)"
    python = [bin_folder / "python", "-c", where]
    found = subprocess.run(python, check=True, env=borrowed, cwd=folder, capture_output=True, text=True).stdout
    assert str(folder) in found, f"imported {found}"
    simulate = "simulate --lists synthetic --queries 20 --pages 200 --out log.parquet --quiet"
    for words in ("--version", "catalogue methods --json", "doctor --json", simulate):
        command = [bin_folder / "unskew", *words.split()]
        subprocess.run(command, check=True, env=borrowed, cwd=folder, stdout=subprocess.DEVNULL)
    beside = "unskew_reproductions.methods.pair_debias:PairDebias"
    command = [bin_folder / "unskew", "catalogue", "methods", beside]
    refused = subprocess.run(command, check=False, env=borrowed, cwd=folder, capture_output=True, text=True)
    assert "pip install ./reproductions" in refused.stderr, refused


if __name__ == "__main__":
    main()
