"""Serving: a real `unskew serve`, a load generator in a second process, and the bare onnxruntime call between.

A request has 100 documents of 136 features, six digits each as in LETOR files; the model is a network of 512, 256
and 128 units. For each format of a request:

    closed loop     what eight connections get through that ask again at once
    sustained       the highest open-loop rate, in steps of 5 % down from there, at which all is answered, p99 is
                    under 25 ms and the last quarter waits no longer than twice what the first half did
    at half of it   latencies from when each request was due, over the bare call: onnxruntime on the same prepared
                    matrix, one thread, back to back, in turns with the load, the generator's core as busy

The server and the bare call have one core, the generator another (`taskset` does so for a server in use). Then
once more with the cores left to the scheduler.

`python benchmarks/bench.py serving`; with `--quick` a few seconds of load, which is for development.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import onnxruntime
import orjson
import torch
from common import PUBLISHED, Options, Row
from safetensors.numpy import save

from unskew.files.writing import exchange
from unskew.learning.methods import Context, Naive
from unskew.learning.rankers import MLP
from unskew.learning.scoring.model import Model, build
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Columns, Lists

DOCUMENTS, FEATURES, BODIES, CONNECTIONS = 100, 136, 50, 32
GOAL, BOUND = 3.0, 25.0
"""p99 over the bare call; and milliseconds that p99 may take at a rate that is called sustained."""
NAMES = tuple(f"feature_{at:03d}" for at in range(FEATURES))
IDS = [f"doc{at}" for at in range(DOCUMENTS)]


def by_name(matrix: np.ndarray) -> tuple[str, bytes]:
    """JSON with the features of each document by name."""
    features = [dict(zip(NAMES, row, strict=True)) for row in matrix.tolist()]
    documents = [{"id": each, "features": row} for each, row in zip(IDS, features, strict=True)]
    return "application/json", orjson.dumps({"query": "red shoes", "documents": documents})


def as_table(matrix: np.ndarray) -> tuple[str, bytes]:
    """JSON with the names once."""
    table = {"ids": IDS, "names": NAMES, "rows": matrix.tolist()}
    return "application/json", orjson.dumps({"query": "red shoes", "table": table})


def as_tensors(matrix: np.ndarray) -> tuple[str, bytes]:
    """Safetensors: 32-bit numbers, with a head of JSON."""
    told = orjson.dumps({"query": "red shoes", "ids": IDS, "names": NAMES}).decode()
    return "application/vnd.safetensors", save({"features": matrix.astype(np.float32)}, metadata={"unskew": told})


FORMATS: dict[str, Callable[[np.ndarray], tuple[str, bytes]]] = {
    "JSON by name": by_name,
    "JSON table": as_table,
    "safetensors": as_tensors,
}


def drawn(count: int, seed: int) -> np.ndarray:
    """Features of documents, to six digits."""
    values = np.random.default_rng(seed).normal(size=(count, FEATURES))
    return np.array([[float(f"{value:.6g}") for value in row] for row in values.tolist()])


def model(seed: int) -> Model:
    """The network with drawn weights, on features by name."""
    raw = Lists(
        drawn(2000, 0).astype(np.float32),
        np.array([0, 2000]),
        np.zeros(2000, np.int16),
        np.array([1]),
        columns=Columns(NAMES),
    )
    encoding = fit_encoding(raw)
    lists = encoding.apply(raw)
    torch.manual_seed(seed)
    made = build(Naive(), MLP(sizes=PUBLISHED), fit_scaler("standard", lists), lists.dim, Context(positions=10))
    made.card = replace(made.card, encoding=encoding)
    return made


def bare(folder: Path) -> Callable[[], object]:
    """The bare call."""
    asked = onnxruntime.SessionOptions()
    asked.intra_op_num_threads = asked.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", asked, providers=["CPUExecutionProvider"])
    matrix = np.ascontiguousarray(drawn(DOCUMENTS, 1), np.float32)
    return lambda: session.run(["outputs"], {"features": matrix})


@dataclass
class Generator:
    """The second process."""

    process: subprocess.Popen[str]

    def ask(self, **plan: Any) -> None:
        """Begin."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(plan) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came out of it."""
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))


