"""The demo: real data and models trained on it."""
