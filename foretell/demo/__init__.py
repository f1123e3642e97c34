"""The demo: real data, and models of it."""
