"""The process that runs the ranks of one host: `python -m slipstream.cluster.launch.agent`.

The launcher starts one agent per host, as a child process on its own host and through ssh on other
hosts. Launcher and agent exchange the messages of messages.py over the agent's standard input and
output. An agent ends its ranks and itself on SIGTERM, and when its input ends; so no agent outlives
the launcher.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.cluster.launch.conditions import count_oom_kills, state_of_process
from slipstream.cluster.launch.messages import (
    PROTOCOL,
    End,
    EndSlot,
    Exited,
    Expect,
    FlightFile,
    Hello,
    Joined,
    Kill,
    Message,
    Noticed,
    NotStarted,
    Output,
    Refused,
    Reserve,
    Reserved,
    Signal,
    Start,
    Started,
    StartSlot,
    decode,
    encode,
)
from slipstream.cluster.launch.nccl import plugin_environment
from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.cluster.launch.processes import (
    adopt_orphans,
    exit_status,
    kill_descendants,
    reap_orphans,
    signal_group,
    start_rank,
)
from slipstream.cluster.launch.signals import END_SIGNALS, expect_children, signals_as_bytes
from slipstream.errors import ConfigError, InternalError
from slipstream.settings import member_fd_environment

READ_BYTES = 65536
# While more bytes than this wait for the launcher, the pipes of the ranks are not read, so that the
# ranks wait as well.
MAX_UNSENT_BYTES = 1 << 20
# Longest time for which orphans of an ended rank may keep its pipes open.
DRAIN_SECONDS = 1.0


@dataclass(kw_only=True, slots=True)
class _Rank:
    local_rank: int
    process: "subprocess.Popen[bytes]"
    # Open descriptors of the rank's output; the value is True for standard error.
    streams: dict[int, bool] = field(default_factory=dict[int, bool])
    ended_at: float | None = None
    frees_slot: bool = False  # whether another process may follow in the slot of this one
    kill_at: float | None = None
    news: socket.socket | None = None  # for the numbers of epochs and the slots of joiners


class Agent:
    """The agent of one host.

    Args:
        orders: File descriptor from which the launcher's messages are read.
        reports: File descriptor to which messages for the launcher are written.
    """

    def __init__(self, orders: int, reports: int) -> None:
        self._orders = orders
        self._reports = reports
        self._received = b""
        self._unsent = bytearray()
        self._selector = selectors.DefaultSelector()
        self._paused: list[tuple[int, Callable[[], None]]] = []
        self._ranks: list[_Rank] = []
        self._ports: list[int] = []
        self._is_ordered = False  # True once the launcher has ordered the ranks to start or to end
        self._expected = Expect(slots=())
        self._grace_seconds = 0.0
        self._kill_at: float | None = None
        self._oom_kills_before = count_oom_kills()
        self._flight_folder = ""

    def run(self) -> None:
        """Obey the launcher until all ranks have ended; kill processes that ranks left behind."""
        adopt_orphans()
        expect_children()
        os.set_blocking(self._reports, False)
        self._selector.register(self._orders, selectors.EVENT_READ, self._read_orders)
        with signals_as_bytes(signal.SIGCHLD, *END_SIGNALS) as wakeup:
            self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._wake(wakeup))
            cores = len(os.sched_getaffinity(0))
            self._send(Hello(protocol=PROTOCOL, num_cores=cores, free_port=self._find_port()))
            while not self._is_done():
                for key, _ in self._selector.select(self._seconds_to_deadline()):
                    if key.fd in self._selector.get_map():
                        key.data()
                self._meet_deadlines()
                self._free_slots()
            self._signal_ranks(signal.SIGKILL)
            kill_descendants()
        os.set_blocking(self._reports, True)
        self._send_flight_files()
        self._flush()

    def _is_done(self) -> bool:
        return self._is_ordered and all(
            rank.ended_at is not None and not rank.streams for rank in self._ranks
        )

    # ---- orders ----

    def _read_orders(self) -> None:
        data = os.read(self._orders, READ_BYTES)
        if not data:
            self._selector.unregister(self._orders)
            self._end()
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._obey(decode(line))

    def _obey(self, order: Message | None) -> None:
        match order:
            case Start():
                self._start(order)
            case Reserve():
                ports = tuple(self._find_port() for _ in range(order.num_ports))
                self._send(Reserved(ports=ports))
            case StartSlot():
                self._start_slot(order)
            case EndSlot():
                self._end_slot(order.local_rank)
            case Expect():
                self._expected = order
                for rank in self._ranks:
                    self._tell(rank)
            case Signal():
                self._signal_ranks(order.number)
            case End():
                self._end()
            case Kill():
                self._notice_states()
                self._is_ordered = True
                self._kill_at = time.monotonic()
            case _:
                raise InternalError(
                    f"the launcher sent {order!r}, which is no order; please report it"
                )

    def _start(self, order: Start) -> None:
        self._is_ordered = True
        self._flight_folder = order.flight_folder
        self._grace_seconds = order.grace_seconds
        environ = {**os.environ, **order.environ}
        try:
            if order.nccl_plugin:
                environ |= plugin_environment(environ)
            for local_rank, variables in enumerate(order.ranks):
                terminal = order.terminal if local_rank == 0 else ()
                process = start_rank(order.argv, order.cwd, {**environ, **variables}, terminal)
                self._follow(_Rank(local_rank=local_rank, process=process))
        except (OSError, ValueError, ConfigError) as error:
            self._send(Refused(reason=_refusal(order, error)))
            self._end()

    def _end(self) -> None:
        self._is_ordered = True
        if self._kill_at is None:
            self._notice_states()
            self._kill_at = time.monotonic() + self._grace_seconds
            self._signal_ranks(signal.SIGTERM)

    def _find_port(self) -> int:
        self._ports.append(find_free_port_pair(self._ports))
        return self._ports[-1]

    # ---- slots of an elastic job ----

    def _start_slot(self, order: StartSlot) -> None:
        self._flight_folder = order.flight_folder
        self._grace_seconds = order.grace_seconds
        environ = {name: text for name, text in os.environ.items() if name not in order.unset}
        environ |= order.environ
        news, theirs = socket.socketpair()
        environ |= member_fd_environment(theirs.fileno())
        try:
            if order.nccl_plugin:
                environ |= plugin_environment(environ)
            process = start_rank(order.argv, order.cwd, environ, inherited=(theirs.fileno(),))
        except (OSError, ValueError, ConfigError) as error:
            news.close()
            self._send(NotStarted(local_rank=order.local_rank, reason=_refusal(order, error)))
            return
        finally:
            theirs.close()
        rank = _Rank(local_rank=order.local_rank, process=process, frees_slot=True, news=news)
        self._follow(rank)
        news.setblocking(False)
        self._selector.register(news, selectors.EVENT_READ, lambda: self._read_news(rank, news))
        if self._expected.slots:
            self._tell(rank)

    def _read_news(self, rank: _Rank, news: socket.socket) -> None:
        try:
            numbers = news.recv(READ_BYTES).split()
        except OSError:  # the process has ended before it read all news
            numbers = []
        for number in numbers:
            self._send(Joined(local_rank=rank.local_rank, epoch=int(number)))
        if not numbers:
            self._forget_news(rank)

    def _tell(self, rank: _Rank) -> None:
        """Tell a process which slots' processes will join."""
        line = " ".join(map(str, self._expected.slots)).encode() + b"\n"
        if rank.news is not None:
            with contextlib.suppress(OSError):  # the process has ended, or reads no news
                rank.news.send(line, socket.MSG_NOSIGNAL)

    def _forget_news(self, rank: _Rank) -> None:
        if rank.news is not None:
            self._selector.unregister(rank.news)
            rank.news.close()
            rank.news = None

    def _end_slot(self, local_rank: int) -> None:
        for rank in self._ranks:
            if rank.local_rank == local_rank and rank.kill_at is None:
                rank.kill_at = time.monotonic() + self._grace_seconds
                signal_group(rank.process.pid, signal.SIGTERM)

    def _free_slots(self) -> None:
        """Report and reap the processes of slots that have ended, once their output has ended."""
        ended = [rank for rank in self._ranks if rank.frees_slot and rank.ended_at is not None]
        for rank in ended:
            if not rank.streams:
                self._ranks.remove(rank)
                self._forget_news(rank)
                reap_orphans([other.process.pid for other in self._ranks])
                self._send(Exited(local_rank=rank.local_rank, status=rank.process.returncode))

    # ---- ranks ----

    def _signal_ranks(self, number: int) -> None:
        for rank in self._ranks:
            if number == signal.SIGKILL or number in END_SIGNALS:
                signal_group(rank.process.pid, number)
            elif rank.ended_at is None:
                os.kill(rank.process.pid, number)

    def _follow(self, rank: _Rank) -> None:
        self._ranks.append(rank)
        self._send(Started(local_rank=rank.local_rank, pid=rank.process.pid))
        for pipe, is_error in ((rank.process.stdout, False), (rank.process.stderr, True)):
            if pipe is not None:
                descriptor = pipe.fileno()
                os.set_blocking(descriptor, False)
                rank.streams[descriptor] = is_error
                self._watch_stream(rank, descriptor)

    def _watch_stream(self, rank: _Rank, descriptor: int) -> None:
        def pump() -> None:
            self._pump(rank, descriptor)
            if len(self._unsent) > MAX_UNSENT_BYTES and descriptor in rank.streams:
                self._selector.unregister(descriptor)
                self._paused.append((descriptor, pump))

        self._selector.register(descriptor, selectors.EVENT_READ, pump)

    def _pump(self, rank: _Rank, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._report_output(rank, descriptor, data)
        else:
            self._forget_stream(rank, descriptor)

    def _report_output(self, rank: _Rank, descriptor: int, data: bytes) -> None:
        is_error, text = rank.streams[descriptor], data.decode("latin-1")
        self._send(Output(local_rank=rank.local_rank, is_error=is_error, data=text))

    def _forget_stream(self, rank: _Rank, descriptor: int) -> None:
        self._report_output(rank, descriptor, b"")
        del rank.streams[descriptor]
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)
        self._paused = [paused for paused in self._paused if paused[0] != descriptor]

    def _wake(self, wakeup: int) -> None:
        if any(number in END_SIGNALS for number in os.read(wakeup, READ_BYTES)):
            self._end()
        for rank in self._ranks:
            status = exit_status(rank.process.pid) if rank.ended_at is None else None
            if status is not None:
                rank.ended_at = time.monotonic()
                rank.process.returncode = status
                self._notice_oom_kills(rank.local_rank, status)
                if rank.frees_slot:
                    signal_group(rank.process.pid, signal.SIGKILL)
                else:
                    self._send(Exited(local_rank=rank.local_rank, status=status))
        reap_orphans([rank.process.pid for rank in self._ranks])

    # ---- what explains a fault ----

    def _notice_states(self) -> None:
        for rank in self._ranks:
            if rank.ended_at is None:
                state = state_of_process(rank.process.pid)
                self._send(Noticed(local_rank=rank.local_rank, state=state))

    def _notice_oom_kills(self, local_rank: int, status: int) -> None:
        before, now = self._oom_kills_before, count_oom_kills()
        if status == -signal.SIGKILL and before is not None and now is not None:
            self._send(Noticed(local_rank=local_rank, oom_kills=now - before))

    def _send_flight_files(self) -> None:
        folder = Path(self._flight_folder)
        for path in sorted(folder.rglob("*rank-*")) if self._flight_folder else ():
            name = str(path.relative_to(folder))
            text = "" if "/." in f"/{name}" else path.read_text(errors="replace")
            if text:
                self._send(FlightFile(name=name, text=text))

    # ---- deadlines ----

    def _seconds_to_deadline(self) -> float | None:
        deadlines = [] if self._kill_at is None else [self._kill_at]
        deadlines += [rank.kill_at for rank in self._ranks if rank.kill_at is not None]
        deadlines += [
            rank.ended_at + DRAIN_SECONDS
            for rank in self._ranks
            if rank.ended_at is not None and rank.streams
        ]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _meet_deadlines(self) -> None:
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            # The signal is repeated, because a process group may grow while it is killed.
            self._kill_at = now + DRAIN_SECONDS
            self._signal_ranks(signal.SIGKILL)
        for rank in self._ranks:
            if rank.kill_at is not None and now >= rank.kill_at:
                rank.kill_at = now + DRAIN_SECONDS
                signal_group(rank.process.pid, signal.SIGKILL)
            if rank.ended_at is not None and now >= rank.ended_at + DRAIN_SECONDS:
                for descriptor in tuple(rank.streams):
                    self._pump(rank, descriptor)
                    if descriptor in rank.streams:
                        self._forget_stream(rank, descriptor)

    # ---- reports ----

    def _send(self, message: Message) -> None:
        self._unsent += encode(message)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._reports, self._unsent)]
        except BlockingIOError:
            if self._reports not in self._selector.get_map():
                self._selector.register(self._reports, selectors.EVENT_WRITE, self._flush)
            return
        except BrokenPipeError:  # the launcher is gone; the end of its orders will end the agent
            self._unsent.clear()
        if self._reports in self._selector.get_map():
            self._selector.unregister(self._reports)
        for descriptor, pump in self._paused:
            self._selector.register(descriptor, selectors.EVENT_READ, pump)
        self._paused.clear()


def _refusal(order: Start | StartSlot, error: OSError | ValueError | ConfigError) -> str:
    """Return in words why an order to start could not be obeyed."""
    if isinstance(error, ConfigError):
        return str(error)
    reason = str(error)  # of a ValueError: the system takes no such text in a program or a variable
    if isinstance(error, OSError) and error.filename:
        reason = f"{error.strerror}: {error.filename}"
    return f"cannot run {order.argv[0]!r} in {order.cwd!r}: {reason}"


def main() -> None:
    """Run an agent on standard input and output; all other output goes to standard error."""
    reports = os.dup(1)
    os.dup2(2, 1)
    agent = Agent(orders=0, reports=reports)
    agent.run()


if __name__ == "__main__":
    main()
