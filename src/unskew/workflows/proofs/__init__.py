"""Whether a ranking is better than what was shown, from files to a verdict."""
