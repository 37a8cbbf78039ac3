"""The demo: a world where clicks mislead, four ways to learn from it, and what each one got right.

A search engine ranks with a favourite feature that has nothing to do with relevance. People look at the top of
the page, so its favourites are clicked more, and whoever learns from the clicks learns to like them too. The demo
makes such a world, learns with and without debiasing, and measures on true labels that no learner but `labeled`
saw.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from unskew import __version__
from unskew.clicks.lists.synthetic import make_lists
from unskew.clicks.simulate import PositionBias, SvmLogger, simulate
from unskew.errors import RunError
from unskew.learning.methods import DLA, IPW, Labeled, MethodConfig, Naive
from unskew.learning.rankers import MLP
from unskew.learning.scorer import Scorer
from unskew.measuring import Interval, bootstrap_mean, gap_closed, ndcg_metric
from unskew.reporting.console import curve_lines, table, training_bar
from unskew.reporting.figures import (
    chart_html,
    examination_figure,
    palette,
    score_figure,
    side_by_side,
    styled,
    write_svg,
)
from unskew.reporting.page import html_table, write_page
from unskew.running.folder import status
from unskew.running.run import learn
from unskew.types import Array, Lists, Log

ARMS: dict[str, MethodConfig] = {"naive": Naive(), "dla": DLA(), "ipw": IPW(), "labeled": Labeled(documents="all")}
WHAT = {
    "logging": "the ranking that was shown",
    "naive": "clicks taken at face value",
    "dla": "examination learned from the same clicks",
    "ipw": "examination measured on the shuffled 5 %",
    "labeled": "true grades, the upper bound",
}


@dataclass(frozen=True)
class World:
    """Lists, the clicks on them, and the rankers' test set."""

    log: Log
    test: Lists
    logging: Array
    """Scores of the logging ranker on the test lists."""
    examination: Array
    """True examination relative to rank 1."""


@dataclass(frozen=True)
class Result:
    """One arm on the test lists."""

    name: str
    ndcg: Interval
    gap: float | None
    examination: list[float] | None

    def cells(self) -> list[str]:
        """The arm as a table row."""
        gap = "" if self.gap is None else "no gap" if np.isnan(self.gap) else f"{100 * self.gap:.0f} %"
        interval = f"{self.ndcg.low:.3f} to {self.ndcg.high:.3f}"
        return [self.name, f"{self.ndcg.mean:.3f}", interval, gap, WHAT[self.name]]


TITLE = "Clicks mislead: learning with and without debiasing"
FILES = ("results.json", "report.html", "report.html.partial", "figure.svg")
COLUMNS = ("learned from", "nDCG@10", "95 % interval", "gap closed", "what it is")


def demo(
    out: Path,
    *,
    seed: int = 0,
    queries: int = 2000,
    pages: int = 1_000_000,
    steps: int = 800,
    force: bool = False,
    console: Console | None = None,
    quiet: bool = False,
) -> list[Result]:
    """Run the demo into a folder: one run per arm, results.json, report.html and a figure."""
    console = console or Console()
    clear(out, force)
    began = time.time()
    world = make_world(seed, queries, pages)
    console.print(describe(world) + "\n", highlight=False)
    models = {name: _learn(name, method, world, out, steps, seed, console, quiet) for name, method in ARMS.items()}
    results = measure(world, models)
    write(out, world, results, seed)
    console.print()
    console.print(table("Test lists, true labels", COLUMNS, [result.cells() for result in results]))
    console.print("\nWho is looked at? Bars: the truth. Letters: what was learned.", highlight=False)
    console.print("\n".join(curve_lines(list(world.examination), _curves(results))), highlight=False)
    console.print(f"\n{verdict(results)}\n", highlight=False)
    done = f"Done in {time.time() - began:.0f} s. Open {out / 'report.html'}; each run is a folder in {out}."
    console.print(done, markup=False, highlight=False, soft_wrap=True)
    return results


def clear(out: Path, force: bool) -> None:
    """Make place for a demo: with force what an earlier demo wrote goes, and nothing else ever does."""
    if not out.exists():
        return
    if not force:
        raise RunError(f"{out} exists and is never overwritten; choose another --out, or use --force")
    ours = {*FILES, *ARMS, *(f"{name}.partial" for name in ARMS)}
    if not out.is_dir() or any(path.name not in ours for path in out.iterdir()):
        raise RunError(f"{out} holds more than a demo, so it is not overwritten; choose another --out")
    shutil.rmtree(out)


def make_world(seed: int, queries: int, pages: int) -> World:
    """Lists with a planted favourite feature, shown and clicked under the position-based model."""
    behaviour = PositionBias()
    train, test = make_lists(queries=queries, seed=seed), make_lists(queries=1000, seed=seed + 1_000_000)
    log = simulate(train, behaviour, pages=pages, seed=seed, randomized=0.05)
    logging = SvmLogger().fit(train, seed).scores(test)
    theta = np.asarray(behaviour.curve)
    return World(log, test, logging, theta / theta[0])


