"""What is asked: bodies of requests, and their documents as a model takes them."""
