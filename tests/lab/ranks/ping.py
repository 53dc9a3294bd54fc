"""Rank 0 prints the least seconds of a round trip to rank 1: `ping.py [die]`.

With `die`, rank 1 ends in place of an answer, and rank 0 prints what it sees.
"""

import os
import socket
import sys
import time

PORT = int(os.environ["MASTER_PORT"]) + 1
ADDRESS = os.environ["MASTER_ADDR"]
ROUNDS = 5


def answer() -> None:
    """Serve the other rank's connection."""
    with socket.create_server((ADDRESS, PORT)) as listener:
        connection, _ = listener.accept()
    if "die" in sys.argv:
        connection.recv(1)
        os._exit(0)
    for _ in range(ROUNDS):
        connection.sendall(connection.recv(1))


def connect() -> socket.socket:
    """Return a connection to the other rank, which may not listen yet."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((ADDRESS, PORT))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def ask() -> None:
    """Send bytes and wait for them."""
    connection = connect()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    seconds: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        connection.sendall(b"!")
        if not connection.recv(1):
            again()  # tells the relay that nobody listens
            print(f"ended: gone; again: {again()}")
            return
        seconds.append(time.perf_counter() - began)
    print(min(seconds))


def again() -> str:
    """Return the error of another connection."""
    try:
        with socket.create_connection((ADDRESS, PORT)) as connection:
            return "none" if connection.recv(1) else "ended"
    except OSError as error:
        return type(error).__name__


if os.environ["RANK"] == "0":
    ask()
else:
    answer()
