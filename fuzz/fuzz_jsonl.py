"""Fuzz `jsonl` files."""

from harness import run_text

run_text("jsonl")
