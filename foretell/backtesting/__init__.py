"""Models on data of one's own."""
