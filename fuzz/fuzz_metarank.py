"""Fuzz the reader `metarank`."""

from harness import run

run("metarank")
