"""A relay, which gives the links between hosts their bit rates where no namespaces can be made.

The hosts are groups of processes of this machine. Each process loads a library that leads its TCP
connections to other hosts through the relay (relay/redirect.cc). The relay passes bytes on as
slowly as the links allow. It needs no privileges.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import queue
import resource
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slipstream.lab.network import LabCounters, LinkCounters
from slipstream.lab.spec import LabSpec

ADDRESS = "127.0.0.1"

# Share of a rate that is payload: a full TCP segment takes 1514 bytes on Ethernet, of which 1448
# are payload. A rate counts all of them, as in a lab with namespaces.
PAYLOAD_SHARE = 1448 / 1514

# After a pause, a link may carry the bytes of this time at once, as in a lab with namespaces.
BURST_SECONDS = 0.002

# A thread that wakes up late makes up for at most this time, while bytes wait for it.
LATE_SECONDS = 0.05

# Longest time of a piece on a link that many connections share, and on the slowest link. Small
# pieces let connections take turns; large ones cost the relay fewer turns of its threads.
TURN_SECONDS = 0.0005
PIECE_SECONDS = 0.002
LEAST_PIECE_BYTES, MOST_PIECE_BYTES = 16 << 10, 256 << 10

BUFFER_BYTES = 256 << 10  # of the relay's sockets; larger ones would hide the links' rates
CONNECT_SECONDS = 10.0

# Pause after a connection that could not be accepted, until the next attempt.
RETRY_SECONDS = 0.1

_PORTS = 65536
_WANTED = struct.Struct("=H")
_log = logging.getLogger(__name__)


class RelayLink:
    """One direction of a link, which connections share piece by piece.

    Args:
        rate: Bit rate, headers included.
    """

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._seconds_per_byte = 8 / (rate * PAYLOAD_SHARE)
        self._free_at = 0.0
        self._lock = threading.Lock()
        self.carried_bytes = 0

    def carry(self, num_bytes: int, at: float) -> tuple[float, float]:
        """Return when a piece that arrives at a time begins and ends to pass the link.

        Args:
            num_bytes: Size of the piece in bytes.
            at: Time in seconds of `time.perf_counter`.
        """
        with self._lock:
            begin = max(at - BURST_SECONDS, self._free_at)
            self._free_at = begin + num_bytes * self._seconds_per_byte
            self.carried_bytes += num_bytes
            return begin, self._free_at


@dataclass(frozen=True, slots=True)
class Route:
    """The links that a direction of a connection passes, and the delay behind them.

    Args:
        links: Links in the order in which bytes pass them.
        delay: Seconds that bytes travel after the last link.
    """

    links: tuple[RelayLink, ...]
    delay: float

    @property
    def piece_bytes(self) -> int:
        """Number of bytes that pass a link at once before other connections have their turn."""
        fastest, slowest = (choose(link.rate for link in self.links) for choose in (max, min))
        most = min(fastest * TURN_SECONDS, slowest * PIECE_SECONDS) / 8
        return min(MOST_PIECE_BYTES, max(LEAST_PIECE_BYTES, int(most)))

    def pass_on(self, num_bytes: int, at: float) -> float:
        """Block until a piece has passed all links; return the time at which it has.

        Args:
            num_bytes: Size of the piece in bytes.
            at: Time in seconds of `time.perf_counter` at which the piece has arrived.
        """
        end = at
        for link in self.links:
            begin, link_end = link.carry(num_bytes, at)
            at, end = max(at, begin), max(end, link_end)
            _sleep_until(begin)  # the next link is not kept waiting for a piece that is not there
        _sleep_until(end)
        return end


class Relay:
    """Links between hosts, which are groups of processes of this machine.

    Use the object in a `with` statement; connections are served by threads of this process.

    Args:
        spec: Description of the hosts and their links.
    """

    def __init__(self, spec: LabSpec) -> None:
        self._spec = spec
        self._delay = spec.delay_seconds
        rates = spec.link_rates
        self._up, self._down = ([RelayLink(rate) for rate in rates] for _ in range(2))
        self._paths = [[RelayLink(cap) for cap in spec.flow_caps] for _ in rates]
        uplinks = [spec.uplink_rate] * spec.racks if spec.uplink_rate else []
        self._rack_up, self._rack_down = ([RelayLink(rate) for rate in uplinks] for _ in range(2))
        self._num_connections = 0
        self._ended = threading.Event()

    def __enter__(self) -> Relay:
        _allow_many_files()
        self._folder = tempfile.TemporaryDirectory(prefix="slipstream-relay-")
        self._path = Path(self._folder.name) / "table"
        self._path.touch(mode=0o600)
        with self._path.open("r+b") as file:
            file.truncate(4 * _PORTS)
            self._table = mmap.mmap(file.fileno(), 4 * _PORTS)
        self._listener = socket.create_server((ADDRESS, 0), backlog=1024)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        threading.Thread(target=self._accept, name="slipstream-relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # ends accept() in the other thread
        self._listener.close()
        self._folder.cleanup()

    def address_for(self, host: int) -> str:
        """Return the host, the relay's port and the path of the table, for the library."""
        return f"{host}:{self._listener.getsockname()[1]}:{self._path}"

    def counters(self) -> LabCounters:
        """Return the payload that each link has carried; headers and packets do not exist here."""
        return LabCounters(
            hosts=tuple(map(_counters, self._up, self._down)),
            uplinks=tuple(map(_counters, self._rack_up, self._rack_down)),
        )

    def _accept(self) -> None:
        """Accept clients until the relay ends; servers see them in the same order."""
        while not self._ended.is_set():
            try:
                client, address = self._listener.accept()
            except OSError as error:
                self._go_on_after(error)
                continue
            try:
                self._serve(client, address[1])
            except (OSError, RuntimeError) as error:  # too many files, or too many threads
                _reset(client)
                client.close()
                self._go_on_after(error)

    def _go_on_after(self, error: Exception) -> None:
        """Log that a connection could not be accepted, and pause; do nothing if the relay ends."""
        if not self._ended.is_set():
            _log.warning(
                "the relay cannot accept a connection now: %s; it tries again in %g s",
                error,
                RETRY_SECONDS,
            )
            self._ended.wait(RETRY_SECONDS)

    def _serve(self, client: socket.socket, port: int) -> None:
        """Connect a client, which has a port of this machine, with the server that it wants."""
        source = self._table[_PORTS + port] - 1
        wanted: int = _WANTED.unpack_from(self._table, 2 * _PORTS + 2 * port)[0]
        destination = self._table[wanted] - 1
        if source < 0 or destination < 0:
            client.close()  # a stranger
        elif (server := _connected(wanted) or self._connected_at_last(wanted)) is None:
            _reset(client)
            client.close()
        else:
            self._start(client, server, source, destination)

    def _connected_at_last(self, port: int) -> socket.socket | None:
        """Try once more, while no port can begin to listen; let later clients be refused."""
        with self._path.open() as table:
            fcntl.flock(table, fcntl.LOCK_EX)
            server = _connected(port)
            if server is None:
                self._table[port] = 0
            return server

    def _start(
        self, client: socket.socket, server: socket.socket, source: int, destination: int
    ) -> None:
        number = self._num_connections
        self._num_connections += 1
        forth = Direction(client, server, self._route(source, destination, number))
        back = Direction(server, client, self._route(destination, source, number))

        def serve() -> None:
            with client, server:
                other = threading.Thread(target=back.run, daemon=True)
                other.start()
                forth.run()
                other.join()

        threading.Thread(target=serve, name=f"slipstream-relay-{number}", daemon=True).start()

    def _route(self, source: int, destination: int, number: int) -> Route:
        links = [self._up[source]]
        if paths := self._paths[source]:
            links.append(paths[number % len(paths)])
        racks = self._spec.rack_of(source), self._spec.rack_of(destination)
        if racks[0] != racks[1]:
            links += [self._rack_up[racks[0]], self._rack_down[racks[1]]]
        return Route((*links, self._down[destination]), self._delay)


