"""The contract between export and serving: what a bundle holds and how it is laid out.

Imports numpy and pydantic only, so that both the torch side and the serving side can share it.
"""
