"""Several processes: the same weights as one process, one speaker, one run folder, and an end for all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import unskew
from unskew.errors import ConfigError
from unskew.learning.fitting.distributed import Parallel, own_parts
from unskew.learning.fitting.loop import Fit, Progress, fit_side
from unskew.learning.fitting.training import Training
from unskew.learning.methods import Context, Vectorization
from unskew.learning.rankers import MLP
from unskew.learning.scoring.model import build_tower
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import reduce_log
from unskew.types import Log
from unskew.workflows.runs.learn import learn_request
from unskew.workflows.runs.request import ask

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def log() -> Log:
    lists = unskew.make_lists(queries=30, features=5, documents=(3, 7), seed=1)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=1500, seed=2, cutoff=5)


@pytest.fixture(scope="module")
def folder(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, lists = tmp_path_factory.mktemp("distributed"), log.lists
    unskew.write_log(log, place / "log.parquet")
    table: dict[str, Any] = {"query_id": np.repeat(lists.query_ids, lists.sizes), "doc_id": lists.document_ids()}
    vectors = pa.array(list(lists.features), pa.list_(pa.float32()))
    pq.write_table(pa.table(table | {"vector": vectors}), place / "features.parquet")
    return place


def run_file(folder: Path, name: str, method: str = "dla", data: str = "", **training: Any) -> Path:
    path = folder / f"{name}.toml"
    settings = {"steps": 12, "batch": 16, "workers": 2, "validate_every": 6, "optimizer": "sgd"} | training
    path.write_text(
        f'out = "{name}"\n[data]\nlog = "log.parquet"\nfeatures = "features.parquet"\n{data}\n'
        f'[method]\nname = "{method}"\n[ranker]\nname = "mlp"\nsizes = [6]\ndropout = 0.1\n[training]\n'
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    )
    return path


def learn(path: Path, out: Path, report: Any = None) -> unskew.Model:
    return learn_request(ask(path), out, report=report)


def torchrun(*words: str | Path) -> list[str]:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*run, *map(str, words)]


def environment() -> dict[str, str]:
    """That of this process, as it is now: the tests' own cache is set when they run."""
    return os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "weights.safetensors")


def assert_close(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.allclose(value.double(), second[name].double(), rtol=1e-6, atol=1e-6), name


# ---- one process ----


def test_the_parts_of_an_epoch_are_its_rows(log: Log) -> None:
    whole = Batches(reduce_log(log), size=10, seed=3)
    parts = [whole.every(3, worker) for worker in range(3)]
    assert {len(part) for part in parts} == {len(parts[0])}
    order, dealt = whole._shuffle(0), [part._shuffle(0) for part in parts]
    joined = torch.stack(dealt, 1).flatten()[: len(order)]
    assert torch.equal(joined, order)
    assert all(part.size == 4 for part in parts)  # 10 rows in three parts, rounded up
    assert torch.equal(parts[1].at(0).clicks, parts[1].at(0).clicks)
    assert len(parts[0].at(0).where) == 4


def test_a_second_network_goes_on_by_the_mean_over_parts(log: Log) -> None:
    method = Vectorization(dimension=2, penalty=0.0).build(Context(int(log.position.max())))
    tower = build_tower(MLP(sizes=(4,)), log.lists.dim, method).eval()
    whole = Batches(reduce_log(log), size=16)
    parts = own_parts([0.5, 0.5], lambda worker: whole.every(2, worker))
    weights, gradients = list(tower.side.parameters()), []
    for part in parts:
        batch = part.draws.at(0)
        loss = method.side_loss(batch.pad(tower(batch.documents)), batch)
        gradients.append(torch.autograd.grad(loss, weights))
    expected = [w.detach() - 0.1 * (a + b) / 2 for w, a, b in zip(weights, *gradients, strict=True)]
    training = Training(optimizer="sgd", learning_rate=0.1, clip=None, schedule="constant", workers=2)
    fit_side(tower, method, parts, training, Fit(step=1), kind=Parallel)
    for weight, value in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight.detach(), value, rtol=1e-4, atol=1e-6)


def test_a_step_is_the_mean_over_its_parts(folder: Path, tmp_path: Path) -> None:
    """Against a hand-made step: gradients of each part from the same weights, buffers averaged."""
    request = ask(
        run_file(folder, "hand", "regression_em", steps=1, validate_on="nothing", clip=1e9, weight_decay=0.0)
    )
    from unskew.workflows.runs.learn import open_data
    from unskew.workflows.runs.run import prepare

    data, _ = open_data(request)
    torch.manual_seed(0)
    fitter = prepare(request.settings, data)
    trainer, parts, model = fitter.trainer, fitter.batches, fitter.model
    model.ranker[1].inplace = False
    start = {name: value.clone() for name, value in trainer.modules.state_dict().items()}
    gradients, buffers = [], []
    for part in parts:
        trainer.modules.load_state_dict(start)
        trainer.modules.train()
        torch.manual_seed((part.worker * 0x9E3779B97F4A7C15) % 2**63)
        batch = part.draws.at(0)
        loss = model.method(batch.pad(model.ranker(batch.documents)), batch)
        gradients.append(torch.autograd.grad(loss, list(model.ranker.parameters())))
        buffers.append(model.method.examination.table0.clone())
    trainer.modules.load_state_dict(start)
    trainer.step(parts, 0)
    assert torch.allclose(model.method.examination.table0, (buffers[0] + buffers[1]) / 2, atol=1e-6)
    assert not torch.allclose(buffers[0], buffers[1], atol=1e-4)  # else the mean would say nothing
    for (name, value), one, two in zip(model.ranker.named_parameters(), *gradients, strict=True):
        expected = start[f"ranker.{name}"] - request.settings.training.learning_rate * (one + two) / 2
        assert torch.allclose(value, expected, atol=1e-6), name


