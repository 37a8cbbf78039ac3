"""Scorers: what is saved, loaded, served and exported, and what looks into them."""
