"""The service over HTTP: answers, pages that are shown and logged, who may ask, queues and processes."""
