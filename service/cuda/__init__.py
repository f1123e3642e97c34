"""Sessions on NVIDIA GPUs."""
