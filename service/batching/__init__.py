"""The parts of the batcher: what waits, how much of it may, and whose turn it is."""
