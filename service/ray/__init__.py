"""A server on a Ray cluster: its doors and engines are deployments of Ray Serve."""
