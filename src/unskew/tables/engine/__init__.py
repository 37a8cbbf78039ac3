"""One connection: DuckDB in the process, or Spark."""
