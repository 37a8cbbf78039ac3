"""What a log or a model says of itself: diagnosis, drift, causes, importance."""
