"""The tables of the ledger, for SQLite and PostgreSQL.

Times are microseconds since 1970: in UTC where a series has UTC offsets, else by its own clock.
Days are days since 1970 of such times. `made` and `written` are seconds since 1970 by the server's
clock.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()

# SQLite only numbers rows of this type by itself. `sqlite_autoincrement` never gives the id of a
# deleted row to another one: writers remember ids.
_ID = BigInteger().with_variant(Integer(), "sqlite")


def _of(name: str) -> ForeignKey:
    return ForeignKey(f"{name}.id", ondelete="CASCADE")


# A bundle of a version of a model: a version may be exported again. `channels` is a JSON list, and
# `digest` that of the manifest.
VERSIONS = Table(
    "versions",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("model", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("channels", Text, nullable=False),
    Column("digest", Text, nullable=False),
    UniqueConstraint("model", "version", "digest"),
    sqlite_autoincrement=True,
)
# How a version forecast: number of steps, JSON list of levels, and source of the quantiles.
CONFIGURATIONS = Table(
    "configurations",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("version", _ID, _of("versions"), nullable=False),
    Column("steps", Integer, nullable=False),
    Column("levels", Text, nullable=False),
    Column("calibration", Text, nullable=False),
    UniqueConstraint("version", "steps", "levels", "calibration"),
    sqlite_autoincrement=True,
)
# `frozen` is the last day whose sums stay as they are: some of its forecasts were deleted.
SERIES = Table(
    "series",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("frequency", Text, nullable=False),
    Column("frozen", Integer),
    UniqueConstraint("namespace", "name", "frequency"),
    sqlite_autoincrement=True,
)
# `origin` is the time of the last row of the history, and `ends` that of the last step. `answer` is
# the id of the forecast in its answer, and `input` a digest of its history. `body` has the arrays
# (bodies.py). Versions and configurations are never deleted, and PostgreSQL would look for both
# with every row.
FORECASTS = Table(
    "forecasts",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("version", _ID, nullable=False),
    Column("series", _ID, _of("series"), nullable=False),
    Column("origin", BigInteger, nullable=False),
    Column("configuration", _ID, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("answer", Text, nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("input", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("series", "version", "origin"),
    Index("forecasts_ends", "series", "ends", "origin"),
    Index("forecasts_made", "made"),
)
CHANNELS = Table(
    "channels",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("series", _ID, _of("series"), nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("series", "name"),
    sqlite_autoincrement=True,
)
ACTUALS = Table(
    "actuals",
    METADATA,
    Column("channel", _ID, _of("channels"), primary_key=True),
    Column("time", BigInteger, primary_key=True),
    Column("value", Double, nullable=False),
    Column("written", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# Sums of errors of the values of a day, float64 `[steps, channels, fields]` (scores.py).
SUMS = Table(
    "sums",
    METADATA,
    Column("series", _ID, _of("series"), primary_key=True),
    Column("day", Integer, primary_key=True),
    Column("configuration", _ID, _of("configurations"), primary_key=True),
    Column("written", BigInteger, nullable=False),
    Column("sums", LargeBinary, nullable=False),
    Index("sums_day", "configuration", "day"),
    Index("sums_written", "written"),
    sqlite_with_rowid=False,
)
# Sums over all series of a namespace; empty where they are outdated (totals.py).
TOTALS = Table(
    "totals",
    METADATA,
    Column("configuration", _ID, _of("configurations"), primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("day", Integer, primary_key=True),
    Column("sums", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
