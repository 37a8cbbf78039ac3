"""Tables and figures of papers, tried again: what `python -m unskew_reproductions` runs."""

from unskew_reproductions.reproduce import Reproduction, recipes, reproduce

__all__ = ["Reproduction", "recipes", "reproduce"]
