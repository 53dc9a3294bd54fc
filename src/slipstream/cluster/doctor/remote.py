"""The measuring program on a host, and requests to it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.cluster.engines.ssh_host import SshHost
from slipstream.cluster.outside import outside
from slipstream.errors import PeerError

_PROGRAM = Path(__file__).with_name("program.py")
_LOADER = "import sys; exec(sys.stdin.read(int(sys.stdin.readline())))"
_ANSWER_SECONDS = 60.0


@dataclass(slots=True)
class MeasuringHost:
    """A host on which the measuring program runs until `close`.

    Args:
        ssh: Host behind ssh.
        python: Path of Python on the host; where it is missing, python3 is used.

    Raises:
        ConfigError: the host lets nobody in.
        PeerError: the host cannot be reached, or its program does not answer.
        CommandFailedError: the host has no Python 3.
    """

    ssh: SshHost
    python: str
    _process: subprocess.Popen[bytes] = field(init=False)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        python = shlex.quote(self.python)
        find = f"p=$(command -v {python} || command -v python3)"
        self.ssh.run(
            f'{find} && "$p" -c "import sys; sys.version_info[0] == 3 or sys.exit(1)"',
            what="looking for Python 3",
        )
        with outside("ssh measuring"):
            self._process = self.ssh.open_stream(f'{find}; exec "$p" -c {shlex.quote(_LOADER)}')
        source = _PROGRAM.read_text(encoding="utf-8")
        self._write(f"{len(source)}\n{source}")

    def ask(self, action: str, **arguments: object) -> dict[str, Any]:
        """Return the answer of the program to a request.

        Args:
            action: Name of one of the program's actions.
            arguments: Arguments of the action.

        Raises:
            PeerError: no answer comes, or the action failed.
        """
        self._write(json.dumps({"action": action, **arguments}) + "\n")
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            line = self._read_line(deadline)
            if line.startswith(b"{"):  # other lines come from the host's shell
                answer = json.loads(line)
                if "error" in answer:
                    raise PeerError(f"{self.ssh.name}: {answer['error']}")
                return answer

    def close(self) -> None:
        """End the program and the connection."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # of what the program did not read
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self.ssh.disconnect()

    def _write(self, text: str) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerError(f"{self.ssh.name}: the measuring program ended") from error

    def _read_line(self, deadline: float) -> bytes:
        assert self._process.stdout
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            ready = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]
            got = os.read(pipe, 65536) if ready else b""
            if not got:
                raise PeerError(
                    f"{self.ssh.name}: the measuring program gives no answer; is ssh stable, and"
                    " the host not overloaded?"
                )
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line
