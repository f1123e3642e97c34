"""Migrations of the ledger's database, run by Alembic when a server opens it."""