@dataclass(frozen=True)
class Cores:
    """Where the server with the bare call, and the generator, may run."""

    server: frozenset[int]
    generator: frozenset[int]

    @classmethod
    def own(cls) -> Cores:
        """One for each."""
        first, *_, last = sorted(os.sched_getaffinity(0))
        return cls(frozenset([first]), frozenset([last]))

    @classmethod
    def every(cls) -> Cores:
        """Left to the scheduler."""
        found = frozenset(os.sched_getaffinity(0))
        return cls(found, found)


@contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """This process, and those that it starts meanwhile, on these alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def started(command: list[str], cores: frozenset[int], **options: Any) -> subprocess.Popen[str]:
    """A process on these cores, whose output is read."""
    with on(cores):
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


@contextmanager
def generating(cores: Cores) -> Iterator[Generator]:
    """A generator, ended by its id."""
    command = [sys.executable, str(Path(__file__).with_name("load.py"))]
    with started(command, cores.generator, stdin=subprocess.PIPE) as process:
        try:
            yield Generator(process)
        finally:
            process.terminate()


@dataclass
class Server:
    """A real server."""

    process: subprocess.Popen[str]
    address: tuple[str, int]

    def spent(self) -> float:
        """Its processor time so far, in milliseconds."""
        told = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(run: Path, log: Path, cores: Cores, *more: str) -> Iterator[Server]:
    """`unskew serve RUN`, ended by its id."""
    command = [sys.executable, "-m", "unskew", "serve", str(run), "--port", "0", "--json", *more]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("w") as told, started(command, cores.server, stderr=told, env=surroundings) as process:
        try:
            listening = urlsplit(str(first_json(process)["address"]))
            yield Server(process, (str(listening.hostname), int(listening.port or 0)))
        finally:
            process.terminate()


def first_json(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The object that a process prints, of one line or of several, while it goes on."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        try:
            return dict(json.loads(text))
        except json.JSONDecodeError:
            continue
    raise SystemExit("the server did not start")


@dataclass
class Bench:
    """What is measured with."""

    server: Server
    generator: Generator
    call: Callable[[], object]
    run: Path
    cores: Cores
    seconds: float
    """Of one load."""

    def load(self, requests: Path, rate: float, count: int, connections: int = CONNECTIONS) -> dict[str, Any]:
        """One load, and the processor time of the server per request."""
        before = self.server.spent()
        self.generator.ask(
            address=self.server.address, requests=str(requests), rate=rate, count=count, connections=connections
        )
        found = self.generator.answer()
        if set(found["statuses"]) != {"200"}:
            raise SystemExit(f"the server answered with {found['statuses']}")
        return found | {"cpu": (self.server.spent() - before) / count}

    def sustained(self, requests: Path) -> tuple[float, float]:
        """What a closed loop gets through, and the rate that is sustained, in requests a second."""
        self.load(requests, 0, 200, 8)
        closed = self.load(requests, 0, 1000, 8)
        most = rate = len(closed["latencies"]) / closed["seconds"]
        while True:
            count = int(rate * self.seconds)
            times = self.load(requests, rate, count)["latencies"]
            growth = statistics.median(times[-count // 4 :]) / statistics.median(times[: count // 2])
            if percentile(times, 99) < BOUND and growth < 2:
                return most, rate
            rate *= 0.95

    def alone(self) -> list[float]:
        """Milliseconds of bare calls, the generator's core as busy."""
        self.generator.ask(address=None, seconds=self.seconds)
        found, until = [], time.perf_counter() + 0.9 * self.seconds
        with on(self.cores.server):
            while (began := time.perf_counter()) < until:
                self.call()
                found.append(1000 * (time.perf_counter() - began))
        self.generator.answer()
        return found


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many of a hundred do not exceed."""
    return float(np.percentile(values, percent, method="higher"))


def told(values: Sequence[float]) -> str:
    """Percentiles."""
    return ", ".join(f"p{percent:g} {percentile(values, percent):.2f}" for percent in (50, 99, 99.9)) + " ms"


def formatted(bench: Bench, name: str, place: Path, turns: int) -> list[Row]:
    """The rows of one format."""
    place.mkdir()
    size = 0
    for at in range(BODIES):
        kind, body = FORMATS[name](drawn(DOCUMENTS, at))
        lines = (
            "POST /v1/rank HTTP/1.1",
            "host: localhost",
            f"content-type: {kind}",
            f"content-length: {len(body)}",
        )
        (place / f"{at:04d}").write_bytes("\r\n".join([*lines, "", ""]).encode() + body)
        size = len(body)
    most, rate = bench.sustained(place)
    alone, times, cpu, lags = list[list[float]](), list[list[float]](), [], []
    for _ in range(turns):
        alone.append(bench.alone())
        found = bench.load(place, rate / 2, int(rate / 2 * bench.seconds))
        times.append(found["latencies"])
        cpu.append(found["cpu"])
        lags.append(found["lag"])
    calls, answers = [*chain(*alone)], [*chain(*times)]
    return [
        Row(
            f"{name}: sustained", f"{rate:.0f} requests/s", f"closed loop {most:.0f}/s; {size / 1000:.0f} kB each"
        ),
        Row("at half of it", told(answers), f"{len(answers):,} requests; sent late by p99 {max(lags):.2f} ms"),
        Row("the bare call", told(calls), f"{len(calls):,} calls"),
        *(over(percent, alone, times) for percent in (50, 99)),
        Row(
            "processor time of a request", f"{statistics.median(cpu):.2f} ms", f"{min(cpu):.2f} to {max(cpu):.2f}"
        ),
    ]


def over(percent: float, alone: Sequence[Sequence[float]], times: Sequence[Sequence[float]]) -> Row:
    """p99 of answers over a percentile of bare calls, of all turns and of each."""

    def ratio(answers: Sequence[float], calls: Sequence[float]) -> float:
        return percentile(answers, 99) / percentile(calls, percent)

    whole, turns = ratio([*chain(*times)], [*chain(*alone)]), [*map(ratio, times, alone)]
    spread = f"turns {min(turns):.2f} to {max(turns):.2f}"
    return Row(f"p99 over the bare call's p{percent:g}", f"{whole:.2f}", spread, f"under {GOAL:g}", whole < GOAL)


def reloading(bench: Bench, requests: Path, other: Path) -> Row:
    """The longest answer while the run is exchanged for another every second."""
    rate, seconds = 50.0, max(bench.seconds, 4.0)
    bench.generator.ask(
        address=bench.server.address,
        requests=str(requests),
        rate=rate,
        count=int(rate * seconds),
        connections=CONNECTIONS,
    )
    for _ in range(int(seconds) - 1):
        time.sleep(1)
        exchange(bench.run, other)
    times = bench.generator.answer()["latencies"]
    return Row(
        f"{rate:.0f} requests/s while the run changes every second", f"longest {max(times):.2f} ms", told(times)
    )


@contextmanager
def measuring(place: Path, cores: Cores, seconds: float, *more: str) -> Iterator[Bench]:
    """A server and a generator."""
    run = place / "run"
    with served(run, place / "log", cores, *more) as server, generating(cores) as generator:
        yield Bench(server, generator, bare(run), run, cores, seconds)


def serving(options: Options) -> list[Row]:
    """Every format, what a reload does, and the fastest with a log of pages, or without cores of its own."""
    turns, seconds = (2, 2.0) if options.quick else (options.repeats, 10.0)
    fastest = list(FORMATS)[-1]
    with tempfile.TemporaryDirectory(prefix="unskew-serving-") as name:
        place = Path(name)
        for seed, run in enumerate(("run", "other")):
            model(seed).save(place / run)
        with measuring(place, Cores.own(), seconds) as bench:
            rows = [row for form in FORMATS for row in formatted(bench, form, place / form, turns)]
            rows.append(reloading(bench, place / next(iter(FORMATS)), place / "other"))
        ways = {
            "every page logged (--log)": (Cores.own(), ("--log", str(place / "pages"))),
            "cores left to the scheduler": (Cores.every(), ()),
        }
        for way, (cores, more) in ways.items():
            with measuring(place, cores, seconds, *more) as bench:
                rows += [Row(way, ""), *formatted(bench, fastest, place / way, turns)]
        return rows
