"""The server: it loads bundles, and forecasts over HTTP. It never imports torch."""
