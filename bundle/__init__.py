"""The contract between export and serving: the contents and layout of a bundle.

Imports numpy and pydantic only, so that both the torch side and the serving side can share it.
"""
