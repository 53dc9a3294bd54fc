"""The ranks of one run, which are processes in the namespaces of the hosts.

No process of a run outlives the run. Every rank leads its own session and process group. Linux
kills a rank when the thread that started the rank dies (PR_SET_PDEATHSIG, set by setpriv). At the
end of the run, processes that the ranks left behind are killed if they are in a namespace of the
lab and have the run's key in their environment.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slipstream.lab.iproute import processes
from slipstream.lab.outcome import RankFailure, RunResult

MAX_LINES = 10_000  # number of each rank's last lines that are stored
NUM_LAST_LINES = 20  # last lines of a failed rank's output, which the error quotes
MAX_LINE_BYTES = 65_536
GRACE_SECONDS = 3.0  # seconds from SIGTERM to SIGKILL

OnLine = Callable[[int, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlan:
    """Settings with which one rank starts.

    Args:
        rank: Number of the rank, from 0.
        host: Host on which the rank runs.
        namespace: Network namespace of the rank's host; None for the namespace of this process.
        environ: All environment variables of the rank, which inherits no others.
        core: The only core that the rank may use; None for all cores.
    """

    rank: int
    host: int
    namespace: str | None
    environ: Mapping[str, str]
    core: int | None


class _LabRank:
    """A running rank and the lines of its output."""

    def __init__(self, plan: RankPlan, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.plan = plan
        self.process = process
        self.output: IO[bytes] = process.stdout
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self.is_running = True
        self.is_open = True  # false when the output has reached its end
        self._partial = b""  # bytes of the last line, which is not complete

    def read(self) -> list[str] | None:
        """Read output, and return the lines that it completes; None if no output is available."""
        try:
            data = os.read(self.output.fileno(), 1 << 16)
        except BlockingIOError:
            return None
        self.is_open = bool(data)
        *complete, self._partial = (self._partial + data).split(b"\n")
        if self._partial and (not data or len(self._partial) > MAX_LINE_BYTES):
            complete.append(self._partial)
            self._partial = b""
        texts = [_last_state(line) for line in complete]
        self.lines.extend(texts)
        return texts


class LabRun:
    """Running ranks; `wait` blocks until they have ended, and `end` ends them.

    Args:
        argv: Program and its arguments, the same for all ranks.
        plans: Settings of each rank, in the order of the ranks' numbers.
        key: Random text that identifies the run; it is in the environment of all its processes.
        on_line: Function that receives a rank's number and the text of each line that this rank
            writes; it is called in a thread of the run (default None).
    """

    def __init__(
        self,
        argv: Sequence[str],
        plans: Sequence[RankPlan],
        key: str,
        on_line: OnLine | None = None,
    ) -> None:
        self._key = key.encode()
        self._on_line = on_line
        self._began = time.monotonic()
        self._seconds = 0.0
        self._failure: RankFailure | None = None
        self._error: Exception | None = None  # raised by the caller's `on_line`
        self._kill_at: float | None = None
        # protects _wake_write, which is None after the end of the run
        self._lock = threading.Lock()
        self._wake_write: int | None
        self._wake_read, self._wake_write = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._ranks: list[_LabRank] = []
        try:
            for plan in plans:
                self._start(argv, plan)
        except BaseException:
            self._signal(signal.SIGKILL)
            for rank in self._ranks:
                rank.process.wait()
            raise
        self._thread = threading.Thread(target=self._supervise, name="slipstream-lab-run")
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether at least one rank still runs."""
        return self._thread.is_alive()

    def last_line(self, rank: int) -> str:
        """Return the last line of a rank's output; "" if there is none."""
        lines = self._ranks[rank].lines
        return lines[-1] if lines else ""

    @property
    def pids(self) -> tuple[int, ...]:
        """Process id of each rank."""
        return tuple(rank.process.pid for rank in self._ranks)

    def has_ended(self, within_seconds: float) -> bool:
        """Wait up to a time limit for the end of all ranks, and return whether they have ended."""
        self._thread.join(within_seconds)
        return not self.is_running

    def wait(self, timeout_seconds: float | None = None) -> RunResult:
        """Block until all ranks have ended; at the time limit, end those that still run.

        Ctrl-C, or any other exception in the calling thread, ends the ranks, too. An exception in
        `on_line` also ends the ranks, and this method raises the exception.

        Args:
            timeout_seconds: Time limit in seconds (default None: no limit).
        """
        try:
            self._thread.join(timeout_seconds)
        except BaseException:
            self.end()
            raise
        if self._thread.is_alive():
            self.end(is_late=True)
        if self._error is not None:
            raise self._error
        return RunResult(
            seconds=self._seconds,
            lines=tuple(tuple(rank.lines) for rank in self._ranks),
            failure=self._failure,
        )

    def end(self, *, is_late: bool = False) -> None:
        """End all ranks, and return when they are gone.

        Ranks get SIGTERM. Ranks that still run three seconds later get SIGKILL.

        Args:
            is_late: Whether the ranks have exceeded their time limit, so that ranks that still run
                count as failed (default False).
        """
        with self._lock:
            if self._wake_write is not None:
                os.write(self._wake_write, b"l" if is_late else b"e")
        self._thread.join()

    def _start(self, argv: Sequence[str], plan: RankPlan) -> None:
        enter = ["ip", "netns", "exec", plan.namespace] if plan.namespace else []
        prefix = [*enter, "setpriv", "--pdeathsig", "KILL", "--"]
        process = subprocess.Popen(
            [*prefix, *argv],
            env=plan.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
        if plan.core is not None:
            os.sched_setaffinity(process.pid, {plan.core})
        rank = _LabRank(plan, process)
        self._ranks.append(rank)
        os.set_blocking(rank.output.fileno(), False)
        self._selector.register(rank.output, selectors.EVENT_READ, rank)
        self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, rank)

    def _supervise(self) -> None:
        try:
            self._serve_all()
        except Exception as error:  # noqa: BLE001  the top of a thread: `wait` raises it
            self._error = error
            self._signal(signal.SIGKILL)
        for rank in self._ranks:
            rank.process.wait()
        self._seconds = time.monotonic() - self._began
        self._kill_leftovers()
        self._close()

    def _serve_all(self) -> None:
        while any(rank.is_running for rank in self._ranks):
            for key, _ in self._selector.select(self._seconds_to_kill()):
                self._serve(key)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.fd == self._wake_read:
            is_late = os.read(self._wake_read, 1) == b"l"
            if is_late and self._failure is None:
                late = next((rank for rank in self._ranks if rank.is_running), None)
                self._failure = self._describe(late, None) if late else None
            self._begin_end()
            return
        rank: _LabRank = key.data
        if key.fileobj is rank.output:
            self._tell(rank, rank.read())
            if not rank.is_open:
                self._selector.unregister(rank.output)
            return
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        self._note_end(rank)

    def _note_end(self, rank: _LabRank) -> None:
        status = rank.process.wait()
        while rank.is_open and (texts := rank.read()) is not None:
            self._tell(rank, texts)
        rank.is_running = False
        if status != 0 and self._failure is None and self._kill_at is None:
            self._failure = self._describe(rank, status)
            self._begin_end()

    def _tell(self, rank: _LabRank, texts: list[str] | None) -> None:
        if self._on_line is not None:
            for text in texts or ():
                self._on_line(rank.plan.rank, text)

    def _describe(self, rank: _LabRank, status: int | None) -> RankFailure:
        return RankFailure(
            rank=rank.plan.rank,
            host=rank.plan.host,
            status=status,
            seconds=time.monotonic() - self._began,
            last_lines=tuple(rank.lines)[-NUM_LAST_LINES:],
        )

    def _begin_end(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE_SECONDS
            self._signal(signal.SIGTERM)

    def _seconds_to_kill(self) -> float | None:
        return None if self._kill_at is None else max(self._kill_at - time.monotonic(), 0.01)

    def _signal(self, number: int) -> None:
        for rank in self._ranks:
            if rank.is_running:
                _signal_group(rank.process.pid, number)

    def _kill_leftovers(self) -> None:
        """Kill processes that the ranks started and left running, and wait until they are gone."""
        until = time.monotonic() + GRACE_SECONDS
        while (pids := self._leftovers()) and time.monotonic() < until:
            for pid in pids:
                _signal_process(pid)
            time.sleep(0.01)

    def _leftovers(self) -> list[int]:
        return [
            pid
            for namespace in {rank.plan.namespace for rank in self._ranks}
            for pid in processes(namespace)
            if self._key in _environment(pid)
        ]

    def _close(self) -> None:
        for rank in self._ranks:
            rank.output.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int) and key.fd != self._wake_read:
                os.close(key.fd)  # the pidfd of a rank, if the end of the rank was not handled
        self._selector.close()
        with self._lock:
            os.close(self._wake_read)
            if self._wake_write is not None:
                os.close(self._wake_write)
            self._wake_write = None


def _last_state(line: bytes) -> str:
    """Return a line as a terminal shows it: a carriage return starts the line anew."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:  # the process has not made its group yet, or has ended
        _signal_process(leader, number)


def _signal_process(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
