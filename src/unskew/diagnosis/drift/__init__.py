"""Two logs of one search compared."""
