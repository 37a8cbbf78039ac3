"""The files, tables and lists that workflows are given."""
