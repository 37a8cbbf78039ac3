"""Features of items and of clicks by id, for serving: in LMDB files or in Redis, replaced whole."""

from unskew.serving.store.store import Store, StoredRows, View, open_store

__all__ = ["Store", "StoredRows", "View", "open_store"]
