"""What clicks of a log look like: rates by rank, the click matrix, trust, factors of the page, features."""
