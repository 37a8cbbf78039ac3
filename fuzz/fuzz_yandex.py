"""Fuzz the reader `yandex`."""

from harness import run

run("yandex")
