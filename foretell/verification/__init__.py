"""`foretell verify` on a device: checks of every GPU, and timings of batches."""
