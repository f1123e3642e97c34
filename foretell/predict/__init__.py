"""Forecasts of the series of a file, by a server or a bundle."""
