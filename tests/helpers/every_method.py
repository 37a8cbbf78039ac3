"""Every method there is: those of the package by name, and those that lie with the reproductions."""

from unskew.learning.methods import METHODS as NAMED
from unskew.learning.methods import MethodConfig, found_as
from unskew_reproductions.methods import METHODS as BESIDE

METHODS: dict[str, type[MethodConfig]] = {**NAMED, **BESIDE}
CALLED = {name: found_as(config()) for name, config in METHODS.items()}
"""What `method=` and run files call each of them: its name, or `module:Class`."""
