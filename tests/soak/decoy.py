"""Ports of no job, which turn everybody away: `decoy.py COUNT` prints them and serves.

A stranger who attacks them uses as much of the machine as one who attacks a job. So what a job uses
more while it is attacked itself is the work of the job.
"""

import json
import selectors
import socket
import sys

GREETING_BYTES = 8  # shorter pieces are of half-open connections, which stay
MOST_OPEN = 64  # half-open connections of a port, as in a job


class DecoyPort:
    """A listening port with its half-open connections."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._server = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._server.setblocking(False)
        self._open: list[socket.socket] = []
        self.number: int = self._server.getsockname()[1]
        selector.register(self._server, selectors.EVENT_READ, lambda _: self.accept())

    def accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        connection.setblocking(False)
        self._open.append(connection)
        self._selector.register(connection, selectors.EVENT_READ, self.read)
        if len(self._open) > MOST_OPEN:
            self.close(self._open[0])

    def read(self, connection: socket.socket) -> None:
        try:
            is_half_open = 0 < len(connection.recv(4096)) < GREETING_BYTES
        except OSError:
            is_half_open = False
        if not is_half_open:
            self.close(connection)

    def close(self, connection: socket.socket) -> None:
        self._open.remove(connection)
        self._selector.unregister(connection)
        connection.close()


def main() -> None:
    selector = selectors.DefaultSelector()
    ports = [DecoyPort(selector) for _ in range(int(sys.argv[1]))]
    print(json.dumps([("127.0.0.1", port.number) for port in ports]), flush=True)
    while True:
        for key, _ in selector.select():
            if key.fileobj.fileno() >= 0:  # not closed earlier in this round
                key.data(key.fileobj)


if __name__ == "__main__":
    main()
