"""The HTTP server: sockets, connections, keys, and the handling of every request."""
