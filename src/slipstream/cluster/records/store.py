"""The database of runs, resources and events: a SQLite file that several processes may use."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from slipstream.cluster.records.database import open_database

FILE_NAME = "cluster.db"


class Base(DeclarativeBase):
    """The base of all tables of this database."""


class RunRow(Base):
    """One run; times are seconds since 1970."""

    __tablename__ = "runs"

    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    engine: Mapped[str]
    state: Mapped[str]
    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[float]
    deadline_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    exit_code: Mapped[int | None]
    message: Mapped[str]


class EventRow(Base):
    """One event of a run."""

    __tablename__ = "events"

    number: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[int] = mapped_column(ForeignKey("runs.number"), index=True)
    time: Mapped[float]
    kind: Mapped[str]
    text: Mapped[str]
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)


class ResourceRow(Base):
    """One resource that a provider was asked to create."""

    __tablename__ = "resources"

    token: Mapped[str] = mapped_column(primary_key=True)
    cluster: Mapped[str] = mapped_column(index=True)
    provider: Mapped[str]
    region: Mapped[str]
    kind: Mapped[str]
    name: Mapped[str]
    external_id: Mapped[str]
    state: Mapped[str]
    price_per_hour: Mapped[float]
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    intended_at: Mapped[float]
    created_at: Mapped[float | None]
    released_at: Mapped[float | None]


class Store:
    """The database in one folder, made when it is missing; threads and processes may share it.

    Args:
        home: Folder of the database; it is made with access for its owner only.

    Raises:
        ConfigError: the folder cannot be made, or the file is no database.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._engine = open_database(home / FILE_NAME, Base.metadata)
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)

    @contextmanager
    def transaction(self) -> Generator[Session]:
        """Yield a session whose changes are written together at the end of the block."""
        with self._sessions.begin() as session:
            yield session

    def close(self) -> None:
        """Close all connections to the database."""
        self._engine.dispose()
