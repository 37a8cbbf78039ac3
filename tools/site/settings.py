"""Pages of settings: methods, rankers, behaviours and every file of TOML that a user writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from markdown_parts import code, prose
from markdown_parts import settings as settings_table

from unskew.terminal.catalogue import Described, Setting, catalogue, described
from unskew_reproductions.recipe import Recipe, recipe_names

HEAD = ("key", "what it may be", "default", "")


def catalogue_pages() -> dict[str, str]:
    """Place and text of the pages of settings."""
    all_of = catalogue().kinds
    training = all_of["training"][0]
    return {
        "methods.md": _named_page(
            "Methods",
            "`method=` of `unskew.learn` and `[method]` of a run file: a name, and settings. "
            "What each assumes: [methods](../explanation/methods.md). How to choose: "
            "[which method when](../explanation/which_method.md).",
            all_of["methods"],
        ),
        "rankers.md": _named_page(
            "Rankers",
            "`ranker=` of `unskew.learn` and `[ranker]` of a run file: what scores documents.",
            all_of["rankers"],
        ),
        "behaviours.md": _behaviours_page(all_of),
        "run_file.md": _run_file_page(all_of["run file"][0], training),
        "compare_file.md": _file_page(
            "Compare file",
            "`unskew compare COMPARE.toml`, see [comparing](../how_to/compare.md).",
            all_of["compare file"][0],
        ),
        "recipes.md": _file_page(
            "Recipes",
            "What `python -m unskew_reproductions` runs, see [reproducing](../how_to/reproduce.md). There are "
            f"{', '.join(f'`{name}`' for name in recipe_names())}.",
            described(Recipe, "recipe"),
        ),
        "ingest_mapping.md": _file_page(
            "Ingest mapping",
            "`unskew ingest --mapping FILE.toml` and `mapping=` of `unskew.ingest`, see "
            "[ingest](../how_to/ingest.md); the flags of the command stand in for single keys.",
            all_of["mapping file"][0],
        ),
    }


def _named_page(title: str, about: str, things: Iterable[Described]) -> str:
    return "\n".join([f"# {title}", "", about, "", *(line for thing in things for line in _named(thing))])


def _named(thing: Described) -> list[str]:
    """The section of a method, ranker or behaviour."""
    paper = [f"Paper: {thing.reference}", ""] if thing.reference else []
    own = ["No settings.", ""] if not thing.settings else setting_table(thing.settings)
    return [f"## {thing.name}", "", *prose(thing.help), *paper, f"In Python `{thing.python}`.", "", *own]


def _behaviours_page(all_of: Mapping[str, Sequence[Described]]) -> str:
    parts = [
        (
            "Behaviours",
            "`--behaviour` of `unskew simulate`, `[behaviour]` of its config, `[[behaviours]]` of a compare file.",
        ),
        ("Loggers", "What ranked the pages: `--logger`, `[logger]`."),
        ("Simulation", "What a simulated log depends on: `unskew simulate` and `unskew traffic`."),
    ]
    lines = ["# Behaviours, loggers, simulations", ""]
    for title, about in parts:
        lines += [f"## {title}", "", about, ""]
        for thing in all_of[title.lower()]:
            lines += ["#" + line if line.startswith("## ") else line for line in _named(thing)]
    return "\n".join(lines)


def _file_page(title: str, about: str, file: Described) -> str:
    return "\n".join([f"# {title}", "", about, "", *prose(file.help), *setting_table(file.settings)])


def _run_file_page(file: Described, training: Described) -> str:
    return "\n".join(
        [
            "# Run file",
            "",
            "What `unskew learn RUN.toml` reads. In Python `unskew.learn` takes the same: the data as arguments, "
            "`method=` and `ranker=` as names or configs, the keys of `[training]` as arguments or as "
            "`training=unskew.Training(...)`. Keys of `[method]` are on the page of [methods](methods.md), those "
            "of `[ranker]` on that of [rankers](rankers.md).",
            "",
            *setting_table(file.settings),
            "## training",
            "",
            *prose(training.help),
            *setting_table(training.settings, "training."),
        ]
    )


def setting_table(settings: Iterable[Setting], before: str = "") -> list[str]:
    """The table of settings, those of inner tables by their whole key."""
    return settings_table(HEAD, (_row(key, setting) for key, setting in flattened(settings, before)))


def flattened(settings: Iterable[Setting], before: str = "") -> Iterator[tuple[str, Setting]]:
    """Every setting under its whole key, and after a table what is in it."""
    for setting in settings:
        yield before + setting.name, setting
        yield from flattened(setting.settings or (), f"{before}{setting.name}.")


def _row(key: str, setting: Setting) -> tuple[str, str, str, str]:
    choices = " ".join(code(choice) for choice in setting.choices)
    kind = ", ".join([choices or setting.type, *setting.bounds])
    default = "needed" if setting.required else code(setting.default) or "none"
    if setting.settings is not None and not setting.required:
        default = "" if setting.default else "none"
    return f"`{key}`", kind, default, setting.help
