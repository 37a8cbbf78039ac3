"""One user behaviour per file."""
