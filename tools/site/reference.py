"""The reference of the site, made from the code when the site is built: one page for each kind of thing."""

from __future__ import annotations

from commands import command_page
from names import names_page
from settings import catalogue_pages
from tables import tables_page

ABOUT = {
    "commands.md": "every command, with its arguments and options",
    "run_file.md": "every key of a run file, and of `unskew.learn`",
    "methods.md": "every method and its settings",
    "rankers.md": "every ranker and its settings",
    "behaviours.md": "how simulated people click, what ranked their pages, and whole search engines",
    "compare_file.md": "every key of a compare file",
    "recipes.md": "every key of a recipe, which tries a paper's table again",
    "ingest_mapping.md": "every key of a mapping file of `unskew ingest`",
    "tables.md": "columns of a log, rules of ingest, scalings, metrics",
    "formats.md": "fields of UBI, Baidu-ULTR, TianGong-ST, Yandex and Metarank, and what becomes of them",
    "exit_statuses.md": "what a command may end with",
    "python.md": "every public name, with its signature",
}
"""What each page of the reference has."""


def reference_pages() -> dict[str, str]:
    """Place and text of every page that is made."""
    pages = {"index.md": _index(), "commands.md": command_page(), "python.md": names_page()}
    pages |= {"tables.md": tables_page(), **catalogue_pages()}
    return {f"reference/{place}": text for place, text in pages.items()}


def _index() -> str:
    names = {place: place.removesuffix(".md").replace("_", " ") for place in ABOUT}
    lines = [f"| [{names[place]}]({place}) | {about} |" for place, about in ABOUT.items()]
    return "\n".join(
        [
            "# Reference",
            "",
            "Made from the code when this site is built: names, types and defaults are what it has.",
            "",
            "| page | |",
            "|---|---|",
            *lines,
            "",
        ]
    )
