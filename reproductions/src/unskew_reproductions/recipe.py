"""Recipes: what a paper's table or figure says, and the comparisons that try it again.

A recipe is a TOML file in `recipes/`. Its `compare` is the content of a compare file without data; every
panel, data set and --quick may change parts of it:

    compare < _sources.toml's part for the data set < on.<data set> < panel < panel.on.<data set> < quick

Tables merge key by key, lists are replaced, and a table with another `name` is replaced as a whole. Three keys are
short forms: `each_method.<name or label>` and `each_behaviour.<label>` change one, `every_behaviour` all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from unskew.settings import Config, checked, known, read_toml

Toml = dict[str, Any]
"""A table of a TOML file."""
Values = Annotated[dict[str, list[float]], Field(default_factory=dict)]


class PaperNumber(NamedTuple):
    """A number that a paper prints."""

    value: float
    sd: float | None
    mark: str
    data: str
    """The data set that it is about."""


class Printed(Config):
    """Numbers that the paper prints for one data set, panel and behaviour."""

    data: str
    panel: str = ""
    behaviour: str
    metrics: list[str]
    values: Values
    """Numbers of each method, in the order of the metrics."""
    sd: Values
    """Their standard deviations, where printed."""
    marks: Annotated[dict[str, list[Literal["", "+", "++", "-", "--"]]], Field(default_factory=dict)]
    """Their marks of significance, where printed: + is better, whichever way the metric runs."""

    def value(self, method: str, metric: str) -> PaperNumber | None:
        """What is printed; None where nothing is."""
        if metric not in self.metrics or method not in self.values:
            return None
        at = self.metrics.index(metric)
        sd, mark = self.sd.get(method), self.marks.get(method)
        return PaperNumber(
            self.values[method][at], None if sd is None else sd[at], "" if mark is None else mark[at], self.data
        )


class Claim(Config):
    """An order of methods: `first` ranks better than (>), or about as well as (~), each of `second`."""

    first: str
    second: list[str] = Field(min_length=1)
    relation: Literal[">", "~"] = ">"
    by: Literal["paper", "expected"] = "paper"
    """Whether the paper claims or prints it, or we expect it."""
    behaviours: list[str] | None = None
    """Where it is made; none means under all."""
    panels: list[str] | None = None
    data: list[str] | None = None


class Panel(Config):
    """A part of a table with a comparison of its own, such as another ranker."""

    name: str = ""
    compare: Toml = Field(default_factory=dict)
    on: dict[str, Toml] = Field(default_factory=dict)


class Sweep(Config):
    """What a line figure has on its x axis: numbers in the labels of methods or behaviours."""

    x: Literal["method", "behaviour"]
    prefix: str
    """What stands before the number, such as "d = "."""
    title: str


class Inference(Config):
    """How the time of ranking is measured."""

    lists: int = Field(ge=1)
    repeats: int = Field(ge=2)
    dimension: int = Field(ge=1)
    sizes: list[int]
    """Hidden units of both rankers."""
    base: list[int]
    """Hidden units of the base model."""
    paper: dict[str, float]
    """Seconds that the paper prints."""


class SearchEngine(Config):
    """The simulated search engine of a recipe, besides what its comparison says."""

    days: float = Field(gt=0)
    """Of traffic."""
    tracked: float = Field(gt=0)
    """Days that are tracked; what comes after them is learned from."""
    skew: float = Field(ge=0)
    """Power of a query's popularity."""
    random_top: float = Field(ge=0, le=1)
    """Share of pages whose first result is drawn at random."""
    shuffled: float = Field(ge=0, le=1)
    """Share of pages in random order."""
    base: str
    """The arm that others are given as gains over."""
    sees: dict[str, Literal["features", "clicks", "both"]]
    """What arms see of a document; features unless it says otherwise."""
    buckets: dict[str, int]
    """Queries by the least number of searches in the tracked days, the most frequent first."""


