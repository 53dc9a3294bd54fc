"""The program of the user that prints the hosts of an elastic job, and is run again and again."""

import errno
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from slipstream.cluster.launch.hosts import Host, parse_hosts
from slipstream.cluster.launch.link import describe_status
from slipstream.cluster.launch.processes import exit_status, signal_group, start_rank
from slipstream.errors import SlipstreamError, UsageError

LIMIT_SECONDS = 10.0  # longest time of a run. Chosen by hand.
LOOK_SECONDS = 0.1  # time between two looks at the size of what a run has printed
MAX_BYTES = 1 << 20
# Errors that do not go away: no first line with an interpreter, no such interpreter, no rights.
_NO_PROGRAM = (errno.ENOEXEC, errno.ENOENT, errno.EACCES)


class HostScript:
    """A program that prints hosts, one `[user@]name[:slots]` per line.

    A run fails if it ends with an error, takes longer than ten seconds, prints a line that is no
    host, prints more than 1 MiB, or prints no host at all. An empty list counts as a failure, so
    that a program which cannot reach its source does not end the training.

    Args:
        path: Path of the program.
        environ: Environment of the program.
        default_slots: Number of slots of a host without a number.
        pause_seconds: Time in seconds from the end of a run to the next run (default 1).

    Attributes:
        hosts: Hosts of the last run that did not fail; empty before it.
        problem: Reason why the last run failed, or "".
        num_runs: Number of runs that have ended.
    """

    def __init__(
        self, path: Path, environ: Mapping[str, str], default_slots: int, pause_seconds: float = 1.0
    ) -> None:
        if not path.is_file() or not os.access(path, os.X_OK):
            raise UsageError(
                f"--hosts-from is {str(path)!r}, which is no program that may be executed; allowed:"
                " a file with the right x (chmod +x) that prints lines such as a:2, without"
                " arguments"
            )
        self.path = path.absolute()
        self.hosts: tuple[Host, ...] = ()
        self.problem = ""
        self.num_runs = 0
        self._environ = environ
        self._default_slots = default_slots
        self._pause_seconds = pause_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._files: tuple[BinaryIO, BinaryIO] | None = None
        self._due_at = time.monotonic()

    @property
    def name(self) -> str:
        """Name of the program's file."""
        return self.path.name

    @property
    def has_answered(self) -> bool:
        """Whether a run has ended."""
        return self.num_runs > 0

    @property
    def due_at(self) -> float:
        """Time at which `advance` must be called at the latest."""
        if self._process is None:
            return self._due_at
        return min(self._due_at, time.monotonic() + LOOK_SECONDS)

    def advance(self) -> bool:
        """Start the program if it is due, or read what it has printed; never block.

        Returns:
            Whether a run has ended, so that `hosts` and `problem` are new.

        Raises:
            UsageError: the first start shows that the file is no program.
        """
        now = time.monotonic()
        if self._process is None:
            return now >= self._due_at and self._start(now)
        status = exit_status(self._process.pid)
        if status is None and now < self._due_at and not self._has_too_much():
            return False
        self._end_run(now, status)
        self.num_runs += 1
        return True

    def close(self) -> None:
        """Kill the program if it runs."""
        if self._process is not None:
            signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        for file in self._files or ():
            file.close()
        self._files = None

    def _has_too_much(self) -> bool:
        return any(os.fstat(file.fileno()).st_size > MAX_BYTES for file in self._files or ())

    def _start(self, now: float) -> bool:
        try:
            self._files = (tempfile.TemporaryFile(), tempfile.TemporaryFile())  # noqa: SIM115  close() does
            outputs = tuple(file.fileno() for file in self._files)
            self._process = start_rank((str(self.path),), str(Path.cwd()), self._environ, outputs)
        except OSError as error:
            self.close()
            if self.num_runs == 0 and error.errno in _NO_PROGRAM:
                raise UsageError(
                    f"--hosts-from is {str(self.path)!r}, which cannot be executed:"
                    f" {error.strerror}; allowed: a program, or a script whose first line names an"
                    " interpreter of this machine, such as #!/bin/sh"
                ) from error
            self.problem = f"it cannot be executed: {error.strerror}"
            self._due_at = now + self._pause_seconds
            self.num_runs += 1
            return True
        self._due_at = now + LIMIT_SECONDS
        return False

    def _end_run(self, now: float, status: int | None) -> None:
        assert self._files is not None
        assert self._process is not None
        signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        has_too_much = self._has_too_much()
        out, err = (_content(file) for file in self._files)
        self.close()
        self._due_at = now + self._pause_seconds
        if has_too_much:
            self.problem = f"it printed more than {MAX_BYTES >> 20} MiB"
        elif status is None:
            self.problem = f"it ran for more than {LIMIT_SECONDS:g} s"
        elif status != 0:
            said = (err.strip().splitlines() or ["no message"])[-1]
            self.problem = f"{describe_status(status)}: {said}"
        else:
            self._take(out)

    def _take(self, printed: str) -> None:
        lines = (line.partition("#")[0].strip() for line in printed.splitlines())
        entries = [line for line in lines if line]
        if not entries:
            self.problem = "it printed no host"
            return
        try:
            self.hosts = parse_hosts(",".join(entries), default_slots=self._default_slots)
            self.problem = ""
        except SlipstreamError as error:
            self.problem = str(error)


def _content(file: BinaryIO) -> str:
    file.seek(0)
    return file.read(MAX_BYTES).decode(errors="replace")
