"""The service over HTTP: paths, connections, who may ask, queues, processes, and what it tells of itself."""
