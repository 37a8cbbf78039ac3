"""A run folder opened to be served, without torch: the score of every method, reasons, and reloads."""
