"""Fuzz the reader `baidu`."""

from harness import run

run("baidu")
