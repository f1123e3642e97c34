"""Helpers of several packages' tests and bench/; bench/ imports nothing else of the tests."""
