"""Backtests of models on a table: `foretell backtest`."""
