"""From files or tables to a run folder."""
