"""Features of items and of clicks by id, for serving: in LMDB files or in Redis, replaced whole."""

from unskew.serving.store.layout import StoredItems, StoredPairs
from unskew.serving.store.store import Store, Version, View, open_store

__all__ = ["Store", "StoredItems", "StoredPairs", "Version", "View", "open_store"]
