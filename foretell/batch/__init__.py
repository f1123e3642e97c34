"""Forecasts of whole tables without a server: `foretell batch`."""
