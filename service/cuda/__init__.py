"""Sessions on NVIDIA GPUs: captures and replays, what may happen at a time, and what is lost."""
