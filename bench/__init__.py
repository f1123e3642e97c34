"""Measurements of foretell, each run by one command that also fills its tables in the documents."""
