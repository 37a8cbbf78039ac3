"""What a stranger is told: a line for every mistake, with their files and columns, what there is and what to type.

Each row of the tables below is a situation: a command line, the status that it ends with, and what the message has
to contain. Nothing may end in a traceback, or speak of Python where the command has a flag.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import STATUSES, DataError, UnskewError
from unskew.terminal import main as terminal

THEIRS = {
    "query_id": "search term",
    "doc_id": "sku",
    "position": "rank",
    "click": "clicked",
    "timestamp": "ts",
    "user_id": "customer",
}
ROWS = range(60)
RENAMED = [word for ours, theirs in THEIRS.items() for word in ("--column", f"{ours}={theirs}")]
PAGED = [*RENAMED, "--page-columns", "user_id,query_id,timestamp"]
TYPED = (
    "ingest it first: unskew ingest shop.csv --out shop_log --column 'query_id=search term' --column doc_id=sku"
)


def shop() -> pa.Table:
    """20 pages of 3 results, as a shop logs them."""
    return pa.table(
        {
            "search term": [f"q{row // 6}" for row in ROWS],
            "sku": [f"d{row % 3}" for row in ROWS],
            "rank": [row % 3 + 1 for row in ROWS],
            "clicked": [int(row % 4 == 0) for row in ROWS],
            "ts": [1_700_000_000_000 + 60_000 * (row // 3) for row in ROWS],
            "customer": [f"u{row // 9}" for row in ROWS],
        }
    )


def ours() -> pa.Table:
    """The same under our names, with pages."""
    named = shop().rename_columns(list(THEIRS))
    policies = {"one": ["a"] * 60, "some": ["ab"[row % 6 // 5] for row in ROWS]}
    policies["name"] = [f"n{row}" for row in ROWS]
    for name, values in {"page_id": [row // 3 for row in ROWS], **policies}.items():
        named = named.append_column(name, pa.array(values))
    return named


def changed(table: pa.Table, name: str, values: list[object]) -> pa.Table:
    """The table with other values in a column."""
    return table.set_column(table.column_names.index(name), name, pa.array(values))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a shop, and what may become of them."""
    place = tmp_path_factory.mktemp("shop")
    table, log = shop(), ours()
    pacsv.write_csv(table, place / "shop.csv")
    text = (place / "shop.csv").read_text().replace('"', "")
    pq.write_table(table, place / "shop.parquet")
    pq.write_table(log, place / "log.parquet")
    pq.write_table(changed(log, "position", ["top", *["1"] * 59]), place / "words.parquet")
    pq.write_table(changed(log, "timestamp", ["17.11.2024", *["2024-11-17"] * 59]), place / "days.parquet")
    own = {"query_id": [f"q{row // 3}" for row in range(30)], "doc_id": [f"d{row % 3}" for row in range(30)]}
    pq.write_table(pa.table(own | {"price": list(range(30))}), place / "own_features.parquet")
    pq.write_table(pa.table({"query_id": ["a"], "doc_id": ["b"], "price": [1.0]}), place / "features.parquet")
    pq.write_table(changed(log, "timestamp", [""] * 60), place / "timeless.parquet")
    pq.write_table(pa.table({"query_id": ["a"], "doc_id": ["b"], "score": [1.0]}), place / "scores.parquet")
    written = {
        "utf16_bare.csv": text.encode("utf-16-le"),
        "latin.csv": text.replace("q1", "caf\u00e9").encode("latin-1"),
        "latin_header.csv": text.replace("customer", "kund\u00e9").encode("latin-1"),
        "empty.csv": b"",
        "header.csv": text.split("\n")[0].encode() + b"\n",
        "is_parquet.csv": (place / "shop.parquet").read_bytes(),
        "is_csv.parquet": text.encode(),
        "is_csv.csv.gz": text.encode(),
        "is_gzip.csv": gzip.compress(text.encode()),
        "book.csv": b"PK\x03\x04 and so on",
        "twice.csv": text.replace("customer", "rank").encode(),
        "semicolons.csv": text.replace(",", ";").encode(),
        "windows.csv": text.replace("\n", "\r\n").encode("utf-8-sig"),
        "utf16.csv": text.encode("utf-16"),
        "commas.csv": b"seconds;" + text.replace(",", ";").encode().replace(b"\nq", b"\n3,5;q"),
        "thousands.csv": re.sub(r",3,([01]),", r',"1,003",\1,', text).encode(),
        "counted.csv": text.replace(",1,17", ",7,17").encode(),
        "lists.txt": b"0 qid:1 1:0.5\n1 qid:1 1:0.7\n",
        "notes.docx": b"words",
        "grades.csv": b"query_id,doc_id,label\nother,thing,1\n",
        "caps": b"documnets = 10\n",
        "items.csv": b"doc_id,price\nd0,1.5\nd1,\n",
    }
    for name, data in written.items():
        (place / name).write_bytes(data)
    many = {
        "mixed": {"a.csv": text.encode(), "b.parquet": (place / "shop.parquet").read_bytes()},
        "unlike": {"a.csv": text.encode(), "b.csv": text.replace("clicked", "hit").encode()},
        "nothing": {},
        "strange": {"notes.docx": b"words"},
        "run": {"model.json": b"{}", "run.json": b"{}"},
        "parts/train": {"a.parquet": (place / "log.parquet").read_bytes()},
        "raw": {"a.csv": text.encode()},
    }
    for name, files in many.items():
        (place / name).mkdir(parents=True)
        for file, data in files.items():
            (place / name / file).write_bytes(data)
    (place / "kinds").mkdir()
    pq.write_table(log.slice(0, 30), place / "kinds" / "a.parquet")
    numbered = changed(log, "doc_id", [row % 3 for row in ROWS])
    pq.write_table(numbered.slice(30), place / "kinds" / "b.parquet")
    (place / "clash").mkdir()
    pq.write_table(log, place / "clash" / "a.parquet")
    pq.write_table(changed(log, "click", [[1]] * 60), place / "clash" / "b.parquet")
    return place


