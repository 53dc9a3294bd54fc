"""Opening a SQLite database that several processes use at the same time.

Every transaction begins as a writer (BEGIN IMMEDIATE), so that what it reads is still true when it
writes, and a busy database is waited for.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, create_engine, event
from sqlalchemy.exc import DatabaseError

from slipstream.cluster.records.lock import locked
from slipstream.errors import ConfigError

# Longest wait for another process's transaction; transactions here take milliseconds.
BUSY_SECONDS = 30.0


def open_database(path: Path, tables: MetaData) -> Engine:
    """Return a database, which is made when it is missing; only its owner may read it.

    Args:
        path: File of the database; its folder is made as well.
        tables: Tables of the database.

    Raises:
        ConfigError: the folder cannot be made, or the file is no database.
    """
    home = path.parent
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        raise ConfigError(
            f"{home} cannot be made: {error.strerror}; set SLIPSTREAM_HOME to a folder that can"
            " be written"
        ) from error
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    try:
        with locked(path.with_suffix(".lock")):  # tables cannot be made by two at the same time
            tables.create_all(engine)
    except DatabaseError as error:
        raise ConfigError(f"{path} cannot be used: {error.orig}; move it away") from error
    return engine


def _configure(connection: sqlite3.Connection, _: object) -> None:
    """Let readers and one writer work at the same time, and write through to the disk."""
    connection.isolation_level = None  # the driver begins no transactions; `_begin` does
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
