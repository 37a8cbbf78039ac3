"""Fuzz the reader `ubi`."""

from harness import run

run("ubi")
