"""Rank 1 dials rank 0 with one socket until rank 0 listens, and prints what it receives."""

import os
import socket
import time
from pathlib import Path

PORT = int(os.environ["MASTER_PORT"]) + 1
ADDRESS = os.environ["MASTER_ADDR"]
REFUSED = Path(os.environ["REFUSED"])  # exists once rank 1 was refused


def answer() -> None:
    """Listen once the other rank was refused."""
    while not REFUSED.exists():
        time.sleep(0.01)
    with socket.create_server((ADDRESS, PORT)) as listener:
        connection, _ = listener.accept()
        connection.sendall(b"welcome")


def ask() -> None:
    """Dial until somebody listens."""
    with socket.socket() as connection:
        while (status := connection.connect_ex((ADDRESS, PORT))) != 0:
            assert os.strerror(status) == "Connection refused", os.strerror(status)
            REFUSED.touch()
            time.sleep(0.01)
        print(connection.recv(7).decode())


if os.environ["RANK"] == "0":
    answer()
else:
    ask()
