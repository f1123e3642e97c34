"""Runs models: the repository, queues and sessions, and the wire to the HTTP workers."""
