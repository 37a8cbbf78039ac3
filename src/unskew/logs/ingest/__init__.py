"""From the files of a click log to impressions."""
