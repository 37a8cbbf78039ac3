"""Fuzz `csv` files."""

from harness import run_text

run_text("csv")
