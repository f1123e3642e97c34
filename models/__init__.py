"""Forecasting models in PyTorch."""
