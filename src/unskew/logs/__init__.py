"""From raw events or labelled lists to batches."""
