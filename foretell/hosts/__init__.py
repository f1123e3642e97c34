"""Bundles as models of other servers: MLflow, Triton."""