class Direction:
    """One direction of a connection.

    Args:
        source: Socket from which bytes come.
        target: Socket to which bytes go.
        route: Links between the two hosts.
    """

    def __init__(self, source: socket.socket, target: socket.socket, route: Route) -> None:
        self._source, self._target, self._route = source, target, route
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._travelling: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def run(self) -> None:
        """Pass bytes on until the source has ended; an error resets both connections."""
        try:
            if self._route.delay:
                self._run_delayed()
            else:
                self._run_at_once()
        except OSError:
            _reset(self._source)
            _reset(self._target)

    def _run_at_once(self) -> None:
        for data, _ in self._pieces():
            self._target.sendall(data)
        self._target.shutdown(socket.SHUT_WR)

    def _run_delayed(self) -> None:
        arrival = threading.Thread(target=self._arrive, daemon=True)
        arrival.start()
        try:
            for data, end in self._pieces():
                self._travelling.put((end + self._route.delay, bytes(data)))
        finally:
            self._travelling.put((time.perf_counter() + self._route.delay, b""))
            arrival.join()

    def _pieces(self) -> Iterator[tuple[memoryview, float]]:
        """Yield each piece when it has passed the links, and the time at which it should have."""
        buffer = memoryview(bytearray(self._route.piece_bytes))
        ready = time.perf_counter()  # when this direction was ready for the next piece
        while True:
            try:
                count = self._source.recv_into(buffer, 0, socket.MSG_DONTWAIT)
                at = max(ready, time.perf_counter() - LATE_SECONDS)
            except BlockingIOError:
                count = self._source.recv_into(buffer)
                at = time.perf_counter()
            if not count:
                return
            end = self._route.pass_on(count, at)
            passed = time.perf_counter()
            yield buffer[:count], end
            ready = end + time.perf_counter() - passed

    def _arrive(self) -> None:
        with contextlib.suppress(OSError):  # then the other thread finds the same error
            while True:
                due, data = self._travelling.get()
                _sleep_until(due)
                if not data:
                    self._target.shutdown(socket.SHUT_WR)
                    return
                self._target.sendall(data)


def _allow_many_files() -> None:
    """Let this process, and the ranks that it starts, open two files for each port there is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2 * _PORTS if hard == resource.RLIM_INFINITY else min(2 * _PORTS, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _connected(port: int) -> socket.socket | None:
    """Return a connection to a port of this machine; None if nobody listens.

    Raises:
        OSError: this process has too many open files.
    """
    server = socket.socket()
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        server.settimeout(CONNECT_SECONDS)
        server.connect((ADDRESS, port))
    except OSError:
        server.close()
        return None
    server.settimeout(None)
    return server


def _sleep_until(due: float) -> None:
    if (seconds := due - time.perf_counter()) > 0:
        time.sleep(seconds)


def _reset(end: socket.socket) -> None:
    """End a connection at once, so that its other end gets an error."""
    with contextlib.suppress(OSError):  # it has ended already
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)


def _counters(up: RelayLink, down: RelayLink) -> LinkCounters:
    return LinkCounters(
        sent_bytes=up.carried_bytes,
        sent_packets=0,
        received_bytes=down.carried_bytes,
        received_packets=0,
        dropped_packets=0,
    )
