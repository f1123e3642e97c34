"""Training of the architectures on a table."""
