"""Summaries as pages: a run that ended, and what was measured of one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unskew.learning.curves import Curve
from unskew.measuring.measurement import Bucket, Compared, Measurement, Paired
from unskew.measuring.ranking import RankingReport
from unskew.pages.documents.proof import proof_page
from unskew.pages.numbers import number, p_value, span
from unskew.pages.page import Page, Section, Table

_CHOSEN = {"labels": "nDCG@10", "nDCG of clicks": "nDCG@10 of held-out clicks"}


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
    if found.clicks is not None:
        told = {name: value if isinstance(value, list) else [value] for name, value in found.clicks.items()}
        rows = [{"measure": name, "value": " ".join(map(number, values))} for name, values in told.items()]
        sections.append(Section("Click prediction", tables=[Table.of(rows, text=("value",))]))
    if found.evidence is None:
        return Page(found.run, sections=sections, origin=origin, command=command)
    other = "shown" if found.against is None else found.against.run
    page = proof_page(found.evidence, found.run, other, origin=origin, command=command)
    return replace(page, sections=[*page.sections, *sections])


def _ranking(report: RankingReport, against: Compared | None) -> Section:
    """Ranking metrics, how queries without a relevant document were counted, and a comparison if there is one."""
    text = (
        f"{report.queries} queries, {report.without_relevant} of them without a relevant document ({report.empty})"
    )
    return Section("Ranking", text, [_means(report.means, against, against.metrics if against else None)])


def _frequency(found: Mapping[str, Bucket], against: Compared | None) -> Section:
    """Metrics by how often queries are asked; with a comparison the differences in a table of their own."""
    text = "\n\n".join(
        f"{name}: {part.queries:,} queries, {part.pages:,} pages, {part.least:,} to {part.most:,} each"
        for name, part in found.items()
    )
    metrics = next(iter(found.values())).means
    means = [
        {"metric": metric} | {name: number(part.means[metric]) for name, part in found.items()}
        for metric in metrics
    ]
    tables = [Table.of(means)]
    if against is not None:
        tests = [
            {"metric": metric}
            | {name: _test(part.against[metric]) for name, part in found.items() if part.against}
            for metric in metrics
        ]
        tables.append(Table.of(tests, f"against {against.run}: difference (p)"))
    return Section("By query frequency", text, tables)


def _test(test: Paired) -> str:
    return f"{number(test.difference, '+.4f')} ({p_value(test.p)})"


def _means(means: Mapping[str, float], against: Compared | None, tests: Mapping[str, Paired] | None) -> Table:
    rows = [{"metric": name, "mean": number(value)} for name, value in means.items()]
    if against is None or tests is None:
        return Table.of(rows)
    for row in rows:
        test = tests[row["metric"]]
        row |= {"difference": number(test.difference, "+.4f"), "95 % interval": span(test.interval)}
        row["p"] = p_value(test.p)
    return Table.of(rows, f"against {against.run}")
