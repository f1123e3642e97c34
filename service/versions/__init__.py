"""The parts of the repository: which versions there are, which are wanted, how they come and go."""
