"""Lists of documents with features: files, tables, scaling, cache."""
