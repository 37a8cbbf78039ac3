"""What is asked and answered: bodies of requests, and their documents as a model takes them."""
