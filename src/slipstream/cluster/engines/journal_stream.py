"""The journal of a run on another host, followed by `tail` over ssh."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import time

from slipstream.cluster.engines.ssh_host import SshHost
from slipstream.errors import PeerError

CLOSE_SECONDS = 2.0


class JournalStream:
    """The journal on a host from an offset on.

    Args:
        host: Host with the journal.
        path: Absolute path of the file, which need not exist yet.
        offset: Number of bytes before the first new one.

    Attributes:
        offset: Number of bytes of the journal that were read, to the end of a line.
        is_open: Whether the connection is still there.
    """

    def __init__(self, host: SshHost, path: str, offset: int) -> None:
        self.offset = offset
        self.is_open = True
        self._host = host
        # tail does not notice that nobody reads any more, but cat notices the end of our input.
        tail = f"tail -c +{offset + 1} -F {shlex.quote(path)} 2>/dev/null"
        script = f"{tail} & cat > /dev/null; kill $!"
        self._process = host.open_stream(script)
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        os.set_blocking(self._descriptor, False)
        self._rest = b""

    def read(self, seconds: float) -> str:
        """Return new complete lines, or "" if none come within some seconds.

        Raises:
            PeerError: the connection has ended.
        """
        until = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select(
                [self._descriptor], [], [], max(until - time.monotonic(), 0)
            )
            if not ready:
                return ""
            data = os.read(self._descriptor, 1 << 20)
            if not data:
                self.close()
                raise PeerError(f"{self._host.name}: the connection to the journal has ended")
            lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
            if newline:
                self.offset += len(lines) + 1
                return (lines + newline).decode(errors="replace")

    def close(self) -> None:
        """End the connection; do nothing if it has ended."""
        if not self.is_open:
            return
        self.is_open = False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
