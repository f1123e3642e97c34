"""Measurements of foretell, each run by one command that writes its page in docs/."""
