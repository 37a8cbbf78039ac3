"""The demo: a world where clicks mislead, four ways to learn from it, and what each one got right.

A search engine ranks with a favourite feature that has nothing to do with relevance. People look at the top of
the page, so its favourites are clicked more, and whoever learns from the clicks learns to like them too. The demo
makes such a world, learns with and without debiasing, and measures on true labels that no learner but `labeled`
saw. Then a second one, whose engine knows more than features do, as most do: whoever learns from clicks alone
falls behind it, and a run that begins as the order shown does not.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from unskew.errors import MissingExtra
from unskew.files import Ours, complete_folder, write_json
from unskew.learning.fitting.training import Training
from unskew.learning.methods import MethodConfig
from unskew.learning.methods.dla import DLA
from unskew.learning.methods.ipw import IPW
from unskew.learning.methods.naive import Labeled, Naive
from unskew.learning.rankers import MLP
from unskew.learning.scoring.scorer import Scorer
from unskew.measuring import Interval, bootstrap_mean, gap_closed, ndcg_metric
from unskew.options.runs import DemoArguments
from unskew.pages.console import training_bar
from unskew.pages.figures import curves_figure, dots_figure, palette, points_of
from unskew.pages.numbers import Value, command_line, with_best
from unskew.pages.origins import GENERATED, simulated_on
from unskew.pages.page import PAGE_FILES, Figure, Page, Section, Table, write_page
from unskew.results import Result
from unskew.simulation import PositionBias, ScoresLogger, SvmLogger, simulate
from unskew.simulation.synthetic import make_lists
from unskew.studies.terms import FROM_CLICKS, LOGGING, method_term
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.folder import RUN
from unskew.workflows.runs.learn import learn

REQUEST = "request.json"
ADDRESS = "http://127.0.0.1:8000"
"""Where `unskew serve` listens unless told otherwise."""
SHOWN = 10
_PACKAGES = ("fastapi", "uvicorn", "orjson", "prometheus_client")
DEMO_ARMS: dict[str, MethodConfig] = {
    "naive": Naive(),
    "dla": DLA(),
    "ipw": IPW(),
    "labeled": Labeled(documents="all"),
}
STRONG = ("shown", "alone", "begun")
"""What is compared where the engine is good."""
KNOWN = {
    "shown": "the order that was shown, by an engine that knows more than features do",
    "alone": "dla from these clicks alone (engine = none)",
    "begun": "dla as learn does it: from the order shown, corrected",
}
BLUR, QUERIES, PAGES = 0.6, 300, 20_000
"""Standard deviation of what that engine adds to the true grade; size of its log."""
_RUNS = (f"{arm}/{name}" for arm in DEMO_ARMS for name in (RUN.marker, *RUN.names))
DEMO = Ours("results.json", (REQUEST, *PAGE_FILES, *_RUNS))
"""What lies in the demo's folder."""
WHAT = {
    "logging": "the ranking that was shown",
    "naive": "clicks taken at face value",
    "dla": "examination learned from the same clicks",
    "ipw": "examination measured on the shuffled 5 %",
    "labeled": "true grades, the upper bound",
}


@dataclass(frozen=True)
class DemoWorld:
    """Lists, the clicks on them, and the rankers' test set."""

    log: Log
    test: Lists
    logging: Array
    """Scores of the logging ranker on the test lists."""
    examination: Array
    """True examination relative to rank 1."""


@dataclass(frozen=True)
class DemoResult:
    """One arm on the test lists."""

    name: str
    ndcg: Interval
    gap: float | None
    examination: list[float] | None

    def to_dict(self) -> dict[str, Any]:
        """The arm as results.json has it."""
        return {
            "name": self.name,
            "ndcg@10": self.ndcg.mean,
            "interval": [self.ndcg.low, self.ndcg.high],
            "gap_closed": None if self.gap is None or np.isnan(self.gap) else self.gap,
            "examination": self.examination,
        }


