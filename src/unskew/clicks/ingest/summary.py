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
    return [
        {**row, "click_rate": round(row["clicks"] / row["impressions"], 6)}
        for row in engine.to_arrow(table).to_pylist()
    ]


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


def summary(
    *,
    read: int,
    base: int | None,
    detected: bool,
    pages: Mapping[str, Any],
    documents: int,
    positions: list[dict[str, Any]],
    rules: dict[str, Any],
    broken: Mapping[str, int],
    ignored: Mapping[str, int],
    notes: tuple[str, ...],
    columns: list[str],
    sides: Mapping[str, int],
) -> dict[str, Any]:
    """Everything that is written to summary.json."""
    first, last = pages.get("first"), pages.get("last")
    shown = int(pages["rows"] or 0)
    lost = sum(broken.values())
    return {
        "format": "unskew impressions 1",
        "rows_read": read,
        "impressions": shown,
        "pages": int(pages["pages"] or 0),
        "queries": int(pages["queries"] or 0),
        "documents": documents,
        "clicks": int(pages["clicks"] or 0),
        "click_rate": round(int(pages["clicks"] or 0) / shown, 6) if shown else None,
        "pages_without_clicks": round(int(pages["clickless"] or 0) / pages["pages"], 6)
        if pages["pages"]
        else None,
        "positions_from": base,
        "positions_detected": detected,
        "time": None if first is None else {"first": _utc(first), "last": _utc(last)},
        "by_position": positions,
        "rules": rules,
        "rejected": {"rows": lost, "share": round(lost / read, 6) if read else 0.0, "reasons": dict(broken)},
        "ignored": dict(ignored),
        "notes": list(notes),
        "columns": columns,
        "sides": dict(sides),
    }


def _utc(moment: Any) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
