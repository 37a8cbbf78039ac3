"""Baidu-ULTR: part files of result pages, and files of expert annotations; both tab separated.

    Qid Query Reformulation                            3 columns: a page begins
    Pos Url_md5 Title Abstract Type Click ...          up to 32 columns: a result of that page
    Qid Query Title Abstract Label Bucket              6 columns (5 without Qid): an annotation

Words are numbers joined by the byte 01; they become numbers joined by blanks. A Qid does not tell queries apart
(8 % of the annotated queries share theirs), so queries are grouped by their text, which is their query_id here.
What is measured after a click or because of it is kept under `after_`, never under `serp_`: as a bias feature it
would give the click away. Annotations go to the side table `labels`.
"""

from unskew.logs.ingest.formats.records import LineReader
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.values import Broken, cell_number, identifier, text, utf8, whole
from unskew.tables.reading.options import IngestOptions

NUMBERS = {
    8: "after_skip",
    9: "serp_height",
    10: "display_time",
    11: "serp_display_time_middle",
    12: "after_first_click",
    13: "serp_display_count",
    14: "serp_max_show_height",
    15: "after_slipoff_count",
    16: "dwell_time",
    17: "serp_display_time_top",
    18: "serp_to_top",
    19: "serp_display_count_top",
    20: "serp_display_count_bottom",
    21: "serp_slipoff_count",
    23: "after_final_click",
    24: "serp_display_time_bottom",
    25: "after_click_count",
    26: "serp_display_count_again",
    28: "after_last_click",
    29: "serp_display_count_reverse",
    30: "serp_display_count_middle",
}
"""Columns with a number, by their place from 0; places 6, 7, 22, 27 and 31 are not documented by the publisher."""
FEWEST, MOST = 7, 64
"""Fewest and most columns that the line of a result may have."""
WIDEST = 9
"""Columns of an annotation, with empty ones behind it."""


class Baidu(LineReader):
    """Reads lines in the order of the log, and keeps the page that they are in until it is whole."""

    def __init__(self, stage: Stage, options: IngestOptions) -> None:
        super().__init__(stage, options)
        self.page, self.query = "", ""
        self.results = 0

    def take(self, raw: bytes) -> None:
        """Read one line: a query begins a page, any other is a result of it."""
        line = utf8(raw)
        cells, filled = line.split("\t"), line.rstrip("\t").count("\t") + 1
        if len(cells) >= 3 and filled <= 3:
            self._page(cells)
        elif FEWEST <= len(cells) <= MOST and (filled >= FEWEST or len(cells) > WIDEST):
            self._result(cells)
        elif filled in (5, 6):
            self._annotation(cells[:filled])
        else:
            raise Broken("wrong_number_of_fields")

    def broken(self, raw: bytes) -> None:
        """A line was rejected; if it may have been a query line, the results that follow belong to no page."""
        if raw.count(b"\t") < FEWEST - 1:
            self.page = ""

    def _page(self, cells: list[str]) -> None:
        qid, self.query = identifier(cells[0], "qid"), identifier(_words(cells[1]), "query")
        self.page, self.results = f"{qid}-{self.stage.rows_read}", 0
        self.stage.ignored["query_line"] += 1

    def _result(self, cells: list[str]) -> None:
        if not self.page:
            raise Broken("no_query_line")
        if self.results >= self.options.reader.most_results:
            raise Broken("too_many_results")
        row: dict[str, str | float | None] = {
            "page_id": self.page,
            "query_id": self.query,
            "query_text": self.query,
            "doc_id": identifier(cells[1], "url"),
            "title": text(_words(cells[2]), "title"),
            "abstract": text(_words(cells[3]), "abstract"),
            "serp_media_type": identifier(cells[4], "media_type") if cells[4] not in ("", "-") else None,
        }
        position = whole(cells[0], "position", 1, 32_767)
        click = whole(cells[5], "click", 0, 1)
        for place, name in NUMBERS.items():
            if place < len(cells):
                try:
                    row[name] = cell_number(cells[place])
                except Broken:
                    raise Broken(f"bad_{name}") from None
        self.results += 1
        self.stage.add("impressions", **row, position=position, click=click)

    def _annotation(self, cells: list[str]) -> None:
        group = identifier(cells[0], "qid") if len(cells) == 6 else None
        query, title, abstract = (_words(cell) for cell in cells[-5:-2])
        self.stage.add(
            "labels",
            query_id=identifier(query, "query"),
            query_text=query,
            title=text(title, "title"),
            abstract=text(abstract, "abstract"),
            label=whole(cells[-2], "label", 0, 4),
            bucket=whole(cells[-1].strip(), "bucket", 0, 9, needed=False),
            group=group,
        )


def _words(cell: str) -> str:
    return cell.replace("\x01", " ")
