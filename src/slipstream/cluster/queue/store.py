"""The database of the queue: a SQLite file that the daemon and the commands use at the same time.

Every transaction begins as a writer (BEGIN IMMEDIATE), so that what it reads is still true when it
writes. An attempt is one start of a job. A job has at most one attempt that has not ended, which
the database itself enforces.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from slipstream.cluster.outside import outside
from slipstream.cluster.records.database import open_database
from slipstream.errors import ConfigError

FILE_NAME = "queue.db"


class QueueBase(DeclarativeBase):
    """The base of all tables of this database."""


class JobRow(QueueBase):
    """One job; times are seconds since 1970."""

    __tablename__ = "jobs"

    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    user: Mapped[str] = mapped_column(index=True)
    team: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    priority: Mapped[int]
    command: Mapped[list[str]] = mapped_column(JSON)
    cwd: Mapped[str]
    environ: Mapped[dict[str, str]] = mapped_column(JSON)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    expected_seconds: Mapped[float | None]
    preemptible: Mapped[bool]
    grace_seconds: Mapped[float]
    submitted_at: Mapped[float]
    ended_at: Mapped[float | None]
    exit_code: Mapped[int | None]
    num_attempts: Mapped[int] = mapped_column(default=0)
    message: Mapped[str] = mapped_column(default="")
    spec: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), default=None)
    wanted_hosts: Mapped[int | None] = mapped_column(default=None)
    scaling: Mapped[str] = mapped_column(default="")


class AttemptRow(QueueBase):
    """One start of a job, from the decision on; it holds its allocation until `ended_at`."""

    __tablename__ = "attempts"
    __table_args__ = (
        Index("one_attempt", "job", unique=True, sqlite_where=text("ended_at IS NULL")),
    )

    token: Mapped[str] = mapped_column(primary_key=True)
    job: Mapped[int] = mapped_column(ForeignKey("jobs.number"), index=True)
    allocation: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    gpu_units: Mapped[float]
    decided_at: Mapped[float]
    started_at: Mapped[float | None]
    preempted_at: Mapped[float | None]
    ended_at: Mapped[float | None] = mapped_column(index=True)
    exit_code: Mapped[int | None]


class MachineRow(QueueBase):
    """One machine."""

    __tablename__ = "machines"

    name: Mapped[str] = mapped_column(primary_key=True)
    gpus: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    cpus: Mapped[int]
    memory_mib: Mapped[int]
    accelerators: Mapped[dict[str, int]] = mapped_column(JSON)
    is_open: Mapped[bool]
    login: Mapped[str]
    ssh_options: Mapped[list[str]] = mapped_column(JSON)
    group: Mapped[str]
    resting_until: Mapped[float]


class QuotaRow(QueueBase):
    """The limits and the weight of a user or team."""

    __tablename__ = "quotas"

    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    max_gpus: Mapped[float | None]
    max_jobs: Mapped[int | None]
    weight: Mapped[float]


class UsageRow(QueueBase):
    """The GPU seconds of a user's attempts that have ended, as they counted at a time."""

    __tablename__ = "usage"

    user: Mapped[str] = mapped_column(primary_key=True)
    gpu_seconds: Mapped[float]
    at: Mapped[float]


class ScaledGroupRow(QueueBase):
    """The group of machines that the daemon scales, as JSON; no row if it scales none."""

    __tablename__ = "scaling"

    number: Mapped[int] = mapped_column(primary_key=True)
    settings: Mapped[dict[str, Any]] = mapped_column(JSON)


class QueueEventRow(QueueBase):
    """One event of a job."""

    __tablename__ = "events"

    number: Mapped[int] = mapped_column(primary_key=True)
    job: Mapped[int] = mapped_column(index=True)
    time: Mapped[float]
    kind: Mapped[str]
    text: Mapped[str]


class QueueStore:
    """The database in one folder; it is made when it is missing.

    Args:
        home: Folder of the database; it is made with access for its owner only.

    Raises:
        ConfigError: the folder cannot be made, or the file is no database.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._engine = open_database(home / FILE_NAME, QueueBase.metadata)
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)

    @contextmanager
    def transaction(self, name: str = "") -> Generator[Session]:
        """Yield a session whose changes are written together at the end of the block, or not.

        Args:
            name: Name of the change, such as "decide" (default "": the block only reads).

        Raises:
            ConfigError: the disk is full, or another process has the database locked.
        """
        mark = outside(f"queue: {name}") if name else nullcontext()
        try:
            with mark, self._sessions.begin() as session:
                yield session
        except OperationalError as error:
            raise ConfigError(
                f"{self.home / FILE_NAME} cannot be used: {error.orig}; make room on its disk, or"
                " end the process that has it locked"
            ) from error

    def close(self) -> None:
        """Close all connections to the database."""
        self._engine.dispose()
