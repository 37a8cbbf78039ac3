"""What on a result page causes clicks: a causal graph found in a log, and weights that take a cause out."""
