"""Bundles in registries of containers (OCI)."""
