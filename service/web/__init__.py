"""Around the doors: sockets, connections, keys, and what happens to every request."""
