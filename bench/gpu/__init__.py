"""The first hour on a GPU: what is checked there, and what is measured."""
