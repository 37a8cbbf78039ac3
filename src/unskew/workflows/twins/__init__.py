"""Simulated logs, and a log like one of yours."""
