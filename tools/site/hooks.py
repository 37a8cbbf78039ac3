"""What mkdocs asks while it builds: the reference, files beside docs/ as pages, links that hold in both places."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import reference_pages
from repository import Site

ROOT = Path(__file__).resolve().parents[2]
SITE = Site(ROOT)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of docs/, with those that are made: the reference, files of the repository, sources linked to."""
    for place, text in {**SITE.pages(), **reference_pages()}.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text of a page with links as they are on the site."""
    return SITE.translated(markdown, page.file.src_uri)
