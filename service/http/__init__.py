"""A process that speaks HTTP: sockets, connections, keys, and what happens to every request."""
