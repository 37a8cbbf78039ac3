"""The summary of an ingested log as a page; apart, as `ingest` has no need of what measures rankings."""

from collections.abc import Mapping
from pathlib import Path

from unskew.logs.ingest.advice import SourceColumn
from unskew.logs.ingest.summary import IngestedLog, RuleCount
from unskew.pages.console import bar_lines
from unskew.pages.page import Page, Section, Table


def ingest_page(out: Path, made: IngestedLog) -> Page:
    """The summary of an ingested log."""
    without = made.pages_without_clicks
    lines = [
        f"{made.pages:,} pages, {made.queries:,} queries, {made.documents:,} documents",
        f"{made.clicks:,} clicks ({made.click_rate:.2%}), {without:.1%} of pages without one",
    ]
    if made.positions_from is not None:
        how = "found" if made.positions_detected else "given"
        lines.append(f"positions count from {made.positions_from} in the source ({how}), from 1 here")
    if made.time is not None:
        lines.append(f"from {made.time.first} to {made.time.last}")
    lines += [*(f"warning: {warning}" for warning in made.warnings), *made.notes]
    lines += [f"{count:,} rows of {name} beside the log, in {out / name}" for name, count in made.sides.items()]
    lines += [f"{count:,} {kind.replace('_', ' ')} passed over" for kind, count in made.ignored.items()]
    ranks = made.by_position
    said = [f"{row.click_rate:.4f}  {row.clicks:,}/{row.impressions:,}" for row in ranks]
    bars = bar_lines({row.position: row.click_rate for row in ranks}, said)
    lost = made.rejected
    reasons = sorted(lost.reasons.items(), key=lambda item: -item[1])
    broken = "\n\n".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in reasons)
    title = f"{made.impressions:,} impressions from {made.rows_read:,} rows read, in {out}"
    aside = f"{lost.rows:,} broken rows ({lost.share:.2%}), see rejected.parquet"
    return Page(
        title,
        sections=[
            Section("The log", "\n\n".join(lines)),
            Section("Click rate by position", code=bars),
            Section("Rules", tables=[_rules(made.rules)]),
            *_further(made.source_columns),
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


def _further(columns: Mapping[str, SourceColumn]) -> list[Section]:
    """What the columns that are not ours could be for."""
    rows = [
        {
            "column": name,
            "kind": about.kind,
            "values": f"{about.values:,}",
            "missing": f"{about.missing:.1%}",
            "differs": f"by {about.differs}",
            "advice": ADVICE[about.advice].format(name=name),
        }
        for name, about in columns.items()
    ]
    text = (
        "Found from a sample of rows. What is kept can be a bias factor: `unskew learn --factor NAME`. It must be "
        "known before the click. What gives the click away must be neither a factor nor a feature."
    )
    table = Table.of(rows, text=("kind", "differs", "advice"))
    return [Section("Further columns of the source", text, [table])] if rows else []


def _rules(rules: Mapping[str, RuleCount]) -> Table:
    rows = []
    for name, rule in rules.items():
        done = "" if not rule.rows else "removed" if rule.on else "kept"
        told = [f"{rule.rows:,}", f"{rule.share:.2%}", done] if rule.asked else ["–", "–", "nothing to ask"]
        rows.append([name, *told])
    return Table(("rule", "rows", "share", ""), rows, text=("",))
