"""The scripts behind the records still run: each once, as small as it goes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "experiments"
LISTS = "--queries 40 --pages 400 --seeds 2"
SMALL = {
    "causes.py": "--worlds 1 --sample 100 --test gsq",
    "whole_page.py": "--seeds 2 --worlds page --queries 30 --tested 20 --pages 400 --steps 12 --randomized 0.5",
    "lbd.py": f"{LISTS} --features 5 --etas 0.1 --test-queries 20 --steps 3 --sizes 4 --jobs 1",
    "lbd_theorems.py": "--etas 0.1,0.5 --queries 40 --features 12 --pairs 200",
    "tracking.py": "--queries 150 --pages 3000 --seeds 1",
    "doubly_robust.py": "--queries 20 --documents 15 --pages 200 --steps 3 --seeds 0 2",
    "projections.py": "--behaviours position --queries 20 --pages 200 --steps 3 --labelled 5 --seeds 0 2",
    "upe.py": "--queries 20 --pages 400 --steps 3 --seeds 0 2",
    "vectorization.py": f"{LISTS} --features 5 --checked 20 --tested 20 --sizes 4 --steps 4 --every 2",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_script_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [name, *SMALL[name].split()])
    runpy.run_path(str(SCRIPTS / name), run_name="__main__")
    assert "|---" in capsys.readouterr().out  # it ends with its tables
