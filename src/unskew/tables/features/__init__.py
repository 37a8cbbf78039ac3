"""Features by item, query and pair: found, encoded, and saved as they were fitted."""
