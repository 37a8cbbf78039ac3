"""Fuzz the reader `tiangong`."""

from harness import run

run("tiangong")
