"""Tables and figures of papers, tried again."""
