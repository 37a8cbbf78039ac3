"""Which biases a log has, whose assumptions hold, and what to do next."""
