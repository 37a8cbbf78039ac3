"""Online tests: interleaving, sequential tests, comparisons."""
