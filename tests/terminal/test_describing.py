"""What there is to set, as the code says it: types in words, defaults, bounds, choices, units, sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal

import pytest
from pydantic import Field

from unskew.learning.methods import LEARNERS
from unskew.learning.rankers import RANKERS
from unskew.settings import Config
from unskew.simulation import BEHAVIOURS
from unskew.tables.lists.scaling import SCALINGS
from unskew.terminal.catalogue import Described, Setting, catalogue, described


class Inner(Config):
    """What is inside."""

    depth: int = 2
    """How deep."""


class Outer(Config):
    """A thing.

    More of it.
    """

    name: Literal["outer"] = "outer"
    rate: float = Field(0.5, gt=0, le=1)
    """Share of
    what there is."""
    mode: Literal["a", "b"] | None = None
    """Which."""
    sizes: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False, min_length=1)] = (3, 4)
    """Of the layers."""
    file: str
    """Where it lies."""
    several: str | tuple[str, ...] = "x"
    """One or more."""
    inner: Inner = Inner()
    limit: Annotated[int, Field(ge=2)] | None = None
    """Seconds of patience."""
    scaling: str = Field("none", json_schema_extra={"choices": ["none", "all"]})
    """How."""


class Other(Outer):
    """Another thing."""

    rate: float = Field(0.1, gt=0, le=1)


@pytest.fixture(scope="module")
def everything() -> Mapping[str, tuple[Described, ...]]:
    return catalogue().kinds


def setting(config: type[Config], name: str) -> Setting:
    return next(each for each in described(config).settings if each.name == name)


def all_settings(settings: Iterable[Setting]) -> Iterator[Setting]:
    for each in settings:
        yield each
        yield from all_settings(each.settings or ())


def test_a_class_tells_its_first_sentence_and_not_its_own_name_as_a_setting() -> None:
    told = described(Outer, "outer")
    assert (told.name, told.about, told.help) == ("outer", "A thing.", "A thing.\n\nMore of it.")
    assert [each.name for each in told.settings] == list(Outer.model_fields)[1:]


def test_settings_in_words() -> None:
    rate = setting(Outer, "rate")
    assert (rate.type, rate.default, rate.required) == ("number", 0.5, False)
    assert rate.bounds == ("> 0", "<= 1")
    assert rate.help == "Share of what there is."
    assert (setting(Outer, "mode").type, setting(Outer, "mode").choices) == ("choice", ("a", "b"))
    assert setting(Outer, "scaling").choices == ("none", "all")
    sizes = setting(Outer, "sizes")
    assert (sizes.type, sizes.default) == ("list of whole numbers", [3, 4])
    assert set(sizes.bounds) == {">= 1", "at least 1 long"}
    assert (setting(Outer, "file").required, setting(Outer, "file").default) == (True, None)
    assert setting(Outer, "several").type == "text or list of text"
    limit = setting(Outer, "limit")
    assert (limit.type, limit.bounds) == ("whole number", (">= 2",))


def test_a_table_tells_what_is_in_it_and_what_it_is() -> None:
    inner = setting(Outer, "inner")
    assert (inner.type, inner.help, inner.default) == ("table", "What is inside.", {"depth": 2})
    assert [each.name for each in inner.settings] == ["depth"]


def test_a_setting_that_is_only_given_another_default_keeps_its_sentence() -> None:
    assert setting(Other, "rate").help == "Share of what there is."
    assert setting(Other, "rate").default == 0.1


def test_the_catalogue_has_every_name_and_a_sentence_for_each_setting(
    everything: Mapping[str, tuple[Described, ...]],
) -> None:
    names = {kind: [each.name for each in told] for kind, told in everything.items()}
    assert names["methods"] == list(LEARNERS)
    assert names["rankers"] == list(RANKERS)
    assert names["behaviours"] == list(BEHAVIOURS)
    wordless = [
        f"{kind}: {each.name}.{one.name}"
        for kind, told in everything.items()
        for each in told
        for one in all_settings(each.settings)
        if not one.help or not each.about
    ]
    assert not wordless


def test_the_catalogue_is_json_and_agrees_with_the_classes(
    everything: Mapping[str, tuple[Described, ...]],
) -> None:
    assert json.loads(catalogue().to_json()) == catalogue().to_dict()
    assert list(catalogue().to_dict()) == list(everything)
    dla = next(each for each in everything["methods"] if each.name == "dla")
    weight = next(each for each in dla.settings if each.name == "max_weight")
    assert (weight.default, weight.bounds, weight.type) == (
        LEARNERS["dla"]().max_weight,
        (">= 1",),
        "number",
    )  # type: ignore[attr-defined]
    assert "Ai et al." in str(dla.reference)
    data = next(each for each in everything["run file"][0].settings if each.name == "data")
    scaling = next(each for each in data.settings if each.name == "scaling")
    assert scaling.choices == tuple(SCALINGS)


def test_every_default_is_taken_by_its_own_class(everything: Mapping[str, tuple[Described, ...]]) -> None:
    for kind, configs in (("methods", LEARNERS), ("rankers", RANKERS), ("behaviours", BEHAVIOURS)):
        for told in everything[kind]:
            given = {each.name: each.default for each in told.settings if not each.required}
            needed = {each.name: "x" for each in told.settings if each.required}
            made = configs[told.name].model_validate({**given, **needed})  # type: ignore[attr-defined]
            assert made == configs[told.name](**needed)
