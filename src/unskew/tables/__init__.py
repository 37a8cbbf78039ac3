"""Tables of any kind as Arrow, on an engine, and as lists of documents with features."""
