"""Forecasts of whole tables, with no server: `foretell batch`."""
