"""Comparisons on a real log: clicks as they were, no labels, judged by pages that nobody learned from."""
