"""What a log shows of examination: cells, swaps and shuffled slots added up once, and the curves that follow."""
