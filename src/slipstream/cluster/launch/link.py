"""The launcher's connection to the agent of one host, and the messages that pass through it."""

import os
import signal
from collections.abc import Sequence

from slipstream.cluster.launch.connection import AgentConnection, AgentProcess
from slipstream.cluster.launch.hosts import Host
from slipstream.cluster.launch.job import Job
from slipstream.cluster.launch.messages import Hello, Message, Start, decode, encode
from slipstream.errors import InternalError

READ_BYTES = 262144
SSH_FAILED = 255  # exit code if ssh itself failed, and not the command

NUM_NOISE_LINES = 5


class AgentLink:
    """The launcher's connection to the agent of one host, from the agent's start to its end.

    Args:
        job: Job that the host belongs to.
        index: Position of the host in `job.hosts`.
        terminal: File descriptors that the host's first rank uses as its standard output and
            standard error (default none).
    """

    def __init__(self, job: Job, index: int, terminal: Sequence[int] = ()) -> None:
        self.index = index
        self.host: Host = job.hosts[index]
        self.first_rank = sum(host.slots for host in job.hosts[:index])
        self.hello: Hello | None = None
        self.has_started = False
        self.is_open = True
        self._python = job.python_on(self.host)
        self._grace_seconds = job.grace_seconds
        self._noise: list[str] = []
        self._received = b""
        self._has_greeted = False
        connect = job.connect or AgentProcess
        self._connection: AgentConnection = connect(job, self.host, terminal)
        for descriptor in (self.reports, self.errors):
            os.set_blocking(descriptor, False)

    @property
    def reports(self) -> int:
        """File descriptor from which the agent's messages are read."""
        return self._connection.reports

    @property
    def errors(self) -> int:
        """File descriptor from which the standard error of the agent or of ssh is read."""
        return self._connection.errors

    def send(self, message: Message) -> None:
        """Send an order to the agent; do nothing if the agent has already ended."""
        self.has_started |= isinstance(message, Start)
        line = memoryview(encode(message))
        try:
            while line:
                line = line[os.write(self._connection.orders, line) :]
        except BrokenPipeError:
            return  # the agent's reports end as well; then close() gives the reason

    def read(self) -> list[Message] | None:
        """Return the messages that have arrived, or None when the agent will send no more."""
        data = os.read(self.reports, READ_BYTES)
        if not data:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        return [message for line in lines if (message := self._decode(line)) is not None]

    def _decode(self, line: bytes) -> Message | None:
        """Decode a report; ignore text that a login shell prints before the first report."""
        message = decode(line)
        self._has_greeted |= message is not None
        if message is None and self._has_greeted:
            raise InternalError(
                f"the agent of {self.host.name} sent {line[:80]!r}, which is no message"
            )
        return message

    def read_errors(self) -> bool:
        """Store new lines of the standard error of agent or ssh; return whether more may follow."""
        try:
            data = os.read(self.errors, READ_BYTES)
        except BlockingIOError:
            return True
        self._noise += [line for line in data.decode(errors="replace").split("\n") if line]
        return data != b""

    def close(self) -> str:
        """Wait for the agent to end; return in words how it ended, with its last error output."""
        self.is_open = False
        code = self._connection.end(self._grace_seconds)
        self.read_errors()
        self._connection.close()
        text = "; ".join(line.strip() for line in self._noise[-NUM_NOISE_LINES:]) or "no message"
        return f"{self._explain(code)}: {text}"

    def kill(self) -> None:
        """Kill the local agent or ssh at once; an agent behind ssh notices and ends its ranks."""
        self._connection.kill()

    def _explain(self, code: int) -> str:
        if self.hello is not None:
            return f"the connection to its agent was lost ({describe_status(code)})"
        if not isinstance(self._connection, AgentProcess):
            return "its host daemon could start no agent"
        if code == SSH_FAILED and not self.host.is_local:
            return f"ssh failed; `ssh {self.host.login} true` must work without a password"
        return (
            f"no agent could be started ({describe_status(code)}); install Slipstream for"
            f" {self._python} on that host, or name another Python with --python"
        )


def describe_status(status: int) -> str:
    """Describe how a process ended: by an exit code, or by a signal (its negative number)."""
    return f"exit code {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
