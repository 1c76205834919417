"""The HTTP service: a pool of model replicas, each adapting to one request at a time, and a web page."""
