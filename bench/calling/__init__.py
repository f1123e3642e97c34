"""Counts the calls of a server's processes."""
