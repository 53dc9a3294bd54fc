"""The interface of engines. Every method can be called again, also after a process was killed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from slipstream.cluster.control.estimate import Estimate
from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.spec import JobSpec

HeadState = Literal["absent", "running", "ended", "unreachable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalPart:
    """New text of a run's journal.

    Args:
        text: Text of complete lines, perhaps "".
        position: Position after the text, for the next call.
    """

    text: str
    position: str


class RunProgress(Protocol):
    """The interface of what shows the preparation of a run."""

    def stage(self, name: str, host: str = "") -> AbstractContextManager[None]:
        """Return a context for one stage of the preparation, such as "files" on a host."""
        ...

    def note(self, text: str) -> None:
        """Receive a sentence."""

    def fact(self, name: str, value: object) -> None:
        """Receive a value for the record of the run, made of texts, numbers, lists and tables."""


class RunEngine(Protocol):
    """The interface of an engine; every method blocks."""

    @property
    def name(self) -> str:
        """Name of the engine, such as "ssh"."""
        ...

    def check(self, plan: RunPlan) -> None:
        """Refuse a job that this engine cannot run, before anything is created.

        Raises:
            UsageError: the job has a field that this engine does not support.
        """

    def estimate(self, spec: JobSpec) -> Estimate | None:
        """Return what the machines of a job cost, or None if it creates none.

        Raises:
            UsageError: no machine has the resources of the job.
        """
        ...

    def prepare(self, plan: RunPlan, progress: RunProgress) -> None:
        """Bring the hosts into a state in which the run can start.

        Raises:
            ConfigError: a host lacks something, or lets nobody in.
            PeerError: too few hosts can be reached.
        """

    def submit(self, plan: RunPlan) -> None:
        """Start the host daemons and the head where they do not run."""

    def read_journal(self, plan: RunPlan, position: str, seconds: float) -> JournalPart:
        """Return the text of the journal after a position.

        Args:
            plan: Run.
            position: Position from the last call, or "" for the beginning.
            seconds: Longest time in seconds to wait for new text.

        Raises:
            PeerError: the host with the journal cannot be reached.
        """
        ...

    def head_state(self, plan: RunPlan) -> HeadState:
        """Return whether the head runs."""
        ...

    def cancel(self, plan: RunPlan) -> None:
        """Ask the head to end the job; its journal then gets the last state."""

    def fetch(self, plan: RunPlan, patterns: Sequence[str], folder: Path) -> Sequence[str]:
        """Bring files of the first host back.

        Args:
            plan: Run.
            patterns: Paths relative to the code; patterns of a shell are allowed.
            folder: Folder on this machine that gets them.

        Returns:
            The patterns that match nothing.
        """
        ...

    def release(self, plan: RunPlan) -> None:
        """End everything of the run that still is on a host: processes, tunnels and secrets."""

    def restart_head(
        self, plan: RunPlan, progress: RunProgress, *, host_is_lost: bool
    ) -> Sequence[str]:
        """Start the head again after it was lost.

        Args:
            plan: Run.
            progress: Listener for the stages, if a new host must be prepared.
            host_is_lost: Whether its host is lost too, so that another host gets the head.

        Returns:
            The names of the hosts that the run lacks now, for `replace_hosts`.

        Raises:
            PeerError: no host of the run can be reached; a later call may succeed.
        """
        ...

    def replace_hosts(
        self, plan: RunPlan, lost: Sequence[str], progress: RunProgress
    ) -> Sequence[str]:
        """Bring other hosts into the run in place of lost ones; return their names."""
        ...

    def shell(self, plan: RunPlan, host: str) -> list[str]:
        """Return the command that runs a shell command on a host, up to that command.

        Args:
            plan: Run.
            host: Name of the host; "" for the host of the head.

        Raises:
            UsageError: the engine has no shell, or the run has no such host.
        """
        ...

    def path_on_host(self, plan: RunPlan, path: str) -> str:
        """Return the absolute path on the hosts of a path relative to the code."""
        ...
