"""The colours of pages and figures: each with its counterpart on dark paper.

Figures are drawn in the colours for white paper, so that an SVG looks right in any program. On dark paper a style
sheet puts the counterpart in the place of each colour (`dark_figures`). Text has a contrast of 4.5 to 1 with the
paper, and what a figure is read by has 3 to 1, as the Web Content Accessibility Guidelines ask at level AA.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Colour(NamedTuple):
    """A colour on white paper, and the one that stands for it on dark paper."""

    light: str
    dark: str


PAPER = Colour("#ffffff", "#14181d")
INK = Colour("#1f2933", "#e6eaef")
SOFT = Colour("#52606d", "#a9b4c0")
RULE = Colour("#e4e7eb", "#2d3640")
EDGE = Colour("#9aa5b1", "#66727f")
TINT = Colour("#e8f0fe", "#1c2c48")
CODE = Colour("#f5f7fa", "#1e242b")
LINK = Colour("#0b57d0", "#8ab4f8")
FAILED = Colour("#b42318", "#ff8a80")
TRUTH = Colour("#8792a0", "#65717e")
"""The thick line of what is true."""
MUTED = Colour("#616e7c", "#9aa5b1")
"""References, which do not learn from clicks."""
NAIVE = Colour("#c2410c", "#fb8a4c")
SERIES = (
    Colour("#1d4ed8", "#7ea6ff"),
    Colour("#047857", "#34d399"),
    Colour("#7c3aed", "#b794ff"),
    Colour("#4d7c0f", "#a3d34a"),
    Colour("#0e7490", "#22d3ee"),
    Colour("#be185d", "#f472b6"),
)
PAGE = {
    "paper": PAPER,
    "ink": INK,
    "soft": SOFT,
    "rule": RULE,
    "edge": EDGE,
    "tint": TINT,
    "code": CODE,
    "link": LINK,
    "failed": FAILED,
    "present": NAIVE,
    "absent": SERIES[1],
}
"""Those of the style sheet, by their names there."""
_STEPS = 10


def _between(first: str, last: str) -> Iterator[str]:
    ends = [[int(end[at : at + 2], 16) for at in (1, 3, 5)] for end in (first, last)]
    for step in range(_STEPS):
        share = step / (_STEPS - 1)
        yield "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(*ends, strict=True))


def _ramp(light: tuple[str, str], dark: tuple[str, str]) -> tuple[Colour, ...]:
    return tuple(map(Colour, _between(*light), _between(*dark)))


COOL = _ramp(("#4a8fdb", "#0b2559"), ("#4773b8", "#dbe9ff"))
"""Ordered values, the highest stand out most."""
WARM = _ramp(("#7c2d12", "#e0731d"), ("#ffd9b8", "#b8622a"))
"""Ordered values of another kind, the first stand out most."""
FIGURES = (PAPER, INK, SOFT, RULE, TRUTH, MUTED, NAIVE, *SERIES, *COOL, *WARM)
"""Every colour that a figure may have."""


def ordered(ramp: tuple[Colour, ...], count: int) -> list[str]:
    """So many colours of a ramp, from end to end.

    >>> len(ordered(COOL, 3)), ordered(COOL, 3)[-1] == COOL[-1].light
    (3, True)
    """
    last = max(count - 1, 1)
    return [ramp[round(place * (_STEPS - 1) / last) % _STEPS].light for place in range(count)]


def dark_figures(within: str = "") -> str:
    """A style sheet that puts a figure on dark paper.

    >>> dark_figures(".chart").splitlines()[0]
    '.chart [fill="#ffffff"]{fill:#14181d}.chart [stroke="#ffffff"]{stroke:#14181d}'
    """
    before = f"{within} " if within else ""
    kinds = ("fill", "stroke")
    return "\n".join(
        "".join(f'{before}[{kind}="{colour.light}"]{{{kind}:{colour.dark}}}' for kind in kinds)
        for colour in FIGURES
    )


def variables() -> str:
    """Custom properties of the page for white paper, and on screens that are set to it for dark paper."""
    light, dark = ("".join(f"--{name}:{colour[side]};" for name, colour in PAGE.items()) for side in (0, 1))
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}\n{dark_figures('.chart')}}}\n"
    )
