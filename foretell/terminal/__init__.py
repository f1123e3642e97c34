"""Output of commands on the terminal."""
