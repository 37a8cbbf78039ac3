"""unskew: unbiased learning to rank, from biased click logs to rankings one can trust."""

__version__ = "0.1.0"
