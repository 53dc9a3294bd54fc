"""Connections made at the moment at which a port begins to listen: `race.py TIMES`.

Rank 0 listens on one port after the other. Rank 1 dials each of them in a loop until it is
connected. Rank 0 prints how many of the connections came past the relay.
"""

import os
import socket
import struct
import sys
import time

ADDRESS = os.environ["LAB_ADDRESSES"].split(",")[0]
BASE_PORT = int(os.environ["MASTER_PORT"]) + 10
OWN_PORT = struct.Struct("=H")


def accept(port: int) -> bool:
    """Return whether the relay has made the connection, whose dialler sends its own port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen()
        connection, (_, from_port) = listener.accept()
        with connection:
            (own_port,) = OWN_PORT.unpack(connection.recv(OWN_PORT.size))
    return from_port != own_port


def dial(port: int) -> None:
    while True:
        with socket.socket() as connection:
            try:
                connection.connect((ADDRESS, port))
                connection.sendall(OWN_PORT.pack(connection.getsockname()[1]))
                connection.recv(1)
            except ConnectionError:
                continue
            return


def main() -> None:
    ports = range(BASE_PORT, BASE_PORT + int(sys.argv[1]))
    if os.environ["RANK"] == "0":
        relayed = 0
        for port in ports:
            time.sleep(0.002)
            relayed += accept(port)
        print(len(ports) - relayed)
    else:
        for port in ports:
            dial(port)


if __name__ == "__main__":
    main()
