"""Training of the architectures on a panel."""
