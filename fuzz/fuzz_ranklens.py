"""Fuzz the reader `ranklens`."""

from harness import run

run("ranklens")