def test_a_run_in_parts_resumes_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    path = run_file(
        folder,
        "parts",
        "unskew_reproductions.methods.pair_debias:PairDebias",
        "shards = 3",
        checkpoint_every=5,
        optimizer="adam",
    )
    straight = learn(path, tmp_path / "straight")

    def stop(progress: Progress) -> None:
        if progress.step == 6:
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError, match="plug"):
        learn(path, tmp_path / "cut", stop)
    resumed = learn(path, tmp_path / "cut")
    for name, value in straight.model.ranker.state_dict().items():
        assert torch.equal(value, resumed.model.ranker.state_dict()[name])
    assert json.loads((tmp_path / "cut" / "run.json").read_text())["data"]["shards"] == 4  # two for each worker


def test_settings_that_cannot_be(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too small for 20 workers"):
        learn(run_file(folder, "many", workers=20), tmp_path / "run")
    path = run_file(folder, "trees")
    path.write_text(path.read_text().replace('name = "mlp"\nsizes = [6]\ndropout = 0.1', 'name = "trees"'))
    with pytest.raises(ConfigError, match="trees grow from a log in memory, in one process"):
        learn(path, tmp_path / "run")


# ---- two processes ----


SEVERAL = """
import json, sys
import torch.distributed as dist
from unskew.terminal.main import main

dist.init_process_group("gloo")  # once: each run would join the processes anew
for words in json.loads(sys.argv[1]):
    sys.argv = ["unskew", *words]
    try:
        main()
    except SystemExit as end:
        print(f"ended: {end.code}", flush=True)
dist.destroy_process_group()
"""


@dataclass
class Pair:
    """What two processes wrote and said."""

    runs: Path
    out: str
    errors: str


@pytest.fixture(scope="module")
def together(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Runs of the same two processes, as starting them takes longest: one is refused, the last is interrupted."""
    place = tmp_path_factory.mktemp("together")
    paths = [run_file(folder, f"{method}{len(data)}", method, data) for method, data in CASES]
    trees = run_file(folder, "trees2")
    trees.write_text(trees.read_text().replace('name = "mlp"\nsizes = [6]\ndropout = 0.1', 'name = "trees"'))
    long = run_file(folder, "long", steps=100_000, checkpoint_every=10, schedule="constant", validate_every=50)
    words = [["learn", str(path), "--out", str(place / path.stem)] for path in (*paths, trees, long)]
    (place / "several.py").write_text(SEVERAL)
    running = subprocess.Popen(
        torchrun(place / "several.py", json.dumps(words)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(3000):
            if (place / "long.partial" / "checkpoint.safetensors").exists() or running.poll() is not None:
                break
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        out, errors = running.communicate(timeout=120)
    finally:
        running.kill()
    return Pair(place, out, errors)


CASES = [("dla", ""), ("regression_em", "shards = 4")]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "data"), CASES)
def test_two_processes_learn_what_one_does(
    together: Pair, folder: Path, tmp_path: Path, method: str, data: str
) -> None:
    name, two = f"{method}{len(data)}", together
    learn(folder / f"{name}.toml", tmp_path / "one")
    assert_close(tmp_path / "one", two.runs / name)
    assert two.out.count(f"finished: {two.runs / name}\n") == 1  # one speaks
    texts = [(run / "curve.jsonl").read_text() for run in (tmp_path / "one", two.runs / name)]
    curves = [[json.loads(line) for line in text.splitlines()] for text in texts]
    for one, other in zip(*curves, strict=True):
        assert one["metric"] == pytest.approx(other["metric"], abs=1e-6)
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)


@pytest.mark.slow
def test_trees_in_two_processes_are_refused(together: Pair) -> None:
    assert "trees grow from a log in memory, in one process" in together.errors
    assert not (together.runs / "trees2").exists()
    assert together.out.count("finished:") == len(CASES)


@pytest.mark.slow
def test_an_interrupt_ends_all_and_the_run_goes_on_in_one_process(together: Pair, folder: Path) -> None:
    path, out = folder / "long.toml", together.runs / "long"
    about = json.loads((out / "run.json").read_text())
    assert about["status"] == "interrupted", together.errors
    path.write_text(path.read_text().replace("steps = 100000", f"steps = {about['steps'] + 5}"))
    learn(path, out)
    after = json.loads((out / "run.json").read_text())
    assert (after["status"], after["steps"]) == ("finished", about["steps"] + 5)
