"""The documentation site: it builds without a warning, leads nowhere that is not there, and leaves nothing out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer
from pydantic import BaseModel

import unskew
from unskew.learning.fitting.training import Training
from unskew.learning.methods import LEARNERS
from unskew.learning.rankers import RANKERS
from unskew.measuring.ranking import METRICS
from unskew.names import OPTIONAL, REQUIRED
from unskew.simulation import BEHAVIOURS, LOGGERS
from unskew.studies.compare.config import CompareFile
from unskew.tables.lists.scaling import SCALINGS
from unskew.tables.reading.options import RULES, IngestOptions
from unskew.terminal.catalogue import settings_of
from unskew.terminal.main import app, made
from unskew.workflows.runs.settings import RunFile
from unskew_reproductions.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "run_file": RunFile,
    "compare_file": CompareFile,
    "recipes": Recipe,
    "ingest_mapping": IngestOptions,
}
NAMED = {"methods": LEARNERS, "rankers": RANKERS, "behaviours": BEHAVIOURS | LOGGERS}
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


class Read(HTMLParser):
    """What a page links to, what it fetches by itself, its anchors, and the words of its paragraphs."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.text = ""
        self.paragraphs: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given or (tag == "link" and "href" in given):
            self.fetched.append(given.get("src") or given["href"])
        if tag == "p":
            self.paragraphs.append("")
        if tag in ("p", "code"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._open.remove(tag)

    def handle_data(self, data: str) -> None:
        self.text += data
        if "p" in self._open:
            self.paragraphs[-1] += "code" if "code" in self._open else data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    return {path: Read(path) for path in site.rglob("*.html")}


def test_every_link_and_anchor_resolves(pages: dict[Path, Read]) -> None:
    assert len(pages) > 60
    wrong = [f"{path.name}: {link}" for path in pages for link in broken(path, pages)]
    assert wrong == [], "\n".join(wrong)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    links = (
        "b.html",
        "b.html#there",
        "b.html#gone",
        "c.html",
        "#gone",
        "https://example.org",
        "https:/x",
        "htp://x",
    )
    (tmp_path / "a.html").write_text("".join(f'<a href="{link}">x</a>' for link in links) + '<img src="no.svg">')
    (tmp_path / "b.html").write_text('<p id="there">x</p>')
    pages = {path: Read(path) for path in tmp_path.glob("*.html")}
    assert broken(tmp_path / "a.html", pages) == [
        "b.html#gone",
        "c.html",
        "#gone",
        "https:/x",
        "htp://x",
        "no.svg",
    ]


def test_nothing_is_fetched_from_elsewhere(pages: dict[Path, Read]) -> None:
    outside = {link for page in pages.values() for link in page.fetched if urlsplit(link).netloc}
    assert outside == set()


def test_lists_and_tables_are_lists_and_tables(pages: dict[Path, Read]) -> None:
    """The site needs a blank line where the repository's page does not."""
    lost = re.compile(r"^ *([-*] |1\. |\|.*\|$|#+ |```)", re.MULTILINE)
    wrong = [(path.name, text) for path, page in pages.items() for text in page.paragraphs if lost.search(text)]
    assert wrong == [], "\n".join(map(str, wrong))


def test_every_page_of_the_repository_is_on_the_site(site: Path, pages: dict[Path, Read]) -> None:
    for path in ROOT.glob("docs/**/*.md"):
        name = "index.html" if path.name == "README.md" else f"{path.stem}.html"
        assert site / path.relative_to(ROOT / "docs").parent / name in pages, path
    heading = (ROOT / "EXPERIMENTS.md").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
    assert heading in pages[site / "experiments.html"].text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_in_the_reference(site: Path, name: str) -> None:
    section = sections(site, "commands", "h2")[name]
    params = [each for each in made(name).params if each.name != "help"]
    for each in params:
        called = each.opts if each.param_type_name == "option" else [each.metavar or each.name.upper()]
        assert all(f"<code>{one}</code>" in section for one in called), (name, each.name)
        assert (each.help or "").strip(), f"unskew {name}: {each.opts[0]} has no help"


@pytest.mark.parametrize("page", NAMED)
def test_every_method_ranker_and_behaviour_is_in_the_reference(site: Path, page: str) -> None:
    found = sections(site, page, "h3" if page == "behaviours" else "h2")
    assert set(NAMED[page]) <= set(found)
    for name, config in NAMED[page].items():
        for key in config.model_fields:
            assert key == "name" or f"<code>{key}</code>" in found[name], (name, key)


@pytest.mark.parametrize("page", FILES)
def test_every_key_of_a_file_is_in_the_reference(site: Path, page: str) -> None:
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    for key in keys(FILES[page]):
        assert f"<code>{key}</code>" in text, key
    if page == "run_file":
        assert all(f"<code>training.{key}</code>" in text for key in Training.model_fields)


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    found = sections(site, "python", "h3")
    assert set(found) == {*unskew.__all__, "sklearn.Ranker"}
    members = sections(site, "python", "h4")
    for name in ("Model", "Scorer", "Run"):
        kind = getattr(unskew, name)
        own = {f"{name}.{each}" for each in dir(kind) if each[0] != "_" and callable(getattr(kind, each))}
        assert own <= set(members)


def test_columns_rules_scalings_and_metrics_are_in_the_reference(site: Path) -> None:
    text = (site / "reference" / "tables.html").read_text(encoding="utf-8")
    names = [*REQUIRED, *OPTIONAL, *RULES, *SCALINGS, *METRICS]
    assert [name for name in names if f"<code>{name}</code>" not in text] == []


def test_every_setting_has_a_sentence() -> None:
    configs = [*FILES.values(), Training, *(config for table in NAMED.values() for config in table.values())]
    silent = {
        f"{config.__name__}.{each['name']}" for config in configs for each in settings_of(config) if not each.help
    }
    assert silent == set()


def test_examples_of_the_generator_hold() -> None:
    files = [str(ROOT / "tools" / "site" / name) for name in ("markdown_parts.py", "commands.py")]
    done = subprocess.run([sys.executable, "-m", "doctest", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def broken(path: Path, pages: dict[Path, Read]) -> list[str]:
    """Links of a page to files or anchors that are not there, and addresses that cannot be any."""
    if path.name == "404.html":  # the page of lost addresses has links from the root of a server
        return []
    return [link for link in pages[path].links + pages[path].fetched if not leads_somewhere(link, path, pages)]


def leads_somewhere(link: str, path: Path, pages: dict[Path, Read]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return parts.scheme == "data" or (parts.scheme in ("https", "http") and "." in parts.netloc)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if parts.fragment and target in pages:
        return unquote(parts.fragment) in pages[target].anchors
    return target.is_file()


def keys(config: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key of a file, those of inner tables after a dot."""
    for name, field in config.model_fields.items():
        yield before + name
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{before}{name}.")


def sections(site: Path, page: str, level: str) -> dict[str, str]:
    """The HTML under each heading of a level of a page of the reference."""
    text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
    parts = re.split(rf"<{level}[^>]*>(.*?)<a class=\"headerlink\".*?</{level}>", text, flags=re.DOTALL)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
