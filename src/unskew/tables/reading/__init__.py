"""Files of text under guard, and what lies at a path."""
