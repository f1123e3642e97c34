"""Sessions on NVIDIA GPUs: captures, replays, locks and lost devices."""
