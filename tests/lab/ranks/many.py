"""Rank 1 opens 300 connections to rank 0 at once, and counts the answers."""

import os
import resource
import socket
import time

PORT = int(os.environ["MASTER_PORT"]) + 1
ADDRESS = os.environ["MASTER_ADDR"]
COUNT = 300


def raise_limit() -> None:
    """Let this rank open files for all of its connections."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def answer() -> None:
    """Answer once all connections are open."""
    with socket.create_server((ADDRESS, PORT), backlog=COUNT) as listener:
        listener.settimeout(20)
        connections = [listener.accept()[0] for _ in range(COUNT)]
    for connection in connections:
        connection.sendall(b"!")
    for connection in connections:
        connection.recv(1)


def connect() -> socket.socket:
    """Return a connection to the other rank, which may not listen yet."""
    while True:
        try:
            return socket.create_connection((ADDRESS, PORT), timeout=20)
        except ConnectionRefusedError:
            time.sleep(0.01)


def ask() -> None:
    """Open all connections, and then read from each."""
    connections = [connect() for _ in range(COUNT)]
    print(sum(connection.recv(1) == b"!" for connection in connections), "answers")


raise_limit()
if os.environ["RANK"] == "0":
    answer()
else:
    ask()
