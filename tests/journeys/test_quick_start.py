"""The code of a page of documentation, run block by block as a reader would run it.

A page opts in with a line `<!-- tested -->`. Its fenced blocks run in order, in
a folder with a copy of `examples/`:

- `bash`: line by line; a line that begins with `unskew` and has nothing of a shell in it runs in this process;
  `unskew serve` runs beside, at a free port that stands for the usual one, until the next block with `unskew`;
- `python`: all blocks of a page share their names;
- `toml`, `csv`, `json` whose first line is `# NAME`: written to the file NAME, in TOML with that line;
- `text` right after one of the first two: what that printed. Lines come in this order, others may stand between
  them, numbers may differ by a tenth, and `...` stands for anything up to the end of its line.

A line `<!-- not run -->` before a block leaves it out, and so does any other language.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.helpers.served import Started, started
from unskew.terminal.main import app

torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[2]
TESTED, NOT_RUN = "<!-- tested -->", "<!-- not run -->"
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
SHELL = re.compile(r"[|<>&;$*`()]")


@dataclass(frozen=True)
class Block:
    """Code of a page, or what it prints."""

    language: str
    text: str
    line: int
    """Of the page, where its first line stands."""


@dataclass
class Reader:
    """Somebody who types what a page says."""

    folder: Path
    names: dict[str, object] = field(default_factory=dict)
    servers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    server: Started | None = None

    def follow(self, page: Path) -> int:
        """Run the blocks of a page; the number of those that ran."""
        with self.servers:
            return self._follow(page)

    def _follow(self, page: Path) -> int:
        printed, ran = "", 0
        for block in blocks_of(page.read_text(encoding="utf-8")):
            where = f"{page.name}:{block.line}"
            if block.language == "text":
                wrong = unlike(block.text, printed)
                assert wrong is None, f"{where}: not printed: {wrong}\n{printed}"
                continue
            printed, ran = self._run(block, where), ran + 1
        return ran

    def _run(self, block: Block, where: str) -> str:
        if self.server and block.language == "bash" and block.text.startswith("unskew"):
            self.servers.close()  # somebody pressed Ctrl-C
            self.server = None
        block = replace(block, text=self.server.at_this(block.text)) if self.server else block
        if block.language == "python":
            return self._python(block, where)
        if block.language == "bash":
            return "".join(self._line(line, where) for line in commands_of(block.text))
        first, _, rest = block.text.partition("\n")
        (self.folder / first.removeprefix("# ")).write_text(block.text if block.language == "toml" else rest)
        return ""

    def _python(self, block: Block, where: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (block.line - 1) + block.text, where, "exec"), self.names)  # our own pages
        return out.getvalue()

    def _line(self, line: str, where: str) -> str:
        words = shlex.split(line, comments=True)
        if words[:2] == ["unskew", "serve"]:
            self.server = self.servers.enter_context(started(shlex.join(words), self.folder))
            return self.server.printed
        if words[0] == "unskew" and not SHELL.search(line.partition(" #")[0]):
            ended = CliRunner().invoke(app, words[1:])
            assert ended.exit_code == 0, (where, line, ended.output, ended.exception)
            return str(ended.output)
        script = f'unskew() {{ {shlex.quote(sys.executable)} -m unskew "$@"; }}\n{line}\n'
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (where, line, done.stdout, done.stderr)
        return done.stdout + done.stderr


def blocks_of(text: str) -> Iterator[Block]:
    """The blocks that are run, written to a file or compared, in order."""
    lines, begun, before = text.splitlines(), 0, ""
    fence = language = ""
    skipped = False
    for number, line in enumerate(lines, start=1):
        found = re.fullmatch(r"(`{3,})(\w*)", line)
        if fence and line == fence:
            body = "\n".join(lines[begun : number - 1]) + "\n"
            named = language in ("toml", "csv", "json") and re.match(r"# [\w./-]+\n", body)
            if (language in ("bash", "python", "text") or named) and not skipped:
                yield Block(language, body, begun + 1)
            fence = ""
        elif found and not fence:
            fence, language, begun = found[1], found[2], number
            skipped = before.strip() == NOT_RUN or (skipped and language == "text")
        before = line or before


def commands_of(text: str) -> list[str]:
    """The lines of a block of shell, those that go on taken together, without comments."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def unlike(shown: str, printed: str) -> str | None:
    """The first line of what is shown that was not printed, after those before it; none where all were.

    >>> unlike("a 1.00\\n... c", "a 1.05\\nx\\nb c"), unlike("a 2", "a 1")
    (None, 'a 2')
    """
    rest = iter(printed.splitlines())
    for line in filter(str.strip, shown.splitlines()):
        if not any(alike(line, other) for other in rest):
            return line
    return None


def alike(shown: str, printed: str) -> bool:
    """Whether two lines are the same, up to space and a tenth of their numbers."""
    parts = re.findall(rf"{NUMBER.pattern}|\.\.\.|\s+|\S", shown.strip())
    known = {"...": ".*", " ": r"\s+"}
    pattern = "".join(
        rf"({NUMBER.pattern})" if NUMBER.fullmatch(part) else known.get(part.strip() or " ") or re.escape(part)
        for part in parts
    )
    found = re.fullmatch(pattern, printed.strip())
    numbers = [part for part in parts if NUMBER.fullmatch(part)]
    return found is not None and all(map(_near, map(_number, numbers), map(_number, found.groups())))


def _number(text: str) -> float:
    return float(text.replace(",", "").rstrip("."))


def _near(shown: float, printed: float) -> bool:
    return abs(shown - printed) <= 0.02 + 0.1 * abs(shown)


PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if TESTED in page.read_text(encoding="utf-8").splitlines()
)


@pytest.mark.filterwarnings("ignore:.*rows were left out")  # a reader is told so as well
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    assert Reader(tmp_path).follow(ROOT / page) > 0


def test_the_quick_start_is_tested() -> None:
    assert "docs/quick_start.md" in PAGES


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("```python\nprint(1 + 1)\n```\n```text\n3\n```\n", "not printed: 3"),
        ("```bash\necho a\necho b\n```\n```text\nb\na\n```\n", "not printed: a"),
        ("```bash\nunskew learn nothing.toml\n```\n", "nothing.toml"),
        ("```bash\nls nothing | sort\n```\n", "nothing"),
    ],
)
def test_a_page_that_is_wrong_is_found(page: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(AssertionError, match=re.escape(wrong)):
        Reader(tmp_path).follow(tmp_path / "page.md")


def test_blocks_are_told_apart(tmp_path: Path) -> None:
    fence = "```"
    page = (
        f"{fence}toml\n# a.toml\nx = 1\n{fence}\n{fence}csv\n# a.csv\nx\n1\n{fence}\n{fence}toml\ny = 1\n{fence}\n"
        f"{NOT_RUN}\n\n{fence}bash\nfalse\n{fence}\n{fence}text\nnever\n{fence}\n"
        f"{fence}bash\ncat a.csv \\\n  a.toml\n{fence}\n{fence}text\nx\n1.05\n...\n{fence}\n"
    )
    (tmp_path / "page.md").write_text(page)
    assert Reader(tmp_path).follow(tmp_path / "page.md") == 3
    assert (tmp_path / "a.csv").read_text() == "x\n1\n"
