"""The variables by which the queue tells a job what it may use, and by which progress is told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.settings.variables import variables


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePart:
    """The part of a machine that a job of the queue may use.

    Args:
        job: Number of the job.
        token: Name of this start of the job.
        hosts: Names of its hosts.
        gpus: Numbers of the GPUs of this host that it may use.
        gpu_memory_mib: Memory of each GPU in MiB that it may use, or None for whole GPUs.
        progress_file: File for its reports of progress.
    """

    job: int
    token: str
    hosts: tuple[str, ...]
    gpus: tuple[int, ...]
    gpu_memory_mib: int | None
    progress_file: Path

    def as_environment(self) -> dict[str, str]:
        """Return the variables for the processes of the job."""
        values = {
            "queue_job": str(self.job),
            "queue_token": self.token,
            "queue_hosts": ",".join(self.hosts),
            "progress_file": str(self.progress_file),
        }
        if self.gpu_memory_mib is not None:
            values["gpu_memory"] = str(self.gpu_memory_mib)
        named = {variables()[field].name: text for field, text in values.items()}
        return named | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))}


def queue_job_environment(job: int, hosts: Sequence[str]) -> dict[str, str]:
    """Return the variables that tell the ranks of a run to which job of the queue they belong.

    Args:
        job: Number of the job.
        hosts: Names of its hosts.
    """
    names = variables()
    return {names["queue_job"].name: str(job), names["queue_hosts"].name: ",".join(hosts)}


def progress_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file for reports of progress; None outside the queue and the runs of engines.

    Args:
        environ: Environment variables (default: this process's environment).
    """
    text = environ.get(variables()["progress_file"].name)
    return Path(text) if text else None


def progress_environment(path: Path) -> dict[str, str]:
    """Return the variable that names a file for reports of progress.

    Args:
        path: File on the host of rank 0.
    """
    return {variables()["progress_file"].name: str(path)}


def queue_token_variable() -> str:
    """Return the name of the variable by which the processes of a start are found."""
    return variables()["queue_token"].name


def forget_queue_token() -> None:
    """Remove that variable, so that what this process starts does not belong to the start."""
    os.environ.pop(queue_token_variable(), None)
