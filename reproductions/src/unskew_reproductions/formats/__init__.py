"""Readers of formats of click logs that the package has no name for."""
