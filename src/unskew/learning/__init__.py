"""Debiased rankers: losses, networks, bias models, one training loop, one file per method."""
