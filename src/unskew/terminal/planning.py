"""The command that plans traffic on a twin: plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.completing import names_of
from unskew.terminal.flags import Column, DocIds, Force, Impressions, Json, Seed, passed
from unskew.terminal.printing import show_result, tell, typed


def plan(
    log: Impressions,
    features: Annotated[
        list[str] | None, typer.Option(help="Features of the log's documents, to try methods; repeatable.")
    ] = None,
    shares: Annotated[str, typer.Option(help="Shares of shuffled pages to try.")] = "0,0.01,0.05",
    pages: Annotated[
        str | None,
        typer.Option(help="Numbers of pages, as 10000,50000; the log's, and four times as many."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method to try; repeatable. naive and dla.", autocompletion=names_of("methods")),
    ] = None,
    ranker: Annotated[str, typer.Option(help="What learns.", autocompletion=names_of("rankers"))] = "linear",
    repeats: Annotated[int, typer.Option(min=1, help="Logs drawn for each line of the table.")] = 3,
    daily: Annotated[float | None, typer.Option(help="Pages that you show a day, to tell days.")] = None,
    seed: Seed = 0,
    doc_ids: DocIds = False,
    column: Column = None,
    out: Annotated[Path | None, typer.Option(help="Page to write (.html).")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say how many shuffled pages, which method and how long, by trying them on a twin of the log."""
    given = passed(locals(), "as_json", "out", "force", "shares", "pages", "method")
    from unskew.files import refuse_existing, write_text
    from unskew.pages.web import html
    from unskew.studies.plan import plan, plan_page

    if out is not None:
        refuse_existing(out, force=force)
    sizes = None if pages is None else [int(number) for number in numbers_of(pages, "--pages")]
    found = plan(shares=numbers_of(shares, "--shares"), pages=sizes, methods=method, **given)
    page = plan_page(found, f"Tried on a twin fitted to {log}; no real user was involved.", typed())
    if out is not None:
        write_text(out, html(page))
        tell(f"Open {out}.")
    show_result(found, as_json, lambda _: page)


def numbers_of(text: str, flag: str) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text}: write it like 0,0.01,0.05", param_hint=flag) from None
