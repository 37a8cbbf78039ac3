"""Pages in files: as HTML, or in a folder with what they show; kept as JSON, read again and joined into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, DataError
from unskew.files import Ours, complete_folder, read_json, refuse_existing, write_json, write_text
from unskew.pages.page import Answer, Figure, Page, Section, Table, Term, write_page
from unskew.pages.web import html
from unskew.settings import listed

SAVED = "page.json"
"""The file in which `write_page` keeps a page."""


def page_place(out: Path | str | None, *, force: bool = False, ours: Ours | None = None) -> Path | None:
    """Where a page goes, a file (.html) or with `ours` a folder, after a check that nothing is overwritten."""
    if out is None:
        return None
    place = Path(out)
    if place.suffix != ".html" and ours is None:
        raise ConfigError("give a name that ends in .html", argument="out", value=out)
    refuse_existing(place, force=force, ours=None if place.suffix == ".html" else ours)
    return place


def write_found(
    place: Path, page: Page, found: object = None, *, force: bool = False, ours: Ours | None = None
) -> None:
    """Write a page to a file (.html); or a folder with it and what was found, under the name that marks `ours`."""
    if place.suffix == ".html" or ours is None:
        write_text(place, html(page))
        return
    with complete_folder(place, force=force, ours=ours) as folder:
        write_json(folder / ours.marker, found)
        write_page(page, folder)


def page_dict(page: Page) -> dict[str, Any]:
    """A page as JSON has it, charts as Vega-Lite."""
    kept = asdict(replace(page, sections=()))
    return kept | {"sections": [_section_dict(section) for section in page.sections]}


def _section_dict(section: Section) -> dict[str, Any]:
    figures = [
        {"chart": _bare(each.chart), "lines": [*each.lines], "scales": each.scales, "series": [*each.series]}
        for each in section.figures
    ]
    tables = [
        asdict(replace(table, marks={})) | {"marks": [[*cell, sign] for cell, sign in table.marks.items()]}
        for table in section.tables
    ]
    return asdict(replace(section, figures=(), tables=())) | {"figures": figures, "tables": tables}


def _bare(chart: Any) -> dict[str, Any]:
    """A chart without the style that it gets where it is drawn."""
    return {key: value for key, value in chart.to_dict(validate=False).items() if key != "config"}


def page_of(kept: Mapping[str, Any]) -> Page:
    """The page that `page_dict` told."""
    terms = [Term(**term) for term in kept["terms"]]
    sections = [_section_of(section) for section in kept["sections"]]
    return Page(**{**kept, "terms": terms, "sections": sections})


def _section_of(kept: Mapping[str, Any]) -> Section:
    figures = [Figure(**{**each, "chart": _chart_of(each["chart"])}) for each in kept["figures"]]
    tables = [
        Table(**{**each, "marks": {(row, column): sign for row, column, sign in each["marks"]}})
        for each in kept["tables"]
    ]
    answers = [Answer(**each) for each in kept["answers"]]
    return Section(**{**kept, "figures": figures, "tables": tables, "answers": answers})


def _chart_of(kept: Mapping[str, Any]) -> Any:
    import altair as alt

    chart = alt.Chart.from_dict(dict(kept))
    for name in ("title", "description"):
        if isinstance(kept.get(name), str):  # read as an object, where it was text
            setattr(chart, name, kept[name])
    return chart


def read_page(path: Path) -> Page:
    """The page in a file of `write_page`."""
    try:
        return page_of(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("no page of ours", path=path, hint="run the command again that wrote it") from error


def joined(pages: Sequence[Page], title: str = "Report", command: str = "") -> Page:
    """Pages one after another, each begun by a section with its answer; terms and notes are told once."""
    sections = [section for page in pages for section in (_opening(page), *page.sections)]
    terms = {term.name: term for page in pages for term in page.terms}
    headings = dict.fromkeys(page.terms_heading for page in pages if page.terms)
    titles = listed([page.title.removesuffix("?") for page in pages])
    lead = f"{len(pages)} pages in one: {titles}." if len(pages) > 1 else ""
    return Page(
        title,
        lead,
        sections,
        notes=list(dict.fromkeys(note for page in pages for note in page.notes)),
        failed=[f"{page.title}: {line}" for page in pages for line in page.failed],
        terms=list(terms.values()),
        terms_heading=next(iter(headings)) if len(headings) == 1 else "Methods and words on this page",
        command=command,
    )


def _opening(page: Page) -> Section:
    made = f"Made by {page.command}" if page.command else ""
    return Section(page.title, "\n\n".join(filter(None, (page.origin, page.lead, made))))