@dataclass(frozen=True)
class Demo(Result):
    """The result of a demo: the methods, their rankings and examination."""

    results: list[DemoResult]
    strong: list[DemoResult]
    """Where the engine is good."""
    page: Page
    numbers: Mapping[str, Any]
    """What results.json holds."""

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON has them."""
        return dict(self.numbers)


@DemoArguments.checks
def demo(
    out: Path | str = "demo-run",
    *,
    seed: int = 0,
    queries: int = 2000,
    pages: int = 1_000_000,
    steps: int = 800,
    force: bool = False,
    console: Console | None = None,
) -> Demo:
    """Run the demo into a folder: one run per arm, results.json, a page with figures, and a request to serve.

    Where a console is given, it shows how far the training is.
    """
    with complete_folder(Path(out), force=force, ours=DEMO) as folder:
        world = make_world(seed, queries, pages)
        models = {}
        training = Training(steps=steps, seed=seed, threads=1)  # a ranker this small gains nothing from a second
        learned = partial(
            learn, world.log, ranker=MLP(sizes=(64, 32)), test=world.test, training=training, engine="none"
        )
        for name, method in DEMO_ARMS.items():
            with training_bar(name, steps, console) as report:
                done = learned(method, out=folder / name, report=report)
            if done.fit.status == "interrupted":
                raise KeyboardInterrupt
            models[name] = done.model
        results, strong = measure_arms(world, models), strong_engine(seed, min(steps, 400))
        again = command_line("demo", out=out, seed=seed, queries=queries, pages=pages, steps=steps)
        page = demo_page(world, results, strong, again)
        clicks, seen = int(world.log.click.sum()), [float(value) for value in world.examination]
        numbers: dict[str, Any] = {"seed": seed, "pages": len(world.log), "clicks": clicks}
        numbers |= {"true_examination": seen, "results": [result.to_dict() for result in results]}
        numbers["strong"] = [result.to_dict() for result in strong]
        write_json(folder / "results.json", numbers)
        write_request(world.test, world.logging, folder / REQUEST)
        write_page(page, folder)
    return Demo(results, strong, page, numbers)


def make_world(seed: int, queries: int, pages: int) -> DemoWorld:
    """Lists with a planted favourite feature, shown and clicked under the position-based model."""
    behaviour = PositionBias()
    train, test = make_lists(queries=queries, seed=seed), make_lists(queries=1000, seed=seed + 1_000_000)
    log = simulate(train, behaviour, pages=pages, seed=seed, randomized=0.05)
    logging = SvmLogger().fit(train, seed).scores(test)
    theta = np.asarray(behaviour.curve)
    return DemoWorld(log, test, logging, theta / theta[0])


def strong_engine(seed: int, steps: int) -> list[DemoResult]:
    """A log of an engine that ranks by grades and a little chance: its order, and what is learned from it."""
    lists = make_lists(queries=QUERIES, seed=seed + 2_000_000)
    lists = replace(lists, doc_ids=np.arange(len(lists.labels)))
    order = lists.labels + BLUR * np.random.default_rng(seed).normal(size=len(lists.labels))
    shown = ScoresLogger(values=order)
    log = simulate(lists, PositionBias(), logger=shown, pages=PAGES, seed=seed, randomized=0.05, cutoff=SHOWN)
    training = Training(steps=steps, seed=seed, threads=1)
    alone, begun = learn(log, DLA(), training=training, engine="none"), learn(log, DLA(), training=training)
    ranked = log.with_ranks().lists
    scores = {"shown": order, "alone": alone.score(ranked), "begun": begun.score(ranked)}
    each = {name: ndcg_metric(scores[name], lists.labels, offsets=lists.offsets) for name in STRONG}
    return [DemoResult(name, bootstrap_mean(values), None, None) for name, values in each.items()]


def describe(world: DemoWorld) -> str:
    """What the world is, in a few lines."""
    log = world.log
    return (
        f"A search engine shows {len(log):,} result pages for {len(log.lists):,} queries; people click "
        f"{int(log.click.sum()):,} times. They look at rank 10 only {100 * world.examination[9]:.0f} % as often "
        f"as at rank 1. The engine has a favourite feature (number {log.lists.confounder}) that "
        "has nothing to do with relevance. Whoever trusts the clicks learns to like it too."
    )


def measure_arms(world: DemoWorld, models: dict[str, Scorer]) -> list[DemoResult]:
    """Every arm and the logging ranker on the test lists."""
    scores = {"logging": world.logging} | {name: model.score(world.test) for name, model in models.items()}
    labels, offsets = world.test.labels, world.test.offsets
    ndcg = {name: bootstrap_mean(ndcg_metric(s, labels, offsets=offsets)) for name, s in scores.items()}
    results = []
    for name, interval in ndcg.items():
        between = name not in ("logging", "naive", "labeled")
        gap = gap_closed(interval.mean, ndcg["naive"].mean, ndcg["labeled"].mean) if between else None
        curve = models[name].propensity() if name in models else None
        results.append(DemoResult(name, interval, gap, None if curve is None else [float(v) for v in curve]))
    return results


def verdict(results: list[DemoResult]) -> str:
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


def strong_said(strong: list[DemoResult]) -> str:
    """What came out where the engine is good, in words."""
    shown, alone, begun = (result.ndcg.mean for result in strong)
    return (
        f"Most engines are good, and know more than features do. This one orders {QUERIES:,} queries at "
        f"{shown:.3f}; what is learned from {PAGES:,} of its pages alone reaches {alone:.3f}. unskew learn begins "
        f"as the order shown unless told otherwise, corrects it, and reaches {begun:.3f}."
    )


def demo_page(world: DemoWorld, results: list[DemoResult], strong: list[DemoResult], command: str = "") -> Page:
    """The world, what was learned, and how well each arm ranks."""
    true, learned = list(world.examination), {r.name: r.examination for r in results if r.examination is not None}
    title, truth = "Who is looked at? True and learned examination", "true examination"
    points = {name: points_of(curve) for name, curve in {truth: true, **learned}.items()}
    colours = palette(r.name for r in results)
    curves = curves_figure(title, points, "examination, rank 1 = 1", true=truth, colours=colours)
    rows = [{"name": r.name, "mean": r.ndcg.mean, "low": r.ndcg.low, "high": r.ndcg.high} for r in results]
    scores = dots_figure("Does it rank better? 95 % interval", rows, "nDCG@10 on true labels")
    again = "Score with any of the runs in this folder:"
    return Page(
        "Clicks mislead: learning with and without debiasing",
        verdict(results),
        [
            Section("The world", describe(world)),
            Section("What was learned", figures=[curves, Figure(scores)]),
            Section("Test lists, true labels", tables=[results_table(results)]),
            Section("Where the engine is good", strong_said(strong), tables=[strong_table(strong)]),
            Section("Next", again, code=["unskew measure dla --lists YOUR.txt"]),
        ],
        origin=simulated_on([PositionBias()], [GENERATED]),
        terms=[*(method_term(name, config.name) for name, config in DEMO_ARMS.items()), LOGGING],
        command=command,
    )


def results_table(results: list[DemoResult]) -> Table:
    """A row for each arm, the best of those that learn from clicks marked."""
    rows, ndcg = [], []
    for r in results:
        gap = "" if r.gap is None else "no gap" if np.isnan(r.gap) else f"{100 * r.gap:.0f} %"
        rows.append([r.name, f"{r.ndcg.mean:.3f}", f"{r.ndcg.low:.3f} to {r.ndcg.high:.3f}", gap, WHAT[r.name]])
        of_clicks = r.name not in ("logging", "labeled")
        ndcg.append(Value(r.ndcg.mean, r.ndcg.mean - r.ndcg.low) if of_clicks else None)
    columns = ("learned with", "nDCG@10", "95 % interval", "gap closed", "what it is")
    table = Table(columns, rows, text=("what it is",))
    return with_best(table, {1: ndcg}, among=FROM_CLICKS, spread="its 95 % interval")


def strong_table(strong: list[DemoResult]) -> Table:
    """A row for each ranking of the queries of the engine that is good."""
    rows = [
        [r.name, f"{r.ndcg.mean:.3f}", f"{r.ndcg.low:.3f} to {r.ndcg.high:.3f}", KNOWN[r.name]] for r in strong
    ]
    return Table(("ranking", "nDCG@10", "95 % interval", "what it is"), rows, text=("what it is",))


def write_request(lists: Lists, shown: Array, path: Path) -> None:
    """Write the page that the logging ranker shows for the first query, by its scores, as a request."""
    last = int(lists.offsets[1])
    order = np.argsort(-np.asarray(shown[:last]), kind="stable")[:SHOWN].tolist()
    documents = [
        {"id": f"doc-{row}", "features": [float(f"{value:.4g}") for value in lists.features[row].tolist()]}
        for row in order
    ]
    lines = ",\n  ".join(map(json.dumps, documents))
    path.write_text(f'{{"query": "query-{lists.query_ids[0]}", "documents": [\n  {lines}\n]}}\n', encoding="utf-8")


def serving_lines(out: Path | str, run: str = "dla") -> list[str]:
    """How to serve a run of the demo and ask it, with what to install before where that is missing."""
    folder = Path(out)
    lines = [f"Serve the debiased ranker; a page to try it is then at {ADDRESS}/"]
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        lines = [f"To serve the debiased ranker: {MissingExtra('serve', missing[0])}; then"]
    lines += [f"    {own_command()} serve {shlex.quote(str(folder / run))}"]
    asked = f"{ADDRESS}/v1/rank -H 'content-type: application/json' -d {shlex.quote(f'@{folder / REQUEST}')}"
    return [*lines, "Ask it, in another terminal:", f"    curl -s {asked}"]


def own_command() -> str:
    """What starts unskew here: its name where the shell finds it, else the path of it."""
    own = Path(sys.executable).with_name("unskew")
    found = shutil.which("unskew")
    if found is not None and Path(found).resolve() == own.resolve():
        return "unskew"
    return shlex.quote(str(own)) if own.exists() else f"{shlex.quote(sys.executable)} -m unskew"
