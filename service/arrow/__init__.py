"""Series in Arrow's streaming format; needs the extra `arrow`, and is imported on first use."""
