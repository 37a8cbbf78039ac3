"""Click tracking: a stream of impressions as sums per query and document, over the last day, week and month."""
