"""Runs commands on files that were made to break them, each in a process of its own, and measures it.

    python limits.py FOLDER        prints a JSON line for each: what was said, peak memory, processor time

A process imports once what a case needs and forks, so that a child has the memory of the libraries too.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import sys
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unskew
from unskew.errors import UnskewError
from unskew.terminal import main as terminal

HEADER = b"page_id,query_id,doc_id,position,click\n"
ROW = b"p,q,d,1,0\n"
LINE = b'{"page_id": "p", "query_id": "q", "doc_id": "d", "position": 1, "click": 0}\n'
LARGE = 70_000_000
"""Bytes that a bomb grows to."""
BLANK = b" " * 999 + b"\n"
"""A long line of nothing; one bomb of each reader has short ones, of which it reads many."""
SHORT = b" " * 9 + b"\n"


def command(*words: str) -> None:
    """`unskew ...`"""
    sys.argv = ["unskew", *words]
    terminal.main()


@dataclass(frozen=True)
class Case:
    """A file that is made, and what is then done with it."""

    make: Callable[[], object]
    run: Callable[[], object]
    needs: tuple[str, ...] = ("unskew.logs.ingest.ingest", "ibis.backends.duckdb")
    """What is imported before."""


def ingest(name: str, data: Callable[[], bytes]) -> Case:
    """Ingest a log of these bytes."""
    return Case(
        lambda: Path(name).write_bytes(data()),
        lambda: command("ingest", name, "--out", "out", "--threads", "1"),
    )


def zst(data: bytes) -> bytes:
    """Compressed by Zstandard."""
    with pa.OSFile("made.zst", "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(data)
    return Path("made.zst").read_bytes()


def large_dictionary() -> bytes:
    """An xz file whose header asks for a dictionary of 4 GB."""
    data = bytearray(lzma.compress(HEADER + ROW))
    end = 12 + 4 * (data[12] + 1)
    assert data[14:16] == b"\x21\x01"
    data[16] = 40
    data[end - 4 : end] = zlib.crc32(bytes(data[12 : end - 4])).to_bytes(4, "little")
    return bytes(data)


def more_rows_than_there_are() -> bytes:
    """A Parquet file that says it has a million rows."""
    rows = 300_000
    column = pa.array(np.zeros(rows, np.int64))
    table = pa.table(dict.fromkeys(("page_id", "query_id", "doc_id", "position", "click"), column))
    pq.write_table(table, "made.parquet", compression="zstd")
    data = Path("made.parquet").read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    said = bytes([rows * 2 & 127 | 128, rows * 2 >> 7 & 127 | 128, rows * 2 >> 14])
    foot = data[-8 - size :]
    assert said in foot
    return data[: -8 - size] + foot.replace(said, b"\xfe\xff\x7f")


def lying_footer() -> bytes:
    """A Parquet file whose footer is longer than the file."""
    pq.write_table(pa.table({"page_id": [1]}), "made.parquet")
    data = Path("made.parquet").read_bytes()
    return data[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1"


def model(change: Callable[[Path], object]) -> Case:
    """Load a small model whose files were changed."""

    def make() -> None:
        whole = Path("../model").resolve()
        if not whole.exists():
            lists = unskew.make_lists(queries=20, features=6, documents=6, seed=0)
            log = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=50, seed=0, logger="random")
            unskew.learn(log, "dla", ranker="mlp", steps=1, validate_on="nothing").save(whole)
        shutil.copytree(whole, "model")
        card = Path("model/model.json")
        content = json.loads(card.read_text())
        del content["files"]
        card.write_text(json.dumps(content))
        change(Path("model"))

    return Case(make, lambda: unskew.load("model"), ("unskew.learning.scoring.model",))


def weights(header: bytes, length: int | None = None) -> Case:
    """A model whose weights begin with such a header."""
    size = (len(header) if length is None else length).to_bytes(8, "little")
    return model(lambda folder: (folder / "weights.safetensors").write_bytes(size + header + bytes(16)))


def card(**changes: object) -> Case:
    """A model whose model.json says other things."""

    def change(folder: Path) -> None:
        path = folder / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return model(change)


def lists(data: Callable[[], bytes], name: str = "lists.txt") -> Case:
    """Read labelled lists of these bytes."""
    return Case(lambda: Path(name).write_bytes(data()), lambda: unskew.read_letor(name))


COLUMNS = b",".join(b"c%d" % at for at in range(100_000))
DEEP = b'{"page_id": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001 + b"\n"
ARRAY = b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
SHAPE = b'{"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}}'
CASES = {
    "idle": Case(lambda: None, lambda: None, ()),
    "gz bomb": ingest("log.csv.gz", lambda: gzip.compress(HEADER + b"\n" * LARGE)),
    "xz bomb": ingest("log.csv.xz", lambda: lzma.compress(HEADER + BLANK * (LARGE // 1000), preset=0)),
    "bz2 bomb": ingest("log.jsonl.bz2", lambda: bz2.compress(LINE + BLANK * (LARGE // 1000), 1)),
    "zst bomb": ingest("log.jsonl.zst", lambda: zst(LINE + SHORT * (LARGE // 10))),
    "bomb of lists": lists(lambda: gzip.compress(SHORT * (LARGE // 10)), "lists.txt.gz"),
    "xz dictionary": ingest("log.csv.xz", large_dictionary),
    "long line of JSON": ingest("log.jsonl", lambda: LINE + b'{"page_id": "' + b"x" * 200_000_000 + b'"}\n'),
    "long line of CSV": ingest("log.csv", lambda: HEADER + b"x" * 200_000_000 + b"\n"),
    "long line of lists": lists(lambda: b"1 qid:1 1:" + b"0" * 200_000_000 + b"\n"),
    "many columns": ingest("log.csv", lambda: COLUMNS + b",click\n" + b"1," * 100_000 + b"1\n"),
    "deep JSON": ingest("log.jsonl", lambda: DEEP),
    "Parquet of many rows": ingest("log.parquet", more_rows_than_there_are),
    "Parquet of a long footer": ingest("log.parquet", lying_footer),
    "weights of a long header": weights(b"{}", 2**62),
    "weights of a large array": weights(ARRAY),
    "weights of a lying shape": weights(SHAPE),
    "model of many features": card(features=9_999_999),
    "model of absurd features": card(features=10**15),
    "model of many positions": card(positions=10**6),
    "model of wide layers": card(ranker={"name": "mlp", "sizes": [10**6, 10**6]}),
    "model that is deep": model(lambda folder: (folder / "model.json").write_text("[" * 10**5)),
    "model.json without end": model(lambda folder: os.truncate(folder / "model.json", 2**36)),
}
"""What is run, by name."""


def told(work: Callable[[], object]) -> tuple[int, str]:
    """Run it: what the command line would end with, and say."""
    sys.stderr = sys.stdout = said = io.StringIO()
    try:
        work()
    except UnskewError as error:
        return 1, f"unskew: {error}"
    except SystemExit as left:
        return int(left.code or 0), said.getvalue()
    except BaseException:
        return 3, traceback.format_exc()
    return 0, said.getvalue()


def child(work: Callable[[], object], folder: Path) -> dict[str, object]:
    """Run it in a process of its own, in a folder: how that ended, and what it took."""
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["UNSKEW_CACHE"] = str(folder / "cache")
        status, said = told(work)
        (folder / "said").write_text(said, encoding="utf-8")
        os._exit(status)
    _, ended, used = os.wait4(pid, 0)
    said = (folder / "said").read_text(encoding="utf-8") if (folder / "said").exists() else ""
    took = {"mb": used.ru_maxrss / 1024, "seconds": used.ru_utime + used.ru_stime}
    return {"status": os.waitstatus_to_exitcode(ended), "said": said} | took


def main() -> None:
    """Run every case."""
    base = Path(sys.argv[1]).resolve()
    for name in sys.argv[2:] or CASES:
        folder = base / name.replace(" ", "_")
        folder.mkdir(parents=True)
        for module in CASES[name].needs:
            import_module(module)
        made = child(CASES[name].make, folder)
        assert made["status"] == 0, made
        print(json.dumps({"name": name} | child(CASES[name].run, folder)), flush=True)


if __name__ == "__main__":
    main()
