"""The log of Yandex' relevance prediction challenge (2011), tab separated.

    SessionID TimePassed Q QueryID RegionID URLID URLID ...    a page
    SessionID TimePassed C URLID                               a click
    QueryID RegionID URLID Label                               a judgment, in a file of its own

A click belongs to the latest page of its session that showed its document. TimePassed has no unit and starts anew
in every session, so it is kept as `time_offset` and is no timestamp. Judgments go to the side table `labels`.
"""

from unskew.logs.ingest.formats.records import LineReader
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.values import Broken, identifier, utf8, whole
from unskew.tables.reading.options import IngestOptions

LATEST = 2**62
MOST_SHOWN = 100_000
"""Different documents that one session may show; a longer session is no person's."""


class Yandex(LineReader):
    """Reads lines in the order of the log, and keeps the pages of a session until it ends."""

    def __init__(self, stage: Stage, options: IngestOptions) -> None:
        super().__init__(stage, options)
        self.visit = self.latest = ""
        self.shown: dict[str, str] = {}  # document -> the latest page of the visit that showed it

    def take(self, raw: bytes) -> None:
        """Read one line: a query with its results, or a click on one of them."""
        cells = utf8(raw).rstrip("\t").split("\t")
        if len(cells) >= 6 and cells[2] == "Q":
            self._page(cells)
        elif len(cells) == 4 and cells[2] == "C":
            self._click(cells)
        elif len(cells) == 4 and cells[2].isdecimal():
            query, region, doc = (identifier(cell, name) for cell, name in zip(cells, _JUDGED, strict=False))
            label = whole(cells[3].strip(), "label", 0, 4)
            self.stage.add("labels", query_id=f"{query}_{region}", doc_id=doc, label=label)
        else:
            raise Broken(
                "wrong_number_of_fields" if len(cells) < 3 or cells[2] in ("Q", "C") else "unknown_action"
            )

    def _page(self, cells: list[str]) -> None:
        visit, offset = identifier(cells[0], "session_id"), _offset(cells[1])
        query, region = identifier(cells[3], "query_id"), identifier(cells[4], "region")
        docs = [identifier(cell, "url") for cell in cells[5:]]
        if len(docs) > self.options.reader.most_results:
            raise Broken("too_many_results")
        if visit != self.visit:
            self.visit, self.latest, self.shown = visit, "", {}
        if len(self.shown) + len(docs) > MOST_SHOWN:
            raise Broken("visit_too_long")
        self.latest = f"{visit}-{self.stage.rows_read}"
        for position, doc in enumerate(docs, 1):
            self.shown[doc] = self.latest
            self.stage.add(
                "impressions",
                page_id=self.latest,
                visit_id=visit,
                query_id=f"{query}_{region}",
                doc_id=doc,
                position=position,
                time_offset=offset,
            )

    def _click(self, cells: list[str]) -> None:
        visit, offset, doc = identifier(cells[0], "session_id"), _offset(cells[1]), identifier(cells[3], "url")
        if visit != self.visit:  # no page yet: kept, so that it is counted as a click without an impression
            self.visit, self.latest, self.shown = visit, "", {}
        page = self.shown.get(doc) or self.latest or f"{visit}-0"
        self.stage.add("clicks", page_id=page, visit_id=visit, doc_id=doc, time_offset=offset)


_JUDGED = ("query_id", "region", "url")


def _offset(cell: str) -> int | None:
    return whole(cell, "time", 0, LATEST)
