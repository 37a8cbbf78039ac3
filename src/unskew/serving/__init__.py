"""Serving: rankings over HTTP, features that stay fresh, exploration, exports."""
