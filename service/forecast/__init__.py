"""`POST /forecast`: KServe's time-series forecasts, as JSON or as tables in Arrow's format."""
