"""The pipes to an agent, which is a child process or the child of one: of ssh."""

import shlex
import subprocess
from collections.abc import Sequence
from typing import Protocol

from slipstream.cluster.launch.hosts import Host
from slipstream.cluster.launch.job import Job
from slipstream.settings import absolute_module_path

EXIT_SECONDS = 5.0  # time limit for ssh to exit after its output has ended. Chosen by hand.

# A password prompt cannot work, since ssh has no terminal here. A dead network is noticed in 60 s.
SSH_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "LogLevel=ERROR",
)
AGENT = ("-m", "slipstream.cluster.launch.agent")


class AgentConnection(Protocol):
    """The interface of a connection to the agent of one host, from the agent's start on."""

    @property
    def orders(self) -> int:
        """File descriptor to which the launcher's messages are written."""
        ...

    @property
    def reports(self) -> int:
        """File descriptor from which the agent's messages are read."""
        ...

    @property
    def errors(self) -> int:
        """File descriptor from which texts about errors are read."""
        ...

    def end(self, grace_seconds: float) -> int:
        """Close `orders` and wait for the end of the agent; blocks.

        Args:
            grace_seconds: Time in seconds that the agent needs to end its ranks.

        Returns:
            The exit code of the agent or of ssh, or the negative number of a signal.
        """
        ...

    def close(self) -> None:
        """Close all descriptors."""

    def kill(self) -> None:
        """Cut the connection at once; an agent on another host notices and ends its ranks."""


class AgentProcess:
    """The connection to a local agent, or to an agent that ssh starts.

    Args:
        job: Job that the host belongs to.
        host: Host of the agent.
        terminal: File descriptors that the host's first rank uses as its standard output and
            standard error (default none).
    """

    def __init__(self, job: Job, host: Host, terminal: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            _agent_argv(job, host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",  # Python imports from this folder first, and a user's may hide our modules
            env=absolute_module_path(job.environ),
            pass_fds=terminal,
            start_new_session=True,  # Ctrl-C is for the launcher, which passes it on
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._pipes = (self._process.stdin, self._process.stdout, self._process.stderr)

    @property
    def orders(self) -> int:
        """File descriptor of the agent's standard input."""
        return self._pipes[0].fileno()

    @property
    def reports(self) -> int:
        """File descriptor of the agent's standard output."""
        return self._pipes[1].fileno()

    @property
    def errors(self) -> int:
        """File descriptor of the standard error of the agent or of ssh."""
        return self._pipes[2].fileno()

    def end(self, grace_seconds: float) -> int:
        """Close the input and the output of the process, and return its exit status; blocks."""
        for pipe in self._pipes[:2]:
            pipe.close()
        try:
            return self._process.wait(grace_seconds + EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Close the pipe of errors."""
        self._pipes[2].close()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()


def _agent_argv(job: Job, host: Host) -> list[str]:
    if host.is_local:
        return [job.python_on(host), *AGENT]
    options = [part for option in (*job.ssh_options, *SSH_OPTIONS) for part in ("-o", option)]
    command = f"cd / && exec {shlex.join([job.python_on(host), *AGENT])}"
    return ["ssh", "-T", *options, "--", host.login, command]
