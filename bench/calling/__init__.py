"""What counts the calls of a server's processes."""