@pytest.fixture
def here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the shop as the working directory; OUT in a command line is a place of the test's own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path / "out"


def run(words: list[str], out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The status of a command, and what it said on standard output and standard error, each on one line."""
    before, sys.argv = sys.argv, ["unskew", *(word.replace("OUT", str(out)) for word in words)]
    try:
        terminal.main()
        status = 0
    except SystemExit as left:
        status = int(left.code or 0)
    finally:
        sys.argv = before
    told = capsys.readouterr()
    silent = re.sub(r"unskew: [\w-]+: at work for \d+ s\n", "", told.err)  # on a machine that is busy
    return status, *(" ".join(re.sub("[│╭╮╰╯─]", " ", text).split()) for text in (told.out, silent))


WHERE_A_LOG_IS_WANTED = {
    "split": ["split", "LOG", "--out", "OUT"],
    "counts": ["counts", "LOG", "--out", "OUT"],
    "track": ["track", "LOG", "--out", "OUT"],
    "display-times": ["display-times", "LOG", "--out", "OUT"],
    "causes": ["causes", "LOG"],
    "propensity": ["propensity", "LOG"],
    "compare-click-models": ["compare-click-models", "LOG"],
    "twin": ["twin", "LOG", "--out", "OUT.parquet"],
    "diagnose": ["diagnose", "LOG", "--out", "OUT"],
    "experiment": ["experiment", "LOG"],
    "ship": ["ship", "scores.parquet", "--log", "LOG"],
    "drift": ["drift", "LOG", "log.parquet"],
    "plan": ["plan", "LOG"],
    "learn": ["learn", "LOG", "--features", "features.parquet", "--out", "OUT"],
}
NOT_A_LOG = {
    "shop.csv": TYPED,
    "raw": "a folder of raw files such as a.csv; ingest it first: unskew ingest raw --out raw_log --column",
    "features.parquet": "this is a table of features, not a log",
    "lists.txt": "these are lists with features (LETOR), not a log",
    "shpo.csv": "did you mean shop.csv",
    "no/where.parquet": "no folder no",
    "nothing": "the folder is empty",
    "strange": "the folder has no *.parquet files",
    "empty.csv": "the file is empty",
    "is_csv.parquet": "not a Parquet file, whatever its name says",
    "notes.docx": "ingest it first",
}


@pytest.mark.parametrize("command", WHERE_A_LOG_IS_WANTED)
@pytest.mark.parametrize("given", NOT_A_LOG)
def test_what_is_no_log(command: str, given: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace("LOG", given) for word in WHERE_A_LOG_IS_WANTED[command]]
    status, _, told = run(words, here, capsys)
    assert status == 1
    assert told.startswith(f"unskew: {given}")
    assert NOT_A_LOG[given] in told
    assert not here.exists()


SITUATIONS: dict[str, tuple[list[str], int, list[str]]] = {
    "Parquet under other names": (
        ["counts", "shop.parquet", "--out", "OUT"],
        1,
        [
            "shop.parquet: missing columns: page_id, query_id",
            "there are search term, sku, rank",
            "unskew ingest shop",
        ],
    ),
    "names that would do": (
        ["split", "shop.parquet", "--out", "OUT"],
        1,
        ["missing columns: timestamp", "where only names differ, give --column timestamp=ts"],
    ),
    "their column is not there": (
        ["counts", "shop.parquet", "--out", "OUT", "--column", "position=ranks"],
        1,
        ["shop.parquet: there is no column 'ranks' for position. Did you mean rank? Known: clicked, customer"],
    ),
    "our column is not there": (
        ["counts", "shop.parquet", "--out", "OUT", "--column", "positoin=rank"],
        1,
        ["--column: unknown column 'positoin'. Did you mean position?"],
    ),
    "our column is not there, in ingest": (
        ["ingest", "shop.parquet", "--out", "OUT", "--column", "positoin=rank"],
        1,
        ["unskew: --column: unknown column 'positoin'. Did you mean position?"],
    ),
    "no such time zone": (
        ["ingest", "shop.parquet", "--out", "OUT", "--time-zone", "Mars"],
        1,
        ["unskew: --time-zone: there is no such time zone"],
    ),
    "a pair that is none": (["split", "log.parquet", "--out", "OUT", "--column", "rank"], 2, ["position=rank"]),
    "parts where one log is wanted": (
        ["counts", "parts", "--out", "OUT"],
        1,
        ["parts: a log that was split into train; name one of them, such as parts/train"],
    ),
    "CSV beside Parquet": (
        ["counts", "mixed", "--out", "OUT"],
        1,
        ["mixed: Parquet and raw files such as a.csv; ingest it first: unskew ingest mixed --out mixed_log"],
    ),
    "a run where a log is wanted": (
        ["split", "run", "--out", "OUT"],
        1,
        ["run: this is a run folder, not a log; name the log"],
    ),
    "words where numbers are needed": (
        ["counts", "words.parquet", "--out", "OUT"],
        1,
        ["words.parquet: 1 rows have a position that cannot be read, such as 'top' in row 1; make it int"],
    ),
    "words in a column of theirs": (
        ["counts", "words.parquet", "--out", "OUT", "--column", "click=position", "--column", "position=click"],
        1,
        ["1 rows have a position (click) that cannot be read, such as 'top' in row 1"],
    ),
    "days that are no times": (
        ["split", "days.parquet", "--out", "OUT"],
        1,
        ["days.parquet: 1 rows have a timestamp that cannot be read, such as '17.11.2024' in row 1; write"],
    ),
    "types that do not go together": (
        ["counts", "clash", "--out", "OUT"],
        1,
        ["clash/b.parquet: click is of type list<", "and int64 in", "clash/a.parquet"],
    ),
    "an experiment without policies": (
        ["experiment", "log.parquet"],
        1,
        ["log.parquet: missing columns: policy_id", "name the column of policies with --by"],
    ),
    "an experiment of one policy": (
        ["experiment", "log.parquet", "--by", "one"],
        1,
        ["log.parquet: all pages have the one a; an experiment needs two policies"],
    ),
    "policies that change within some pages": (
        ["experiment", "log.parquet", "--by", "some"],
        1,
        ["log.parquet: some changes within 10 of 20 pages: neither an A/B log", "or pass --kind interleaved"],
    ),
    "a control that is none": (
        ["experiment", "log.parquet", "--by", "user_id", "--control", "u77"],
        1,
        ["--control: unknown name 'u77'. ", "u0"],
    ),
    "a metric that is none": (
        ["experiment", "log.parquet", "--by", "user_id", "--metric", "clik"],
        1,
        ["--metric clik: neither a metric nor a column of numbers. Did you mean click"],
    ),
    "neither lists nor a log": (["simulate", "--out", "OUT.parquet"], 2, ["Missing option '--lists'"]),
    "a twin that is told how to click": (
        ["twin", "log.parquet", "--out", "OUT.parquet", "--behaviour", "trust"],
        2,
        ["No such option: --behaviour"],
    ),
    "a twin under a wrong name": (
        ["twin", "log.parquet", "--out", "OUT.csv"],
        1,
        ["--out: ", ".csv must end in .parquet"],
    ),
    "a page without a twin": (
        ["simulate", "--lists", "synthetic", "--pages", "9", "--out", "OUT.parquet", "--report", "a.html"],
        2,
        ["No such option: --report"],
    ),
    "shares that are no numbers": (
        ["plan", "log.parquet", "--shares", "a few"],
        1,
        ["--shares: input should be a valid number"],
    ),
    "methods without features": (
        ["plan", "log.parquet", "--method", "dla"],
        1,
        ["learn from features: give --features of the log's documents"],
    ),
    "a share that is none": (
        ["experiment", "log.parquet", "--by", "user_id", "--share", "new"],
        2,
        ["new: write it like new=0.1"],
    ),
    "no file": (["ingest", "shop.cvs", "--out", "OUT"], 1, ["shop.cvs: there is no such file", "mean shop.csv"]),
    "columns not ours": (
        ["ingest", "shop.csv", "--out", "OUT"],
        1,
        [
            "shop.csv: no column is one of ours; there are: search term, sku, rank",
            "name them with --column 'query_id=search term' --column doc_id=sku --column position=rank",
        ],
    ),
    "a column of theirs that is not there": (
        ["ingest", "shop.csv", "--out", "OUT", "--column", "position=rnk"],
        1,
        ["shop.csv: there is no column 'rnk' for position. Did you mean rank?"],
    ),
    "some columns named, some not": (
        ["ingest", "shop.csv", "--out", "OUT", "--column", "position=rank"],
        1,
        [
            "missing columns: query_id, doc_id, click",
            "--column 'query_id=search term' --column doc_id=sku --column click",
        ],
    ),
    "UTF-16 without a mark": (
        ["ingest", "utf16_bare.csv", "--out", "OUT", *PAGED],
        1,
        ["utf16_bare.csv:1: looks like UTF-16LE without a byte order mark", "iconv -f UTF-16LE -t UTF-8"],
    ),
    "a header in Latin 1": (
        ["ingest", "latin_header.csv", "--out", "OUT", *PAGED],
        1,
        ["latin_header.csv:1: the header is not UTF-8", "iconv -f LATIN1 -t UTF-8 latin_header.csv"],
    ),
    "rows in Latin 1": (
        ["ingest", "latin.csv", "--out", "OUT", *PAGED],
        3,
        ["6 not_utf8", "latin.csv:8: search term=caf", "iconv -f LATIN1 -t UTF-8", "--max-rejected"],
    ),
    "decimal commas": (
        ["ingest", "commas.csv", "--out", "OUT", *PAGED, "--column", "dwell_time=seconds"],
        3,
        ["60 comma_in_dwell_time", "commas.csv:2: ", "seconds=3,5", "1234.5, not 1.234,5", "--max-rejected"],
    ),
    "thousands": (
        ["ingest", "thousands.csv", "--out", "OUT", *PAGED],
        3,
        ["position_not_a_whole_number", "thousands.csv:4: ", "rank=1,003", "1234, not 1,234"],
    ),
    "clicks that are counts": (
        ["ingest", "counted.csv", "--out", "OUT", *PAGED],
        3,
        ["15 click_not_0_or_1", "clicked=7", "one row is one result shown"],
    ),
    "nothing in it": (["ingest", "empty.csv", "--out", "OUT"], 1, ["empty.csv: the file is empty"]),
    "a header alone": (["ingest", "header.csv", "--out", "OUT", *PAGED], 1, ["header.csv: ", "no rows"]),
    "a folder of nothing": (["ingest", "nothing", "--out", "OUT"], 1, ["nothing: no files that end in .parquet"]),
    "CSV named Parquet": (
        ["ingest", "is_csv.parquet", "--out", "OUT"],
        1,
        ["is_csv.parquet: not a Parquet file, whatever its name says; rename it by what it holds, as .csv"],
    ),
    "Parquet read as CSV": (
        ["ingest", "is_parquet.csv", "--format", "csv", "--out", "OUT"],
        1,
        ["is_parquet.csv: this is Parquet; leave --format out"],
    ),
    "not compressed": (
        ["ingest", "is_csv.csv.gz", "--out", "OUT", *PAGED],
        1,
        ["is_csv.csv.gz: not a file compressed by gzip, whatever its name says; rename it to is_csv.csv"],
    ),
    "compressed": (
        ["ingest", "is_gzip.csv", "--out", "OUT", *PAGED],
        1,
        ["is_gzip.csv: this is a file compressed by gzip; rename it to is_gzip.csv.gz"],
    ),
    "a workbook": (
        ["ingest", "book.csv", "--out", "OUT"],
        1,
        ["book.csv: this is an Excel workbook or a zip archive; export it as CSV or Parquet"],
    ),
    "a column named twice": (
        ["ingest", "twice.csv", "--out", "OUT", *PAGED[:8]],
        1,
        ["twice.csv:1: rank names 2 columns, 3 and 6; rename those that are not meant"],
    ),
    "files that differ": (
        ["ingest", "unlike", "--out", "OUT", *PAGED],
        1,
        ["unlike/b.csv: no column clicked, which unlike/a.csv has; there are: search term, sku, rank, hit"],
    ),
    "a log where features are wanted": (
        ["learn", "log.parquet", "--features", "log.parquet", "--out", "OUT"],
        1,
        ["log.parquet: this is a log, not a table of features: it has page_id, position, click; name the table"],
    ),
    "a log where a run is wanted": (
        ["measure", "parts", "--lists", "lists.txt"],
        1,
        ["parts: this is a log, not a table of scores; name a run folder, a table with query_id"],
    ),
    "a log where a run is scored with": (
        ["predict", "log.parquet", "--features", "features.parquet", "--out", "OUT.csv"],
        1,
        ["log.parquet: this is a log or a table, not a run"],
    ),
    "features under other names": (
        ["learn", "log.parquet", "--features", "shop.csv", "--out", "OUT"],
        1,
        ["shop.csv: has neither query_id nor doc_id", "--column 'query_id=search term' --column doc_id=sku"],
    ),
    "no run": (
        ["measure", "rum", "--lists", "lists.txt"],
        1,
        ["rum: there is no such run or table of scores; did you mean run"],
    ),
    "nothing to measure by": (["measure", "scores.parquet"], 1, ["give --log, or --lists with labels"]),
    "scores of other documents": (
        ["measure", "scores.parquet", "--log", "log.parquet"],
        1,
        ["log.parquet: 60 of 60 impressions have no score, so 20 of 20 pages (100.0%) cannot be judged"],
    ),
    "features where a ranking is wanted": (
        ["measure", "own_features.parquet", "--log", "log.parquet"],
        1,
        ["own_features.parquet: missing columns: score; there are query_id, doc_id, price"],
    ),
    "lists where a ranking is wanted": (
        ["measure", "lists.txt", "--log", "log.parquet"],
        1,
        ["lists.txt: not a LightGBM model; Booster.save_model writes one; a table of scores ends in .parquet"],
    ),
    "propensities that are none": (
        ["measure", "scores.parquet", "--log", "log.parquet", "--propensities", "shop.csv"],
        1,
        ["shop.csv: no propensities"],
    ),
    "what was shown against itself": (
        ["measure", "shown", "--log", "log.parquet"],
        1,
        ["what was shown against what was shown: name a ranking"],
    ),
    "a log of another ranking": (
        ["measure", "scores.parquet", "--log", "features.parquet"],
        1,
        ["features.parquet: this is a table of features, not a log"],
    ),
    "no run file": (["learn", "lists.toml"], 1, ["lists.toml: there is no such file; did you mean lists.txt?"]),
    "a misspelt segment": (
        ["diagnose", "log.parquet", "--segment", "costumer", "--out", "OUT"],
        1,
        ["log.parquet: missing columns: costumer; there are query_id, doc_id, position, click"],
    ),
    "a segment of too many values": (
        ["diagnose", "log.parquet", "--segment", "name", "--out", "OUT"],
        1,
        ["--segment name: it has 60 values, and 50 is the most; give a column of few kinds, such as the device"],
    ),
    "a segment that says what was shown": (
        ["diagnose", "log.parquet", "--segment", "doc_id", "--out", "OUT"],
        1,
        ["--segment doc_id: it says what was shown, or is a name of ours; name a column of few kinds"],
    ),
    "labels of others": (
        ["diagnose", "log.parquet", "--labels", "grades.csv", "--out", "OUT"],
        1,
        ["grades.csv: has no label of a document that the log shows; query_id and doc_id must be"],
    ),
    "labels without a label": (
        ["diagnose", "log.parquet", "--labels", "features.parquet", "--out", "OUT"],
        1,
        ["features.parquet: missing columns: label"],
    ),
    "a run where a log is diagnosed": (
        ["diagnose", "run", "--out", "OUT"],
        1,
        ["run: this is a run folder, not a log"],
    ),
    "features of others, diagnosed": (
        ["diagnose", "log.parquet", "--features", "features.parquet", "--out", "OUT"],
        1,
        ["log.parquet: no impression has features"],
    ),
    "propensities of a log that tells none": (
        ["diagnose", "log.parquet", "--propensities", "OUT.json"],
        1,
        ["log.parquet: the log tells no examination: no document was shown at two ranks"],
    ),
    "propensities in a file of another kind": (
        ["diagnose", "log.parquet", "--propensities", "OUT.txt"],
        1,
        ["--propensities", "out.txt: give a name that ends in .json or .csv"],
    ),
    "pages or clicks": (
        ["simulate", "--lists", "lists.txt", "--out", "OUT.parquet"],
        1,
        ["give --pages or --clicks, one of the two"],
    ),
    "no times": (
        ["split", "timeless.parquet", "--out", "OUT"],
        1,
        ["timeless.parquet: 20 pages have no timestamp"],
    ),
    "a risk that is none": (
        ["ship", "own_features.parquet", "--log", "log.parquet", "--risk", "0.7"],
        1,
        ["unskew: --risk: input should be less than 0.5, not 0.7"],
    ),
    "features where scores are wanted": (
        ["ship", "own_features.parquet", "--log", "log.parquet"],
        1,
        [
            "own_features.parquet: missing columns: score",
            "name a run folder, a table with query_id, doc_id and score",
        ],
    ),
    "no such group": (
        ["ship", "scores.parquet", "--log", "log.parquet", "--group", "brand"],
        1,
        ["log.parquet: there is no column brand; name one of the log, or of its features"],
    ),
    "no log to ship by": (["ship", "scores.parquet"], 2, ["Missing option '--log'"]),
    "one log twice": (
        ["drift", "log.parquet", "log.parquet"],
        1,
        ["log.parquet twice: give the logs of two times"],
    ),
    "a page that is no page": (
        ["drift", "log.parquet", "kinds", "--out", "OUT.txt"],
        1,
        ["give a name that ends in .html"],
    ),
    "no such segment": (
        ["drift", "log.parquet", "kinds", "--segment", "device"],
        1,
        ["log.parquet: missing columns: device"],
    ),
    "items under another name": (
        ["store", "OUT", "--items", "shop.csv"],
        1,
        ["shop.csv: has neither query_id nor doc_id", "--column"],
    ),
    "pairs for items": (
        ["store", "OUT", "--items", "features.parquet"],
        1,
        ["features.parquet: has query_id, and a store has features of items; give tables with doc_id"],
    ),
    "clicks that nobody tracked": (
        ["store", "OUT", "--tracked", "raw"],
        1,
        ["raw is no tracking store", "make one with `unskew track`"],
    ),
    "no store there": (
        ["store", "nowhere"],
        1,
        ["nowhere is no store of features", "unskew store PLACE --items TABLE"],
    ),
    "a store in a folder of theirs": (
        ["store", "raw", "--items", "items.csv"],
        1,
        ["raw exists and is no store of features, so it is left alone"],
    ),
    "columns of no table": (
        ["store", "OUT", "--column", "doc_id=sku"],
        1,
        ["--column: there are no tables whose columns it could name; give --items"],
    ),
    "a store that nobody knows": (["store", "mongo://x/0"], 1, ["mongo:// is no store; give a folder for LMDB"]),
    "a Redis that is not there": (
        ["store", "redis://127.0.0.1:1/0"],
        1,
        ["redis://127.0.0.1:1/0 does not answer", "start it, or check the address"],
    ),
    "no run to serve": (["serve", "rnu"], 1, ["there is no such run; did you mean", "/run?"]),
    "a run that is none": (["serve", "raw"], 1, ["raw"]),
    "chance that nobody writes down": (
        ["serve", "run", "--explore", "shuffle"],
        1,
        ["--explore needs --log FOLDER: chance that is not written down teaches nothing"],
    ),
    "a share of nothing": (["serve", "run", "--share", "0.1"], 1, ["--share is for --explore POLICY"]),
    "an unknown policy": (
        ["serve", "run", "--log", "OUT", "--explore", "shufle"],
        1,
        ["--explore: unknown name 'shufle'. Did you mean shuffle?"],
    ),
    "a setting of another policy": (
        ["serve", "run", "--log", "OUT", "--explore", "shuffle", "--temperature", "2"],
        1,
        ["--temperature: unknown key. Known: cap, depth, share"],
    ),
    "one model to interleave": (
        ["serve", "run", "--log", "OUT", "--explore", "team_draft", "--against", "new"],
        1,
        ["--against new: no second model is called so. Give its run after the first."],
    ),
    "no plan to swap by": (
        ["serve", "run", "--log", "OUT", "--explore", "swaps"],
        1,
        ["swaps needs --swap-plan", "unskew diagnose LOG --json FILE"],
    ),
    "a log of pages in a file": (
        ["serve", "run", "--log", "shop.csv"],
        1,
        ["--log ", "shop.csv: it is a file; name a folder"],
    ),
    "a store to serve that is none": (["serve", "run", "--store", "raw"], 1, ["raw is no store of features"]),
    "a limit that nobody knows": (
        ["serve", "run", "--limits", "caps"],
        1,
        ["caps: documnets: unknown key. Did you mean documents?"],
    ),
    "too many names": (["serve", "run", "--name", "a", "--name", "b"], 1, ["--name: 2 names, and 1 run"]),
    "no token there": (
        ["serve", "run", "--token-file", "secret"],
        1,
        ["secret: the token or secret cannot be read: No such file or directory"],
    ),
    "an export of nothing": (["export", "nowhere"], 1, ["nowhere: there is no such file or folder"]),
    "an export of a raw log": (["export", "shop.csv"], 1, ["shop.csv", TYPED]),
    "an export without a form": (
        ["export", "log.parquet", "--out", "OUT"],
        1,
        ["say in which form: --to lightgbm, onnx, solr"],
    ),
    "an export in a form that nobody knows": (
        ["export", "log.parquet", "--to", "sorl", "--out", "OUT"],
        1,
        ["--to: unknown name 'sorl'. Did you mean solr?"],
    ),
    "an export to nowhere": (
        ["export", "log.parquet", "--to", "quepid"],
        1,
        ["--out: say where to write, for"],
    ),
    "an engine for a log": (
        ["export", "log.parquet", "--to", "solr", "--out", "OUT"],
        1,
        ["log.parquet", "not a run"],
    ),
    "an option of another form": (
        ["export", "log.parquet", "--to", "quepid", "--out", "OUT", "--lists", "items.csv"],
        1,
        ["--lists is for --to solr, opensearch, elasticsearch, vespa, not for quepid"],
    ),
    "grades of a raw log": (["export", "shop.csv", "--to", "quepid", "--out", "OUT"], 1, ["shop.csv", TYPED]),
    "grades of a file that is none": (
        ["export", "is_csv.parquet", "--to", "quepid", "--out", "OUT"],
        1,
        ["is_csv.parquet", "not a Parquet file, whatever its name says"],
    ),
    "grades that are more than sure": (
        ["export", "log.parquet", "--to", "quepid", "--out", "OUT", "--confidence", "2"],
        2,
        ["Invalid value for '--confidence'", "less than or equal to 1"],
    ),
    "an unknown flag": (["split", "log.parquet", "--output", "OUT"], 2, ["No such option: --output"]),
    "an unknown command": (["slpit", "log.parquet"], 2, ["No such command 'slpit'"]),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_said(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected, parts = SITUATIONS[name]
    status, _, told = run(words, here, capsys)
    for part in parts:
        assert part in told
    assert status == expected
    assert not re.search(r"Traceback|\b\w+=(True|\{|\[|\")|unskew_", told)
    assert not here.exists()


READ = {
    "UTF-16": (["ingest", "utf16.csv", *PAGED], []),
    "a mark and carriage returns": (["ingest", "windows.csv", *PAGED], []),
    "semicolons": (["ingest", "semicolons.csv", *PAGED], []),
    "Parquet named CSV": (["ingest", "is_parquet.csv", *PAGED], []),
    "ids of two types": (["ingest", "kinds"], ["files of 2 kinds"]),
    "epoch milliseconds": (["split", "log.parquet"], ["2023-11-14T22:"]),
    "epoch milliseconds of theirs": (["split", "shop.parquet", *RENAMED], ["2023-11-14T22:"]),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read_all_the_same(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, parts = READ[name]
    status, said, told = run([*words, "--out", "OUT"], here, capsys)
    assert status == 0, told
    assert all(part in said for part in parts)
    if words[0] == "ingest":
        assert "15 clicks" in said
        assert sum(pq.read_metadata(path).num_rows for path in (here / "impressions").iterdir()) == 60


def test_a_folder_of_csv_and_parquet_is_one_log(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said, told = run(["ingest", "mixed", "--out", "OUT", *PAGED], here, capsys)
    assert status == 0, told
    assert "text files and Parquet were read together" in said
    assert "60 impressions from 120 rows" in said  # the rows of both are the same


def test_files_of_two_types_in_memory(here: Path, folder: Path) -> None:
    lines = [
        f"0 qid:q{query} 1:{document}.5 # docid = {name}\n" for query in range(10) for document, name in NAMES
    ]
    (folder / "both.txt").write_text("".join(lines))
    lists = unskew.read_letor(folder / "both.txt", doc_ids=True)
    pages = [table.append_column("page_id", pa.array(at)) for table, at in two_kinds()]
    (folder / "both").mkdir()
    for number, table in enumerate(pages):
        pq.write_table(table, folder / "both" / f"{number}.parquet")
    log = unskew.read_log(folder / "both", lists)
    assert (len(log), int(log.click.sum())) == (40, 30)


NAMES = [(number, name) for number, name in enumerate(["d0", "d1", "d2", "0", "1", "2"])]


def two_kinds() -> list[tuple[pa.Table, list[int]]]:
    """Documents by name and by number, 20 pages each."""
    bare = ours().drop_columns(["page_id"])
    numbered = changed(bare, "doc_id", [row % 3 for row in ROWS])
    return [(bare, [row // 3 for row in ROWS]), (numbered, [20 + row // 3 for row in ROWS])]


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("command", ["ingest", "split", "counts", "track", "learn"])
def test_a_disk_that_cannot_be_written(
    trouble: int, command: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first folder on that is made where the result shall be."""
    made = os.mkdir

    def mkdir(path: str, *given: int, **more: int) -> None:
        if str(here.parent) in os.path.abspath(path):
            raise OSError(trouble, os.strerror(trouble), str(path))
        made(path, *given, **more)

    monkeypatch.setattr(os, "mkdir", mkdir)
    words = [*WHERE_A_LOG_IS_WANTED.get(command, ["ingest", "LOG", "--out", "OUT"])]
    log = {"features.parquet": "own_features.parquet", "LOG": "log.parquet"}
    status, _, told = run([log.get(word, word) for word in words], here, capsys)
    assert status == 1
    assert told.startswith("unskew: ")
    assert str(here.parent) in told
    assert os.strerror(trouble) in told
    assert "Traceback" not in told


def test_every_error_has_a_status_of_the_table() -> None:
    def below(kind: type[UnskewError]) -> Iterator[type[UnskewError]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    kinds = [UnskewError, *below(UnskewError)]
    assert {kind.status for kind in kinds} == {1, 3}
    docs = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "exit_statuses.md").read_text()
    for status, meaning in STATUSES.items():
        assert f"| {status} | {meaning} |" in docs
    public = [kind for kind in kinds[1:] if kind.__module__ == "unskew.errors"]
    for kind in public:
        assert f"| `{kind.__name__}` | {kind.status} |" in docs
    assert issubclass(DataError, UnskewError)
