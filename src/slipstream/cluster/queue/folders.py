"""Where the files of the queue are, beside its database."""

from __future__ import annotations

from pathlib import Path

# Begin of the tokens of jobs that run over machines; these tokens are names of runs.
RUN_PREFIX = "queue-"


def queue_folder(home: Path) -> Path:
    """Return the folder for the files of the queue."""
    return home / "queue"


def fifo_path(home: Path) -> Path:
    """Return the path of the FIFO through which the daemon is woken."""
    return queue_folder(home) / "wake"


def starts_folder(home: Path) -> Path:
    """Return the folder with a folder for each process that was started on this host."""
    return queue_folder(home) / "starts"


def runs_folder(home: Path) -> Path:
    """Return the folder with a folder for each start of a job that runs over machines."""
    return queue_folder(home) / "runs"


def start_folder(home: Path, token: str) -> Path:
    """Return the folder with the output and the reports of a start of a job."""
    return (runs_folder(home) if token.startswith(RUN_PREFIX) else starts_folder(home)) / token


def output_path(home: Path, token: str) -> Path:
    """Return the file with the output of a start of a job."""
    return start_folder(home, token) / "output"


def progress_path(home: Path, token: str) -> Path:
    """Return the file with the speeds that a start of a job has told."""
    return start_folder(home, token) / "progress"
