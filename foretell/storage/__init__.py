"""Bundles and tables in object storage; needs the extra `storage`."""
