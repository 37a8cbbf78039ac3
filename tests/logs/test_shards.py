"""Shards: the same counts as in memory, drawn without bias, resumable, reused, and small in memory."""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unskew
from unskew.errors import ConfigError, DataError
from unskew.learning.fitting.loop import Progress
from unskew.logs.counts import shard_writer
from unskew.logs.counts.batches import ShardedBatches
from unskew.logs.counts.reduction import Counts, reduce_log
from unskew.logs.counts.shard_writer import ShardSource
from unskew.logs.counts.shards import Shards, open_shards, shards_for
from unskew.logs.presentation import fit_presentation
from unskew.tables.lists.inputs import Vectors
from unskew.tables.lists.scaling import SCALINGS, fit_scaler
from unskew.types import ClickBatch, Lists, Log
from unskew.workflows.runs.learn import learn_request
from unskew.workflows.runs.request import ask

torch.set_num_threads(1)


def write_features(lists: Lists, path: Path) -> None:
    table: dict[str, Any] = {"query_id": np.repeat(lists.query_ids, lists.sizes), "doc_id": lists.document_ids()}
    pq.write_table(pa.table(table | {f"f{i}": lists.features[:, i] for i in range(lists.dim)}), path)


@pytest.fixture(scope="module")
def log() -> Log:
    lists = unskew.make_lists(queries=40, features=5, documents=(3, 7), seed=1)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=2500, seed=2, cutoff=5, randomized=0.3)


