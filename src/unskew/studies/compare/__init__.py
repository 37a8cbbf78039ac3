"""Comparisons: methods and packages on the same clicks, and what to make of it."""
