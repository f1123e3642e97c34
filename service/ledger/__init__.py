"""Remembers forecasts and what came true, and scores them."""
