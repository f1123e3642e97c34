"""What `foretell verify` does on a device: every GPU is checked, and batches are timed."""
