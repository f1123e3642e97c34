"""Forecasts of the end of a file, by a server or a bundle."""
