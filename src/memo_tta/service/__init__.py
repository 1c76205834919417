"""The HTTP service: a pool of replicas that adapt to one request at a time, and a page that shows it."""
