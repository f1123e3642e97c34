"""The server: bundles in, forecasts over HTTP out. Never imports torch."""
