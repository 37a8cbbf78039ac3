"""Pages in files: as HTML, or in a folder with what they show; kept as JSON, read again and joined into one."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from unskew.errors import ConfigError, DataError
from unskew.files import Ours, complete_folder, read_json, refuse_existing, write_json, write_text
from unskew.pages.page import Page, Section, write_page
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
    """Write a page to a file (.html) or into a folder, which is made with what was found where it is `ours`."""
    if place.suffix == ".html":
        write_text(place, html(page))
    elif ours is None:
        write_page(page, place)
    else:
        with complete_folder(place, force=force, ours=ours) as folder:
            write_json(folder / ours.marker, found)
            write_page(page, folder)


def page_of(kept: Mapping[str, Any]) -> Page:
    """The page that is read back from the dict that `Page.to_dict` made."""
    told = deepcopy(dict(kept))
    for table in (table for section in told["sections"] for table in section["tables"]):
        table["marks"] = {(row, column): sign for row, column, sign in table["marks"]}
    return TypeAdapter(Page).validate_python(told)


def read_page(path: Path) -> Page:
    """The page in a file of `write_page`."""
    try:
        return page_of(read_json(path))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("no page of ours", path=path, hint="run the command again that wrote it") from error


def joined(pages: Sequence[Page], title: str = "Report", command: str = "") -> Page:
    """Pages one after another, each begun by a section with its answer; terms and notes are told once."""
    sections: list[Section] = []
    for page in pages:
        made = f"Made by {page.command}" if page.command else ""
        sections += [
            Section(page.title, "\n\n".join(filter(None, (page.origin, page.lead, made)))),
            *page.sections,
        ]
    headings = {page.terms_heading for page in pages if page.terms}
    titles = listed([page.title.removesuffix("?") for page in pages])
    return Page(
        title,
        f"{len(pages)} pages in one: {titles}." if len(pages) > 1 else "",
        sections,
        notes=list(dict.fromkeys(note for page in pages for note in page.notes)),
        failed=[f"{page.title}: {line}" for page in pages for line in page.failed],
        terms=list({term.name: term for page in pages for term in page.terms}.values()),
        terms_heading=headings.pop() if len(headings) == 1 else "Methods and words on this page",
        command=command,
    )