class Recipe(Config):
    """A table or figure of a paper."""

    title: str
    """Heading of its report."""
    reference: str
    """The paper, and which of its tables or figures."""
    says: str
    """What the paper claims, in our words."""
    kind: Literal["table", "sweep", "inference", "embedding", "page", "search_engine"] = "table"
    """How it is tried and shown."""
    metrics: list[str]
    """What is measured, such as `ndcg@10`."""
    metric: str = "ndcg@10"
    """The one that figures show and that comes first."""
    notes: list[str] = Field(default_factory=list)
    """What a reader of the report should know."""
    compare: Toml = Field(default_factory=dict)
    """The content of a compare file, without data."""
    panels: list[Panel] = Field(default_factory=lambda: [Panel()])
    """Parts of the table, each with what is other in its comparison."""
    on: dict[str, Toml] = Field(default_factory=dict)
    """What is other in the comparison on one data set, by its name."""
    paper: list[Printed] = Field(default_factory=list)
    """Numbers that the paper prints."""
    claims: list[Claim] = Field(default_factory=list)
    """Orders of methods that are looked for."""
    sweep: Sweep | None = None
    """Of a line figure: what is on its x axis."""
    inference: Inference | None = None
    """Of a table of times: how ranking is timed."""
    search_engine: SearchEngine | None = None
    """Of a recipe with traffic: the search engine that makes it."""

    def printed(self, data: str, panel: str, behaviour: str, method: str, metric: str) -> PaperNumber | None:
        """The paper's number of this data set, else of the first that has one."""
        found = [part for part in self.paper if (part.panel, part.behaviour) == (panel, behaviour)]
        numbers = (part.value(method, metric) for part in sorted(found, key=lambda part: part.data != data))
        return next((number for number in numbers if number is not None), None)

    def lists_size(self) -> dict[str, int]:
        """Size of generated lists, where the recipe has one of its own."""
        return dict(self.on.get("generated", {}).get("data", {}).get("synthetic", {}))


def recipe_names() -> list[str]:
    """Every recipe there is."""
    names = (entry.name for entry in files("unskew_reproductions").joinpath("recipes").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml") and name[0] != "_")


def recipe_named(name: str) -> Recipe:
    """Read and check a recipe."""
    return checked(Recipe, _read(known("name", name, recipe_names())), name)


@lru_cache
def sources() -> Toml:
    """What recipes share, by data set, and what is quick."""
    return _read("_sources")


def _read(name: str) -> Toml:
    with as_file(files("unskew_reproductions").joinpath("recipes", f"{name}.toml")) as path:
        return read_toml(path)


def compare_content(recipe: Recipe, panel: Panel, source: str, data: Mapping[str, Any], *, quick: bool) -> Toml:
    """The content of the compare file for a panel on a data set."""
    content: Toml = {}
    for part in (
        recipe.compare,
        sources()[source]["compare"],
        recipe.on.get(source, {}),
        panel.compare,
        panel.on.get(source, {}),
        {"data": dict(data)},
    ):
        content = merged(content, part)
    if quick:
        content = _quick(content)
    each, every, some = (content.pop(key, {}) for key in ("each_method", "every_behaviour", "each_behaviour"))
    content["behaviours"] = [table | every | some.get(_label(table), {}) for table in content["behaviours"]]
    changes = [(each.get(table["name"], {}), each.get(_label(table), {})) for table in content["methods"]]
    content["methods"] = [t | a | b for t, (a, b) in zip(content["methods"], changes, strict=True)]
    if quick:
        content["methods"] = [_first_point(table) for table in content["methods"]]
    return content


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> Toml:
    """`new` over `old`, table by table; a table of another name is replaced.

    >>> merged({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    >>> merged({"r": {"name": "mlp", "sizes": [8]}}, {"r": {"name": "linear"}})
    {'r': {'name': 'linear'}}
    """
    result = dict(old)
    for key, value in new.items():
        before = result.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            renamed = value.get("name", before.get("name")) != before.get("name")
            result[key] = dict(value) if renamed else merged(before, value)
        else:
            result[key] = value
    return result


def _quick(content: Toml) -> Toml:
    """The same, small."""
    small = dict(sources()["quick"]["compare"])
    if content.get("ranker", {}).get("name") != "mlp":
        small.pop("ranker")
    content = merged(content, small)
    if "synthetic" in content["data"]:
        content["data"] = content["data"] | {"synthetic": sources()["quick"]["synthetic"]}
    return content


def _first_point(method: Toml) -> Toml:
    """The method without its grid: the first value of every setting."""
    grid = dict(method.get("grid", {}))
    rest = {key: value for key, value in method.items() if key != "grid"}
    return rest | {key: values[0] for key, values in grid.items() if key != "training"}


def _label(table: Mapping[str, Any]) -> str:
    return str(table.get("label", table["name"]))


def claims_for(recipe: Recipe, data: str, panel: str, behaviour: str) -> Iterator[tuple[Claim, str]]:
    """Every claim about these, with the one that the first is compared with."""
    for claim in recipe.claims:
        places = ((claim.data, data), (claim.panels, panel), (claim.behaviours, behaviour))
        if all(only is None or value in only for only, value in places):
            yield from ((claim, second) for second in claim.second)