@pytest.fixture(scope="module")
def folder(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sharded")
    (place / "log").mkdir()
    for part in range(2):  # in two part files, a page in each of them
        write = log.take(np.arange(len(log)) % 2 == part)
        numbers = np.repeat(np.flatnonzero(np.arange(len(log)) % 2 == part), write.sizes)
        unskew.write_log(replace(write, columns={"page_id": numbers}), place / "log" / f"part-{part}.parquet")
    write_features(log.lists, place / "features.parquet")
    unskew.write_letor(log.lists, place / "lists.txt")
    return place


def source(folder: Path, shards: int = 4, lists: str = "features.parquet", **more: Any) -> ShardSource:
    return ShardSource(log=str(folder / "log"), counts=None, lists=(str(folder / lists),), shards=shards, **more)


def contents(counts: Counts) -> Counter[Any]:
    """Every row as plain numbers: features, ranks, clicks and impressions."""
    found: Counter[Any] = Counter()
    for row, where in enumerate(counts.where):
        features = counts.lists.features[counts.row[row][where]].tobytes()
        numbers = [part[row][where].tobytes() for part in (counts.position, counts.clicks, counts.impressions)]
        pairs = b"" if counts.pairs is None else counts.pairs[row][where][:, where].tobytes()
        found[(features, *numbers, pairs)] += 1
    return found


def all_shards(shards: Shards) -> list[Counts]:
    return [shards.load(shard) for shard in np.flatnonzero(shards.facts[:, 0])]


@pytest.mark.parametrize("lists", ["features.parquet", "lists.txt"])
@pytest.mark.parametrize("reduction", ["counts", "pairs", "pages"])
def test_shards_hold_what_the_log_holds(folder: Path, log: Log, reduction: Any, lists: str) -> None:
    shards = open_shards(source(folder, lists=lists, reduction=reduction, held_out=True))
    found: Counter[Any] = sum((contents(counts) for counts in all_shards(shards)), Counter())
    assert found == contents(reduce_log(log, reduction))
    assert shards.facts[:, :3].sum(0).tolist() == [len(log), len(log.row), int(log.click.sum())]
    assert shards.facts[:, 3].sum() == len(np.unique(log.query))  # a query is in one shard
    clicks = np.add.reduceat(log.click, log.offsets[:-1])
    assert shards.facts[:, 5].sum() == (clicks == 0).sum()
    assert 0 < shards.facts[-1, 0] < len(log) / 2  # held out
    assert shards.positions == 5


def test_scaling_is_that_of_all_training_documents(folder: Path, log: Log) -> None:
    shards = open_shards(source(folder))
    for kind in SCALINGS:
        expected = fit_scaler(kind, log.lists, replace(log.lists, features=log.lists.features * 2))
        fitted = shards.fit_scaler(kind, replace(log.lists, features=log.lists.features * 2))
        assert fitted.statistics.keys() == expected.statistics.keys()
        for name, values in expected.statistics.items():
            assert np.allclose(fitted.statistics[name], values, rtol=1e-6, atol=1e-6)


def test_unchanged_shards_are_reused(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = open_shards(source(folder), cache=tmp_path)
    assert sorted(path.name for path in (tmp_path / "entries").iterdir()) == [first.key]
    assert not (first.folder / "spill").exists()
    monkeypatch.setattr(shard_writer, "split_table", None)  # would fail if it were called
    assert open_shards(source(folder), cache=tmp_path).key == first.key
    with pytest.raises(TypeError):
        open_shards(source(folder, shards=5), cache=tmp_path)
    assert [path.name for path in (tmp_path / "entries").iterdir()] == [first.key]  # nothing half-written
    assert list(tmp_path.rglob(".*.part")) == []


def batches(shards: Shards, **more: Any) -> ShardedBatches:
    return ShardedBatches(shards, lambda lists: Vectors.of(lists.features), **({"size": 8, "stay": 2} | more))


def signature(batch: ClickBatch) -> list[float]:
    return [batch.documents.double().sum().item(), batch.clicks.sum().item(), float(batch.position.sum())]


def test_a_batch_depends_on_seed_and_step_alone(folder: Path) -> None:
    shards = open_shards(source(folder))
    straight = batches(shards)
    expected = [signature(straight.at(step)) for step in range(40)]
    resumed = batches(shards)
    assert [signature(resumed.at(step)) for step in range(23, 40)] == expected[23:]
    assert [signature(resumed.at(step)) for step in (5, 31, 0)] == [expected[step] for step in (5, 31, 0)]
    assert [signature(batches(shards, seed=1).at(step)) for step in range(9)] != expected[:9]


def test_batches_are_unbiased_over_shards(folder: Path, log: Log) -> None:
    """Over many seeds each query comes in proportion to its result pages, whatever shard it is in."""
    shards = open_shards(source(folder, shards=5))
    pages = np.bincount(log.query, minlength=len(log.lists)) / len(log)
    key = {log.lists.features[row].tobytes(): row for row in range(len(log.lists.features))}
    of_row = np.repeat(np.arange(len(log.lists)), log.lists.sizes)
    drawn, visited = np.zeros(len(log.lists)), np.zeros(len(shards))
    for seed in range(150):
        some = batches(shards, seed=seed, size=4)
        visited += np.bincount([some.visit(number)[0] for number in range(20)], minlength=len(shards))
        for step in range(0, 12, 2):
            batch = some.at(step)
            tops = batch.documents[batch.packed % batch.where.shape[1] == 0]
            for top in tops.numpy():
                drawn[of_row[key[top.tobytes()]]] += 1 / len(tops)
    share = shards.pages / shards.pages.sum()
    assert share.max() > 1.3 * share.min()  # shards differ, or there would be nothing to see
    assert visited / visited.sum() == pytest.approx(share, abs=0.01)
    drawn /= drawn.sum()
    deviation = np.sqrt(pages / (150 * 6))  # of draws by the visit, which is more than they vary by
    assert (np.abs(drawn - pages) < 3 * deviation).all()
    assert np.abs(drawn - pages).mean() < 0.5 * deviation.mean()


def test_workers_share_the_shards(folder: Path) -> None:
    shards = open_shards(source(folder))
    groups = [batches(shards, group=group, groups=2) for group in range(2)]
    assert [group.own.tolist() for group in groups] == [[0, 2], [1, 3]]
    assert sum(group.share for group in groups) == pytest.approx(1)
    with pytest.raises(ConfigError, match="too few for 5 workers"):
        batches(shards, group=4, groups=5)


def test_the_number_of_shards_follows_the_memory(folder: Path) -> None:
    one = source(folder)
    few, many = shards_for(2**30, one), shards_for(2**16, one)
    assert few == 1
    assert many > 10
    assert shards_for(2**15, one) == pytest.approx(2 * many, abs=1)


def test_a_log_without_a_column(folder: Path) -> None:
    with pytest.raises(DataError, match="missing columns: serp_device"):
        open_shards(source(folder, serp=("serp_device",)))
    bare = replace(source(folder), log=None, counts=str(folder / "log"), reduction="pages")
    with pytest.raises(ConfigError, match=r"needs single pages.*give data\.log"):
        open_shards(bare)


def test_presentation_columns_are_encoded(log: Log, folder: Path, tmp_path: Path) -> None:
    """As in memory, from a log and from its counts; fitted on the shards that are trained on."""
    rows = np.arange(len(log.row))
    kind = np.where(rows % 7 == 0, None, np.array(["text", "image", "map"], object)[log.row % 3])
    columns = {"serp_kind": kind, "serp_height": np.where(rows % 5 == 0, np.nan, log.row / 4)}
    shown = replace(log, columns=columns)
    unskew.write_log(shown, tmp_path / "log.parquet")
    unskew.counts(tmp_path / "log.parquet", tmp_path / "counts", serp=list(columns), threads=1)
    made = replace(source(folder), log=str(tmp_path / "log.parquet"), serp=tuple(columns), bins=3)
    expected = fit_presentation(columns, list(columns), bins=3)
    whole = reduce_log(shown, presentation=expected)
    for each in (made, replace(made, log=None, counts=str(tmp_path / "counts"))):
        shards = open_shards(each, cache=tmp_path / "cache")
        assert shards.presentation == expected
        assert shards.presentation.sizes == {"serp_kind": 5, "serp_height": 5}
        found = [counts.serp["serp_height"][counts.where] for counts in all_shards(shards)]
        codes = np.sort(whole.serp["serp_height"][whole.where])
        assert np.array_equal(np.sort(np.concatenate(found)), codes)
    held = open_shards(replace(made, held_out=True), cache=tmp_path / "cache")
    heights = [part.presentation.encoders["serp_height"].missing for part in (held, shards)]
    assert 0 < heights[0] < heights[1]  # what is held out is not looked at


def test_a_cut_shard_is_written_again(folder: Path, tmp_path: Path) -> None:
    shards = open_shards(source(folder), cache=tmp_path)
    path = shards.folder / "00001.safetensors"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(DataError, match=r"00001\.safetensors: damaged, .*; delete its folder"):
        shards.load(1)
    assert contents(open_shards(source(folder), cache=tmp_path).load(1)) == contents(
        open_shards(source(folder)).load(1)
    )


class Litter:
    """Garbage whose collection runs Python code, so that threads may change in the midst of a parse."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        sum(range(50))


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads and garbage collections that come as often as they can."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


def test_threads_may_read_while_others_parse(folder: Path, restless: None) -> None:
    """Python 3.11's parser breaks in threads: with np.load, which reads headers by it, this fails soon."""
    shards = open_shards(source(folder))
    letor = unskew.read_letor(folder / "lists.txt")
    expected = [shards.load(shard).clicks.sum() for shard in range(3)]
    ends = time.monotonic() + 3

    def read(shard: int) -> int:
        done = 0
        while time.monotonic() < ends or done < 700:
            assert shards.load(shard).clicks.sum() == expected[shard]
            done += 1
        return done

    def read_cache() -> None:
        while time.monotonic() < ends:
            assert unskew.read_letor(folder / "lists.txt").features.shape == letor.features.shape

    def parse(depth: int) -> None:
        text = "(" * depth + "1" + ",)" * depth
        while time.monotonic() < ends:
            Litter()
            with contextlib.suppress(SystemError):  # its own fault
                ast.literal_eval(text)

    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(parse, 10), pool.submit(parse, 60), pool.submit(read_cache)]
        reads = sum(pool.map(read, range(3)))
        assert [done.result() for done in waiting] == [None] * 3
    assert reads >= 2100


# ---- training ----


def run_file(folder: Path, name: str, data: str = "shards = 4", method: str = "dla", **training: Any) -> Path:
    path = folder / f"{name}.toml"
    settings = {"steps": 24, "batch": 16, "validate_every": 6, "checkpoint_every": 5} | training
    path.write_text(
        f'out = "{name}"\n[data]\nfeatures = "features.parquet"\nshard_steps = 3\nlog = "log"\n{data}\n'
        f'[method]\nname = "{method}"\n[ranker]\nname = "mlp"\nsizes = [6]\n[training]\n'
        + "".join(f"{key} = {value!r}\n" for key, value in settings.items())
    )
    return path


def learn(path: Path, out: Path, report: Any = None) -> unskew.Model:
    return learn_request(ask(path), out, report=report)


def test_a_run_from_shards(folder: Path, tmp_path: Path, log: Log) -> None:
    model = learn(run_file(folder, "plain"), tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert about["shards"] == 4
    assert 0.5 * len(log) < about["pages"] < len(log)  # some are held out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["validation"]["on"] == "clicks"
    assert unskew.load(tmp_path / "run").score(log.lists) == pytest.approx(model.score(log.lists))


def test_an_interrupted_run_resumes_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    path = run_file(folder, "resumed")
    straight = learn(path, tmp_path / "straight")

    def stop(progress: Progress) -> None:
        if progress.step == 12:
            raise RuntimeError("pulled the plug")

    with pytest.raises(RuntimeError, match="plug"):
        learn(path, tmp_path / "cut", stop)
    resumed = learn(path, tmp_path / "cut")
    for name, value in straight.model.ranker.state_dict().items():
        assert torch.equal(value, resumed.model.ranker.state_dict()[name])


@pytest.mark.parametrize(
    ("method", "message"),
    [("ipw", "do not keep which pages were shuffled"), ("doubly_robust", "do not keep which pages were shuffled")],
)
def test_methods_that_look_at_the_log_say_so(folder: Path, tmp_path: Path, method: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        learn(run_file(folder, method, method=method), tmp_path / "run")


def test_trees_need_the_log_in_memory(folder: Path, tmp_path: Path) -> None:
    path = run_file(folder, "trees")
    path.write_text(path.read_text().replace('name = "mlp"\nsizes = [6]', 'name = "trees"'))
    with pytest.raises(ConfigError, match="trees grow from a log in memory"):
        learn(path, tmp_path / "run")


def test_counts_in_the_place_of_a_log(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ibis")
    from unskew.logs.counts.rankings import count_rankings
    from unskew.tables.engine.engine import connect

    with connect("duckdb") as engine:
        table = engine.read_parquet(folder / "log")
        count_rankings(engine, table, pairs=True).write(engine, tmp_path / "counts")
    for reduction in ("counts", "pairs"):
        logged = open_shards(source(folder, held_out=True, reduction=reduction))
        counted = open_shards(
            replace(source(folder, held_out=True, reduction=reduction), log=None, counts=str(tmp_path / "counts"))
        )
        assert np.array_equal(counted.facts[:, :5], logged.facts[:, :5])
        assert sum(map(contents, all_shards(counted)), Counter()) == sum(
            map(contents, all_shards(logged)), Counter()
        )


MEASURE = """
import sys
from pathlib import Path
import pyarrow as pa
from unskew.logs.counts import shard_writer
from unskew.tables.lists.inputs import Vectors
from unskew.tables.engine import parquet
from unskew.logs.counts.shards import open_shards
from unskew.logs.counts.batches import ShardedBatches
from unskew.logs.counts.shard_writer import ShardSource

def peak():  # not getrusage, which begins at the peak of the process that started this one
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

shard_writer.BUFFERED, parquet.READ_AT_ONCE = 2**22, 2**18  # small beside the shards
folder, shards = sys.argv[1], int(sys.argv[2])
made = ShardSource(log=f"{folder}/log.parquet", counts=None, lists=(f"{folder}/features.parquet",), shards=shards)
opened = open_shards(made, cache=f"{folder}/cache-{shards}")
before, arrow = peak(), pa.default_memory_pool().max_memory() / 2**20
batches = ShardedBatches(opened, lambda lists: Vectors.of(lists.features), size=64, stay=2)
for step in range(40):
    batches.at(step)
print(arrow, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
def test_more_shards_take_less_memory(tmp_path: Path) -> None:
    random, queries, documents = np.random.default_rng(0), 4000, 10
    features = random.random((queries * documents, 400), dtype=np.float32)  # 64 MB
    ids = {"query_id": np.repeat(np.arange(queries), documents), "doc_id": np.tile(np.arange(documents), queries)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 400)
    pq.write_table(pa.table(ids | {"vector": vectors}), tmp_path / "features.parquet", row_group_size=2000)
    page = {"page_id": ids["query_id"], "position": ids["doc_id"] + 1, "click": ids["doc_id"] % 3 == 0}
    pq.write_table(pa.table(ids | page), tmp_path / "log.parquet")
    del features, vectors

    def peaks(shards: int) -> list[float]:
        command = [sys.executable, "-c", MEASURE, str(tmp_path), str(shards)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [float(number) for number in done.stdout.split()]

    whole, parts = peaks(1), peaks(16)  # the table has 64 MB
    assert parts[0] < 48, "dealing it out"
    whole, parts = peaks(1), peaks(16)  # written already: training alone
    assert parts[1] < 0.6 * whole[1], (parts, whole)
