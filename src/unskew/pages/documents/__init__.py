"""What verbs found, each as a page."""
