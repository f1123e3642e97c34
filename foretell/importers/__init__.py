"""Import of checkpoints from other code bases."""
