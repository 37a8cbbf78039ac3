"""Summaries as pages: an ingested log, a run that ended, and what was measured of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unskew.learning.curves import Curve
from unskew.measuring.cmip import Cmip
from unskew.measuring.measurement import Bucket, Compared, Measurement, Paired
from unskew.measuring.ranking import RankingReport
from unskew.pages.console import bar_lines
from unskew.pages.documents.proof import proof_page
from unskew.pages.numbers import number, p_value
from unskew.pages.page import Page, Section, Table

_CHOSEN = {"labels": "nDCG@10", "nDCG of clicks": "nDCG@10 of held-out clicks"}


def ingest_page(out: Path, made: Mapping[str, Any]) -> Page:
    """The summary of an ingested log."""
    without = made["pages_without_clicks"]
    lines = [
        f"{made['pages']:,} pages, {made['queries']:,} queries, {made['documents']:,} documents",
        f"{made['clicks']:,} clicks ({made['click_rate']:.2%}), {without:.1%} of pages without one",
    ]
    if made["positions_from"] is not None:
        how = "found" if made["positions_detected"] else "given"
        lines.append(f"positions count from {made['positions_from']} in the source ({how}), from 1 here")
    if made["time"] is not None:
        lines.append(f"from {made['time']['first']} to {made['time']['last']}")
    lines += [*(f"warning: {warning}" for warning in made["warnings"]), *made["notes"]]
    lines += [f"{count:,} rows of {name} beside the log, in {out / name}" for name, count in made["sides"].items()]
    lines += [f"{count:,} {kind.replace('_', ' ')} passed over" for kind, count in made["ignored"].items()]
    ranks = made["by_position"]
    said = [f"{row['click_rate']:.4f}  {row['clicks']:,}/{row['impressions']:,}" for row in ranks]
    bars = bar_lines({row["position"]: row["click_rate"] for row in ranks}, said)
    lost = made["rejected"]
    reasons = sorted(lost["reasons"].items(), key=lambda item: -item[1])
    broken = "\n\n".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in reasons)
    title = f"{made['impressions']:,} impressions from {made['rows_read']:,} rows read, in {out}"
    aside = f"{lost['rows']:,} broken rows ({lost['share']:.2%}), see rejected.parquet"
    return Page(
        title,
        sections=[
            Section("The log", "\n\n".join(lines)),
            Section("Click rate by position", code=bars),
            Section("Rules", tables=[_rules(made["rules"])]),
            *_further(made["source_columns"]),
            Section(aside, broken or "Every row could be read."),
        ],
    )


ADVICE = {
    "bias factor": "bias factor? --keep {name}",
    "gives the click away": "gives the click away",
    "begins again": "positions begin again: --page-number {name}",
    "shuffled": "shuffled pages? --column randomized={name}",
    "names things": "an id",
    "says nothing": "says nothing",
    "not a factor": "no factor as it is",
}


def _further(columns: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """What the columns that are not ours could be for."""
    rows = [
        [
            name,
            about["kind"],
            f"{about['values']:,}",
            f"{about['missing']:.1%}",
            f"by {about['differs']}",
            ADVICE[about["advice"]].format(name=name),
        ]
        for name, about in columns.items()
    ]
    table = Table(
        ("column", "kind", "values", "missing", "differs", "advice"), rows, text=("kind", "differs", "advice")
    )
    text = (
        "Found from a sample of rows. What is kept can be a bias factor: `unskew learn --factor NAME`. It must be "
        "known before the click. What gives the click away must be neither a factor nor a feature."
    )
    return [Section("Further columns of the source", text, [table])] if rows else []


def _rules(rules: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for name, rule in rules.items():
        if rule["asked"]:
            done = "" if not rule["rows"] else "removed" if rule["on"] else "kept"
            rows.append([name, f"{rule['rows']:,}", f"{rule['share']:.2%}", done])
        else:
            rows.append([name, "–", "–", "nothing to ask"])
    return Table(("rule", "rows", "share", ""), rows, text=("",))


PAGES = (
    "The results of each page in the run's order. IPS-nDCG weighs an outcome by one over the average clicks at "
    "the rank where it was shown."
)


def run_page(
    title: str,
    chosen: tuple[str, float | None, int],
    curves: Sequence[Curve],
    said: Sequence[str],
    test: RankingReport | None = None,
) -> Page:
    """How a run ended: what its weights were `chosen` on, the best value and its step, and what is said of it."""
    on, best, step = chosen
    what = _CHOSEN.get(on, "log-likelihood of a held-out click")
    lines = [] if best is None else [f"validation: {what} {best:.4f} at step {step}"]
    lines += [*(f"{curve.label}: {curve.line()}" for curve in curves), *said]
    sections = [Section("What was learned", "\n\n".join(lines))] if lines else []
    return Page(title, sections=[*sections, *([] if test is None else [_ranking(test, None)])])


def measure_page(found: Measurement, origin: str = "", command: str = "") -> Page:
    """What `measure` found: the verdict of clicks, where a log was given, then metrics on labelled lists."""
    against = found.against if found.against is not None and found.against.metrics is not None else None
    sections = [] if found.ranking is None else [_ranking(found.ranking, against)]
    if found.frequency is not None:
        sections.append(_frequency(found.frequency, against))
    if found.pages is not None:
        beside = None if against is None else against.pages
        sections.append(Section("Logged pages", PAGES, [_means(found.pages, against, beside)]))
    if found.cmip is not None:
        sections.append(_left(found.cmip))
    if found.clicks is not None:
        rows = [
            [name, " ".join(map(number, value)) if isinstance(value, list) else number(value)]
            for name, value in found.clicks.items()
        ]
        sections.append(Section("Click prediction", tables=[Table(("measure", "value"), rows, text=("value",))]))
    if found.evidence is None:
        return Page(found.run, sections=sections, origin=origin, command=command)
    other = "shown" if found.against is None else found.against.run
    page = proof_page(found.evidence, found.run, other, origin=origin, command=command)
    return replace(page, sections=[*page.sections, *sections])


def _left(cmip: Cmip) -> Section:
    """What is left of the logging ranking, given the grades."""
    told = "follows" if cmip.p < 0.05 else "does not follow"
    text = (
        f"Among documents of one grade the ranking {told} the order that was shown: CMIP {cmip.value:.4f} "
        f"nats (p = {p_value(cmip.p)}, {cmip.documents:,} documents). 0 is a ranking that learned nothing "
        "of where documents stood; read it beside nDCG, as a random ranking has 0 too."
    )
    return Section("Bias that is left", text)


def _ranking(report: RankingReport, against: Compared | None) -> Section:
    """Ranking metrics, how queries without a relevant document were counted, and a comparison if there is one."""
    text = f"{report.queries} queries, {report.without_relevant} of them without a relevant document "
    return Section(
        "Ranking",
        f"{text}({report.empty})",
        [_means(report.means, against, None if against is None else against.metrics)],
    )


def _frequency(found: Mapping[str, Bucket], against: Compared | None) -> Section:
    """Metrics by how often queries are asked; with a comparison the differences in a table of their own."""
    text = "\n\n".join(
        f"{name}: {part.queries:,} queries, {part.pages:,} pages, {part.least:,} to {part.most:,} each"
        for name, part in found.items()
    )
    metrics, columns = next(iter(found.values())).means, ("metric", *found)
    rows = [[metric, *(number(part.means[metric]) for part in found.values())] for metric in metrics]
    tables = [Table(columns, rows)]
    if against is not None:
        tests = [
            [metric, *(_short(part.against[metric]) for part in found.values() if part.against)]
            for metric in metrics
        ]
        tables.append(Table(columns, tests, f"against {against.run}: difference (p)"))
    return Section("By query frequency", text, tables)


def _short(test: Paired) -> str:
    return f"{number(test.difference, '+.4f')} ({p_value(test.p)})"


def _means(means: Mapping[str, float], against: Compared | None, tests: Mapping[str, Paired] | None) -> Table:
    """A row for every metric, with a comparison if there is one."""
    table = Table(("metric", "mean"), [[name, number(value)] for name, value in means.items()])
    if against is None or tests is None:
        return table
    rows = [[*row, *_compared(tests[row[0]])] for row in table.rows]
    return Table((*table.columns, "difference", "95 % interval", "p"), rows, f"against {against.run}")


def _compared(test: Paired) -> list[str]:
    low, high = (number(end, "+.4f") for end in test.interval)
    return [number(test.difference, "+.4f"), f"{low} to {high}", p_value(test.p)]
