"""A page as HTML that opens offline: one file, light and dark, from a phone's width to paper.

How it is laid out is told by `page.html.j2`. All that it needs is inside: the style sheet (`page.css`), figures as
SVG, and a script (`page.js`) that tells what names and marks stand for beside the pointer. Without it nothing is
missing: names lead to their line below.
"""

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from unskew import __version__
from unskew.pages.colours import NAIVE, PAPER, SERIES, variables
from unskew.pages.page import Page, Section

NARROW = 340
"""Width of a figure on a phone."""
WIDE = 540
"""Width of a figure elsewhere."""
_ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>"
    f"<rect width='16' height='16' rx='3' fill='{SERIES[0].light}'/><g fill='{PAPER.light}'>"
    "<rect x='3' y='3' width='3' height='10'/><rect x='7' y='6' width='3' height='7'/>"
    f"<rect x='11' y='9' width='3' height='4' fill='{NAIVE.dark}'/></g></svg>"
)


def html(page: Page) -> str:
    """The whole page, with all that it needs inside."""
    names = [f"s{index}" for index in range(1, len(page.sections) + 1)]
    return _template().render(
        page=page,
        sections=[
            (name, each, list(_figures(name, each))) for name, each in zip(names, page.sections, strict=True)
        ],
        terms={term.name: term for term in page.terms},
        icon=f"data:image/svg+xml;base64,{b64encode(_ICON.encode()).decode()}",
        style=Markup(variables() + _file("page.css")),
        script=Markup(_file("page.js")),
        version=__version__,
    )


@cache
def _template() -> Template:
    made = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    made.globals["place"] = _place
    return made.from_string(_file("page.html.j2"))


@cache
def _file(name: str) -> str:
    return files("unskew.pages").joinpath(name).read_text(encoding="utf-8")


def _place(name: str) -> str:
    return "m-" + "".join(letter if letter.isalnum() else f"-{ord(letter)}-" for letter in name)


def _figures(name: str, section: Section) -> Iterator[dict[str, Any]]:
    """Each figure in the widths that it is shown in, of which a style sheet chooses one."""
    from unskew.pages.svg import inline_svg

    for index, figure in enumerate(section.figures):
        spec = figure.spec
        widths = {"wide": WIDE, "narrow": NARROW} if figure.scales else {"wide": None}
        drawn = [inline_svg(spec, kind, f"{name}f{index}{kind[0]}", width) for kind, width in widths.items()]
        title = spec.get("title", "")
        yield {
            "drawn": Markup("").join(map(Markup, drawn)),
            "caption": "" if title == section.heading else title,
            # what the script makes buttons of
            "series": json.dumps(list(figure.series)) if len(figure.series) > 1 else "",
        }
