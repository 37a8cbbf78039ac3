"""The scripts behind the records still run: each once, as small as it goes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "experiments"
LISTS = "--queries 40 --pages 400 --seeds 2"
SMALL = {
    "click_models.py": "--queries 20 --pages 400 --shuffled 0.1 --behaviours position --seeds 0 2",
    "proof_worlds.py": "--worlds 1012 1013",
    "causes.py": "--worlds 1 --sample 100 --test gsq",
    "whole_page.py": "--seeds 2 --worlds page --queries 30 --tested 20 --pages 400 --steps 12 --randomized 0.5",
    "lbd.py": f"{LISTS} --features 5 --etas 0.1 --test-queries 20 --steps 3 --sizes 4 --jobs 1",
    "lbd_theorems.py": "--etas 0.1,0.5 --queries 40 --features 12 --pairs 200",
    "tracking.py": "--queries 150 --pages 3000 --seeds 1",
    "doubly_robust.py": "--queries 20 --documents 15 --pages 200 --steps 3 --seeds 0 2",
    "starts.py": "--behaviours position --queries 20 --pages 400 --methods naive --seeds 0 2",
    "projections.py": "--behaviours position --queries 20 --pages 200 --steps 3 --labelled 5 --seeds 0 2",
    "safe_worlds.py": "--worlds 1002 1003",
    "engine_worlds.py": "--seeds 1001 1002",
    "drift_worlds.py": "--seeds 0 1 --pages 300",
    "upe.py": "--queries 20 --pages 400 --steps 3 --seeds 0 2",
    "vectorization.py": f"{LISTS} --features 5 --checked 20 --tested 20 --sizes 4 --steps 4 --every 2",
}


def write_baidu(folder: Path, queries: int = 24, shown: int = 4) -> Path:
    """Pages and annotations as Baidu-ULTR has them; results that repeat the query are clicked more."""
    rng, lines, labels = np.random.default_rng(0), [], []
    for query in range(queries):
        asked = rng.integers(1, 60, 3)
        words = "\x01".join(map(str, asked))
        for page in range(6):
            lines.append(f"{query}\t{words}\t")
            for rank in range(1, shown + 1):
                document = (rank + page) % shown
                title = "\x01".join(map(str, [*asked[:document].tolist(), 90 + document, 7]))
                click = int(rng.random() < (0.2 + 0.2 * document) / rank)
                looks = [11 + document % 2, click, "-", "-", 0, 150 + 40 * document, 1, 1, 0, 1, 600 + 10 * rank]
                lines.append("\t".join(map(str, [rank, f"{query}-{document}", title, "5\x016", *looks])))
        labels += [
            f"{query}\t{words}\t{words if grade else 9}\t{grade + 5}\t{grade}\t{query % 10}" for grade in range(5)
        ]
    (folder / "part-00000.tsv").write_text("\n".join(lines) + "\n")
    (folder / "annotations.txt").write_text("\n".join(labels) + "\n")
    return folder


@pytest.mark.slow
def test_baidu_runs_on_files_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("causallearn")
    words = [write_baidu(tmp_path), "--seeds", 2, "--steps", 12, "--batch", 32]
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["baidu.py", *map(str, words)])
    runpy.run_path(str(SCRIPTS / "baidu.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "144 pages of 24 queries; 24 annotated queries" in out
    assert out.count("| bal | ") == 4  # all, head, tail, new positions
    assert "nan" not in out


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_script_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [name, *SMALL[name].split()])
    runpy.run_path(str(SCRIPTS / name), run_name="__main__")
    assert "|---" in capsys.readouterr().out  # it ends with its tables
