"""A bundle as one HTML page."""
