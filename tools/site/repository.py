"""Files of the repository as pages of the site, and links between them that hold in both places.

On the repository's page a link is a path between files. On the site README.md is the home page, files beside docs/
are pages of their own, and any other file that is linked to is a page that shows its source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

BESIDE = {
    "README.md": "index.md",
    "EXPERIMENTS.md": "experiments.md",
    "BENCHMARKS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/ranklens/README.md": "examples/ranklens.md",
}
"""Pages that do not lie in docs/, by their path in the repository, and their place on the site."""
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(`{3,}|~{3,})")


class Site:
    """The repository seen as a site."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def pages(self) -> dict[str, str]:
        """Place on the site and text of every page that is no file of docs/."""
        texts = {place: (self.root / path).read_text(encoding="utf-8") for path, place in BESIDE.items()}
        return texts | {place: self._source(path) for path, place in self._sources.items()}

    def translated(self, markdown: str, place: str) -> str:
        """The text of the page at this place, with links as they are on the site."""
        path = next((path for path, there in BESIDE.items() if there == place), f"docs/{place}")
        return "".join(
            line if inside else self._line(line, path, place) for line, inside in lines_of_code(markdown)
        )

    def _line(self, line: str, path: str, place: str) -> str:
        if re.fullmatch(r"<!-- .* -->\n?", line):  # for tests, not for readers
            return "\n"

        def there(found: re.Match[str]) -> str:
            target = self._place_of(target_of(found[2], path))
            if "://" in found[2] or target is None:
                return found[0]
            return f"{found[1]}({os.path.relpath(target, os.path.dirname(place) or '.')}{found[3] or ''})"

        line = LINK.sub(there, line)
        return _row(line) if line.startswith("|") else line

    def _place_of(self, path: str) -> str | None:
        """Where a file of the repository is on the site."""
        if path.startswith("docs/") and not path.endswith("/"):
            return path.removeprefix("docs/")
        return BESIDE.get(path) or self._sources.get(path)

    @cached_property
    def _sources(self) -> dict[str, str]:
        """Files that are linked to and are no pages by themselves."""
        found = {}
        for path in [
            *BESIDE,
            *(page.relative_to(self.root).as_posix() for page in self.root.glob("docs/**/*.md")),
        ]:
            for link in links_of((self.root / path).read_text(encoding="utf-8")):
                target = target_of(link, path)
                if "://" not in link and not target.startswith("docs/") and target not in BESIDE:
                    found[target] = f"source/{target}.md"
        return {target: place for target, place in found.items() if (self.root / target).is_file()}

    def _source(self, path: str) -> str:
        language = {".py": "python", ".toml": "toml", ".sh": "bash"}.get(Path(path).suffix, "text")
        text = (self.root / path).read_text(encoding="utf-8")
        head = f"---\ntitle: {Path(path).name}\nsearch: {{exclude: true}}\n---\n# {path}\n\n"
        return f"{head}````{language}\n{text}````\n"


def _row(line: str) -> str:
    """A row of a table: a bar within code is not escaped on the site, and a spread stays with its mean."""
    line = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
    return line.replace(" ± ", "\u00a0±\u00a0")


def lines_of_code(markdown: str) -> Iterator[tuple[str, bool]]:
    """Every line, and whether it stands within a fence."""
    fence = ""
    for line in markdown.splitlines(keepends=True):
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
            yield line, True
            continue
        yield line, bool(fence)


def links_of(markdown: str) -> list[str]:
    """What a page links to or shows, outside of its code, without the part after #."""
    return [link[1] for line, inside in lines_of_code(markdown) if not inside for link in LINK.findall(line)]


def target_of(link: str, path: str) -> str:
    """The path in the repository that a link of this file leads to."""
    return os.path.normpath(os.path.join(os.path.dirname(path), link))
