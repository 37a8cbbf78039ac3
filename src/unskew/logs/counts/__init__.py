"""The exact reduction: one row per distinct ranking, in memory, on an engine, in shards."""
