"""An ingested log in numbers, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.clicks.engine.engine import Engine
from unskew.clicks.ingest.options import RULES, IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table


def by_position(rows: Table, engine: Engine) -> list[dict[str, Any]]:
    """Impressions, clicks and click rate of every position."""
    table = rows.group_by("position").agg(impressions=rows.count(), clicks=rows.click.sum()).order_by("position")
    return [{**row, "click_rate": round(row["clicks"] / row["impressions"], 6)} for row in engine.rows(table)]


def rules_table(found: Mapping[str, Mapping[str, int]], options: IngestOptions, rows: int) -> dict[str, Any]:
    """What every rule found, and whether it removed it; a rule that could not be asked says so."""
    table: dict[str, Any] = {}
    for name, what in RULES.items():
        counts = found.get(name)
        if name == "duplicate_events":
            counts = counts or {"rows": 0}
        entry: dict[str, Any] = {"what": what, "on": name not in options.rules.off, "asked": counts is not None}
        if counts is not None:
            entry |= {**counts, "share": round(counts["rows"] / rows, 6) if rows else 0.0}
        table[name] = entry
    return table


def log_numbers(pages: Mapping[str, Any], written: Table, engine: Engine) -> dict[str, Any]:
    """The log as it was written, in numbers; `pages` are those of `Cleaned`."""
    shown, clicks, count = (int(pages[name] or 0) for name in ("rows", "clicks", "pages"))
    first, last = pages.get("first"), pages.get("last")
    return {
        "format": "unskew impressions 1",
        "impressions": shown,
        "pages": count,
        "queries": int(pages["queries"] or 0),
        "documents": engine.rows(written.agg(n=written.doc_id.nunique()))[0]["n"],
        "clicks": clicks,
        "click_rate": round(clicks / shown, 6) if shown else None,
        "pages_without_clicks": round(int(pages["clickless"] or 0) / count, 6) if count else None,
        "time": None if first is None else {"first": _utc(first), "last": _utc(last)},
        "by_position": by_position(written, engine),
    }


def _utc(moment: Any) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
