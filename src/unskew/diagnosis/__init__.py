"""Which biases does this log have, and what causes them?"""
