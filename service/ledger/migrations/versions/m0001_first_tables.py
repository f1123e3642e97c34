"""The first tables: forecasts, actual values, and sums of errors by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = (
    "series",
    "versions",
    "channels",
    "configurations",
    "actuals",
    "forecasts",
    "sums",
    "totals",
)


def upgrade() -> None:
    op.create_table(
        "series",
        sa.Column("id", _ID, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("frequency", sa.Text(), nullable=False),
        sa.Column("frozen", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("namespace", "name", "frequency"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "versions",
        sa.Column("id", _ID, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("channels", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("model", "version", "digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "channels",
        sa.Column("id", _ID, nullable=False),
        sa.Column("series", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["series"], ["series.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("series", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "configurations",
        sa.Column("id", _ID, nullable=False),
        sa.Column("version", _ID, nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("levels", sa.Text(), nullable=False),
        sa.Column("calibration", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["version"], ["versions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("version", "steps", "levels", "calibration"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "actuals",
        sa.Column("channel", _ID, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("written", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["channel"], ["channels.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("channel", "time"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "forecasts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("version", _ID, nullable=False),
        sa.Column("series", _ID, nullable=False),
        sa.Column("origin", sa.BigInteger(), nullable=False),
        sa.Column("configuration", _ID, nullable=False),
        sa.Column("ends", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("made", sa.BigInteger(), nullable=False),
        sa.Column("input", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["series"], ["series.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("series", "version", "origin"),
    )
    if op.get_bind().dialect.name == "postgresql":
        # Numbers hardly get smaller, and to try takes longer than to write them.
        op.execute("ALTER TABLE forecasts ALTER COLUMN body SET STORAGE EXTERNAL")
    op.create_index("forecasts_ends", "forecasts", ["series", "ends", "origin"], unique=False)
    op.create_index("forecasts_made", "forecasts", ["made"], unique=False)
    op.create_table(
        "sums",
        sa.Column("series", _ID, nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("configuration", _ID, nullable=False),
        sa.Column("written", sa.BigInteger(), nullable=False),
        sa.Column("sums", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["configuration"], ["configurations.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["series"], ["series.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("series", "day", "configuration"),
        sqlite_with_rowid=False,
    )
    op.create_index("sums_day", "sums", ["configuration", "day"], unique=False)
    op.create_index("sums_written", "sums", ["written"], unique=False)
    op.create_table(
        "totals",
        sa.Column("configuration", _ID, nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("sums", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["configuration"], ["configurations.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("configuration", "namespace", "day"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for name in reversed(_TABLES):
        op.drop_table(name)
