"""Faults of the kinds that users of other projects reported, one file a kind.

The docstring of each file names the public report that it came from, by repository and number.
"""
