"""Forecasting transformers in PyTorch, the data they learn from and their training."""
