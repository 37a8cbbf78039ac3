"""A run: asked for, checked, learned, judged and written as a folder."""