def describe(world: World) -> str:
    """What the world is, in a few lines."""
    log = world.log
    return (
        f"A search engine shows {len(log):,} result pages for {len(log.lists):,} queries; people click "
        f"{int(log.click.sum()):,} times. They look at rank 10 only {100 * world.examination[9]:.0f} % as often "
        f"as at rank 1. The engine has a favourite feature (number {log.lists.confounder}) that "
        "has nothing to do with relevance. Whoever trusts the clicks learns to like it too."
    )


def measure(world: World, models: dict[str, Scorer]) -> list[Result]:
    """Every arm and the logging ranker on the test lists."""
    scores = {"logging": world.logging} | {name: model.score(world.test) for name, model in models.items()}
    labels, offsets = world.test.labels, world.test.offsets
    ndcg = {name: bootstrap_mean(ndcg_metric(s, labels, offsets=offsets)) for name, s in scores.items()}
    results = []
    for name, interval in ndcg.items():
        between = name not in ("logging", "naive", "labeled")
        gap = gap_closed(interval.mean, ndcg["naive"].mean, ndcg["labeled"].mean) if between else None
        curve = models[name].propensity() if name in models else None
        results.append(Result(name, interval, gap, None if curve is None else [float(v) for v in curve]))
    return results


def verdict(results: list[Result]) -> str:
    """One sentence on what came out."""
    by_name = {result.name: result for result in results}
    naive, dla = by_name["naive"].ndcg.mean, by_name["dla"]
    if dla.gap is None or np.isnan(dla.gap) or dla.ndcg.mean <= naive:
        return "Here debiasing did not help: learning from the clicks as they are does as well."
    return (
        f"Learning from raw clicks reaches {naive:.3f}. The same clicks, with who looked at what learned "
        f"alongside, reach {dla.ndcg.mean:.3f}: {100 * dla.gap:.0f} % of the way to true labels, "
        "without a single label."
    )


def write(out: Path, world: World, results: list[Result], seed: int) -> None:
    """results.json, the figures and the page."""
    content: dict[str, Any] = {
        "seed": seed,
        "pages": len(world.log),
        "clicks": int(world.log.click.sum()),
        "true_examination": [float(value) for value in world.examination],
        "results": [
            {
                "name": r.name,
                "ndcg@10": r.ndcg.mean,
                "interval": [r.ndcg.low, r.ndcg.high],
                "gap_closed": None if r.gap is None or np.isnan(r.gap) else r.gap,
                "examination": r.examination,
            }
            for r in results
        ],
    }
    (out / "results.json").write_text(json.dumps(content, indent=2) + "\n")
    kind = {"naive": "biased", "logging": "reference", "labeled": "reference"}
    colours = palette({r.name: kind.get(r.name, "debiased") for r in results})
    rows = [{"name": r.name, "mean": r.ndcg.mean, "low": r.ndcg.low, "high": r.ndcg.high} for r in results]
    curves = examination_figure(list(world.examination), _curves(results), colours)
    scores = score_figure(rows, colours)
    write_svg(side_by_side(curves, scores), out / "figure.svg")
    charts = chart_html(styled(curves), "examination") + chart_html(styled(scores), "scores")
    best = max((r for r in results if r.gap is not None), key=lambda r: r.ndcg.mean).name
    sections = [
        ("What was learned", f"<div class='charts'>{charts}</div>"),
        ("Test lists, true labels", html_table(COLUMNS, [r.cells() for r in results], best=best)),
        ("The world", f"<p>{escape(describe(world))}</p>"),
        (
            "Next",
            "<p>Score with any of the runs in this folder:</p><pre>unskew measure dla --lists YOUR.txt</pre>",
        ),
    ]
    footer = f"unskew {__version__}, seed {seed}"
    write_page(out / "report.html", TITLE, verdict(results), sections, footer=footer)


def _learn(
    name: str, method: MethodConfig, world: World, out: Path, steps: int, seed: int, console: Console, quiet: bool
) -> Scorer:
    with training_bar(name, steps, console, quiet=quiet) as report:
        done = learn(
            world.log,
            method,
            ranker=MLP(sizes=(64, 32)),
            test=world.test,
            out=out / name,
            report=report,
            steps=steps,
            seed=seed,
            threads=1,  # a ranker this small gains nothing from a second one
        )
    if status(out / name) == "interrupted":
        console.print("Interrupted; with --force the demo starts again.")
        raise KeyboardInterrupt
    return done.model


def _curves(results: list[Result]) -> dict[str, list[float]]:
    return {result.name: result.examination for result in results if result.examination is not None}
