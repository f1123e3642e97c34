"""Measures the tests: the share of small faults in the product that they find."""
