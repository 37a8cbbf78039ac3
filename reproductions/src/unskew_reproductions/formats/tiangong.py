"""TianGong-ST: search sessions in XML, one element per line, and a file of human labels.

    <session num="1">
      <interaction num="1">
        <query>words</query> <query_id>q1</query_id>
        <results>
          <result rank="1"> <url/> <docid>d1</docid> <title/> <vtype>30000201</vtype> <relevance/> </result>
        </results>
        <clicked> <click num="1"> <rank>1</rank> <docid>d1</docid> </click> </clicked>
      </interaction>
    </session>

A record is an interaction, that is a page; each is parsed by itself, so a broken one costs no other, and no
document type can be declared, so no entity expands. Labels (sample, session, query, document, label 0 to 4,
validity) go to the side table `labels`. The scores of click models under `relevance` are not read.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from unskew.logs.ingest.formats.records import HELD, Reader, lines
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.values import Broken, identifier, optional_identifier, text, time, utf8, whole
from unskew.tables.reading.options import IngestOptions

LONGEST_PAGE = 2**20
"""Bytes of an interaction past which it is rejected without being held."""
_SESSION = re.compile(rb"<session\b[^>]*\bnum\s*=\s*[\"']([^\"'<>]*)[\"']")
_BORDER = re.compile(rb"</?session\b")
_TAGS = re.compile(rb"\s*(<[^<>]*>\s*)+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ].*|[0-9]{10,19}(\.[0-9]*)?", re.ASCII)


class TianGong(Reader):
    """Takes the lines of files one after another; holds the interaction under way."""

    def __init__(self, stage: Stage, options: IngestOptions) -> None:
        super().__init__(stage, options)
        self.visit: str | None = None
        self.start = self.size = 0
        self.held: list[bytes] = []

    def read(self, paths: Sequence[Path]) -> None:
        """Take every line; neither a session nor an interaction goes on in the next file."""
        for path in paths:
            self.path, self.visit = path, None
            for row, raw, too_long in lines(path, self.options):
                self.line(row, raw, too_long)
            self.unfinished()

    def line(self, row: int, raw: bytes, too_long: bool) -> None:
        """A line of XML, or a label where no interaction is under way."""
        if b"<interaction" in raw:
            self.unfinished()
            self.start, self.size, self.held = row, 0, []
        if self.start:
            self.size += LONGEST_PAGE + 1 if too_long else len(raw) + 1
            if self.size <= LONGEST_PAGE or not self.held:
                self.held.append(raw)
            if b"</interaction" in raw:
                page = b"\n".join(self.held)
                self.stage.attempt(self.path, self.start, page, partial(self._page, page))
                self.start, self.held = 0, []
            return
        if _BORDER.search(raw):
            found = _SESSION.search(raw)
            self.visit = None if found is None else found[1].decode("utf-8", "replace")
        if too_long or not _TAGS.fullmatch(raw):
            self.stage.attempt(self.path, row, raw, partial(self._label, raw), too_long=too_long)

    def unfinished(self) -> None:
        """Reject the interaction that a file breaks off in."""
        if self.start:
            self.stage.read()
            self.stage.reject(self.path, self.start, "interaction_without_end", b"\n".join(self.held)[:HELD])
        self.start, self.held = 0, []

    def _page(self, raw: bytes) -> None:
        if self.size > LONGEST_PAGE:
            raise Broken("interaction_too_long")
        visit = identifier(self.visit, "session")
        whole_page = raw[raw.index(b"<interaction") : raw.find(b">", raw.rindex(b"</interaction")) + 1]
        try:
            root = ET.fromstring(utf8(whole_page))
        except (ET.ParseError, ValueError, RecursionError):
            raise Broken("not_xml") from None
        results = root.findall("./results/result")
        if not results:
            raise Broken("missing_results")
        if len(results) > self.options.reader.most_results:
            raise Broken("too_many_results")
        words = text(root.findtext("query"), "query")
        page = {
            "page_id": f"{visit}-{identifier(root.get('num'), 'interaction')}",
            "visit_id": visit,
            "query_id": identifier(_stripped(root, "query_id"), "query_id"),
            "query_text": words.strip() if words else None,
            "timestamp": self._moment(root),
        }
        rows = [
            {
                "position": whole(result.get("rank"), "rank", 1, 32_767),
                "doc_id": identifier(_stripped(result, "docid"), "docid"),
                "title": text(_stripped(result, "title"), "title"),
                "serp_media_type": optional_identifier(_stripped(result, "vtype"), "vtype"),
            }
            for result in results
        ]
        clicks = [
            {
                "position": whole(_stripped(click, "rank"), "rank", 1, 32_767),
                "doc_id": optional_identifier(_stripped(click, "docid"), "docid"),
                "timestamp": self._moment(click),
            }
            for click in root.findall("./clicked/click")
        ]
        for row in rows:
            self.stage.add("impressions", **page, **row)
        for click in clicks:
            self.stage.add("clicks", page_id=page["page_id"], visit_id=visit, **click)

    def _moment(self, element: ET.Element) -> int | None:
        """The attribute `starttime` where it is a date or counts from 1970; times of the session are not read."""
        value = (element.get("starttime") or "").strip()
        return time(value, self.zone) if _DATE.fullmatch(value) else None

    def _label(self, raw: bytes) -> None:
        cells = utf8(raw).split()
        if len(cells) not in (5, 6):
            raise Broken("wrong_number_of_fields")
        self.stage.add(
            "labels",
            visit_id=identifier(cells[1], "session"),
            query_id=identifier(cells[2], "query_id"),
            doc_id=identifier(cells[3], "docid"),
            label=whole(cells[4], "label", 0, 4),
            group=identifier(cells[0], "sample"),
        )


def _stripped(element: ET.Element, name: str) -> str | None:
    value = element.findtext(name)
    return value.strip() if value else None
