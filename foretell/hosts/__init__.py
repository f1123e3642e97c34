"""Bundles as models for other servers: MLflow and Triton."""
