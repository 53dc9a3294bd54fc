"""The launcher's connection to one host: the agent's process, local or over ssh, and its pipes."""

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence

from slipstream.cluster.launch.hosts import Host
from slipstream.cluster.launch.job import Job
from slipstream.cluster.launch.messages import Hello, Message, Start, decode, encode
from slipstream.errors import InternalError
from slipstream.settings import absolute_module_path

READ_BYTES = 262144
EXIT_SECONDS = 5.0  # time limit for ssh to exit after its output has ended. Chosen by hand.
SSH_FAILED = 255  # exit code if ssh itself failed, and not the command

# A password prompt cannot work, since ssh has no terminal here. A dead network is noticed in 60 s.
SSH_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "LogLevel=ERROR",
)
NUM_NOISE_LINES = 5
AGENT = ("-m", "slipstream.cluster.launch.agent")


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
        self.living: set[int] = set()
        self.has_started = False
        self.is_open = True
        self._python = job.python_on(self.host)
        self._grace_seconds = job.grace_seconds
        self._noise: list[str] = []
        self._received = b""
        self._has_greeted = False
        self._process = subprocess.Popen(
            _agent_argv(job, self.host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",  # Python imports from this folder first, and a user's may hide our modules
            env=absolute_module_path(job.environ),
            pass_fds=terminal,
            start_new_session=True,  # Ctrl-C is for the launcher, which passes it on
        )
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    @property
    def reports(self) -> int:
        """File descriptor from which the agent's messages are read."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def errors(self) -> int:
        """File descriptor from which the standard error of the agent or of ssh is read."""
        assert self._process.stderr is not None
        return self._process.stderr.fileno()

    def send(self, message: Message) -> None:
        """Send an order to the agent; do nothing if the agent has already ended."""
        assert self._process.stdin is not None
        self.has_started |= isinstance(message, Start)
        line = memoryview(encode(message))
        try:
            while line:
                line = line[os.write(self._process.stdin.fileno(), line) :]
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
        assert self._process.stderr is not None
        data = self._process.stderr.read()
        if data:
            self._noise += [line for line in data.decode(errors="replace").split("\n") if line]
        return data != b""

    def close(self) -> str:
        """Wait for the agent to end; return in words how it ended, with its last error output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.is_open = False
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            code = self._process.wait(self._grace_seconds + EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.read_errors()
        self._process.stderr.close()
        text = "; ".join(line.strip() for line in self._noise[-NUM_NOISE_LINES:]) or "no message"
        return f"{self._explain(code)}: {text}"

    def kill(self) -> None:
        """Kill the local agent or ssh at once; an agent behind ssh notices and ends its ranks."""
        self._process.kill()

    def _explain(self, code: int) -> str:
        if self.hello is not None:
            return f"the connection to its agent was lost ({describe_status(code)})"
        if code == SSH_FAILED and not self.host.is_local:
            return f"ssh failed; `ssh {self.host.login} true` must work without a password"
        return (
            f"no agent could be started ({describe_status(code)}); install Slipstream for"
            f" {self._python} on that host, or name another Python with --python"
        )


def describe_status(status: int) -> str:
    """Describe how a process ended: by an exit code, or by a signal (its negative number)."""
    return f"exit code {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"


def _agent_argv(job: Job, host: Host) -> list[str]:
    if host.is_local:
        return [job.python_on(host), *AGENT]
    options = [part for option in (*job.ssh_options, *SSH_OPTIONS) for part in ("-o", option)]
    command = f"cd / && exec {shlex.join([job.python_on(host), *AGENT])}"
    return ["ssh", "-T", *options, "--", host.login, command]
