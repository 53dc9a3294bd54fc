"""The hosts of a run or of a group, under its name, as hosts on which commands can be run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream.cluster.control.controller import Controller, RunView
from slipstream.cluster.control.session import RunSession
from slipstream.cluster.engines.layout import FILE_NAME, RunLayout
from slipstream.cluster.engines.ssh_host import SSH_FAILED, CommandFailedError
from slipstream.cluster.engines.this_host import ThisHost
from slipstream.cluster.groups.group_record import GroupFolder
from slipstream.cluster.groups.group_session import GroupSession
from slipstream.cluster.outside import outside
from slipstream.cluster.records import RunRecord
from slipstream.errors import PeerError, PeerTimeoutError


class ReachedHost(Protocol):
    """The interface of a host on which a script can be run."""

    @property
    def name(self) -> str:
        """Name of the host."""
        ...

    def run(self, script: str, *, what: str, text: str = "", seconds: float = 60.0) -> str:
        """Run a shell script and return its output."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ShellHost:
    """A host of a run, behind the command that an engine runs scripts with.

    Args:
        name: Name of the host.
        argv: Command that runs a shell command on the host, up to that command.
    """

    name: str
    argv: tuple[str, ...]

    def run(self, script: str, *, what: str, text: str = "", seconds: float = 60.0) -> str:
        """Run a shell script and return its output.

        Args:
            script: Script for sh; it contains no secret.
            what: Purpose of the script, for messages.
            text: Standard input (default "").
            seconds: Time limit in seconds (default 60).

        Raises:
            PeerError: the host cannot be reached, or takes longer.
            CommandFailedError: the script failed.
        """
        with outside(f"ssh {what}"):
            try:
                done = subprocess.run(
                    [*self.argv, script],
                    input=text,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise PeerTimeoutError(
                    f"{self.name}: {what} took longer than {seconds:g} s"
                ) from error
        said = "; ".join(done.stderr.strip().splitlines()[-3:])
        if done.returncode == SSH_FAILED:
            raise PeerError(f"{self.name} cannot be reached: {said}")
        if done.returncode != 0:
            raise CommandFailedError(f"{self.name}: {what} failed: {said}")
        return done.stdout


def reached_hosts(session: RunSession, name: str, view: RunView) -> Sequence[ReachedHost]:
    """Return the hosts of a group or of a run.

    Args:
        session: Runs of the user.
        name: Name of a group, or of a run.
        view: View for remarks.

    Raises:
        UsageError: there is neither, or its engine lets nobody run a command.
    """
    if GroupFolder(session.home, name).read() is not None:
        return GroupSession(session.home).open(name).hosts()
    record = session.log.find(name)
    if record.engine == "local":
        return [ThisHost()]
    controller = session.open(name, view)
    return [_shell_host(controller, host) for host in layout_of(session, record).hosts or [""]]


def layout_of(session: RunSession, record: RunRecord) -> RunLayout:
    """Return where a run is on its hosts; an empty layout if it was not prepared.

    Args:
        session: Runs of the user.
        record: Record of the run.
    """
    path = session.home / "runs" / f"{record.name}-{record.number}" / FILE_NAME
    if not path.exists():
        return RunLayout()
    fields: dict[str, Any] = json.loads(path.read_text())
    return RunLayout(**fields)


def _shell_host(controller: Controller, name: str) -> ShellHost:
    return ShellHost(name=name or "head", argv=tuple(controller.shell(name)))
