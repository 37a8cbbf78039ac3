"""RankLens from raw events to a report: what position bias is there, do the methods find it, and does it matter?

    python examples/ranklens/ranklens.py events.jsonl.gz --out ranklens-run

The pages of RankLens were shuffled, so the click rate by rank is its position bias, and everything here can be
held against it. README.md beside this file walks through the steps and says what came out.

Written to OUT: log/ and parts/ (impressions), features.parquet, results.json, table.md, figure.svg, report.html.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from ranklens_curves import visits_of
from ranklens_movies import read_movies, write_features
from ranklens_page import write_report
from ranklens_study import Data, Plan, study

import unskew


def prepare(events: Path, out: Path, plan: Plan) -> Data:
    """Ingest without the spam, split by time, and make features of the movies."""
    mapping = Path(__file__).with_suffix(".toml")
    summary = unskew.ingest(events, out / "log", format="metarank", mapping=mapping, threads=1)
    split = unskew.split(out / "log", out / "parts", validation=0.1, test=0.2, threads=1)
    impressions, table = out / "log" / "impressions", out / "features.parquet"
    names = write_features(read_movies(out / "log" / "item_fields"), impressions, table, common=plan.common)
    lists = unskew.read_features(table, cache=False)
    whole, train, validation, test = (
        unskew.read_log(path, lists, keep=["visit_id"])
        for path in (impressions, *(out / "parts" / part for part in ("train", "validation", "test")))
    )
    return Data(whole, train, validation, test, names, {"ingest": summary.to_dict(), "split": split.to_dict()})


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the example from the command line."""
    parser = argparse.ArgumentParser(description="RankLens from raw events to a report.")
    parser.add_argument("events", type=Path, help="events.jsonl.gz of RankLens")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not exist without --force")
    parser.add_argument("--force", action="store_true", help="overwrite OUT")
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = vars(parser.parse_args(arguments))
    plan = Plan(**{name: given[name] for name in asdict(Plan())})
    out, began = given["out"], time.time()
    if out.exists() and not given["force"]:
        parser.error(f"{out} exists; --force overwrites it")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    def say(text: str) -> None:
        print(f"{time.time() - began:6.0f} s  {text}", flush=True)

    data = prepare(given["events"], out, plan)
    visits = len(np.unique(visits_of(data.whole)))
    say(f"{len(data.whole):,} pages in {visits:,} visits, {len(data.features)} features")
    result = study(data, plan, say)
    result |= {"plan": asdict(plan), "features": list(data.features), "about": data.about}
    result["pages"] = {part: len(getattr(data, part)) for part in ("whole", "train", "validation", "test")}
    (out / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(write_report(result, out))
    return result


if __name__ == "__main__":
    main()
