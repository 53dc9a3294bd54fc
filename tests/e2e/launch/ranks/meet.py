"""Ranks that find one another through what the launcher told them, and nothing else.

Rank 0 listens; every other rank sends it its number; rank 0 prints who came.
"""

import os
import socket
import time

from slipstream.settings import Launch, Settings, detect_launcher

LIMIT_SECONDS = 60.0


def gather(launch: Launch, port: int) -> list[int]:
    """Return the numbers of all ranks, at rank 0."""
    came = [0]
    both = {"family": socket.AF_INET6, "dualstack_ipv6": True}
    with socket.create_server(("", port), **both) as server:
        server.settimeout(LIMIT_SECONDS)
        while len(came) < launch.world_size:
            connection, _ = server.accept()
            with connection:
                came.append(int(connection.recv(16)))
                connection.sendall(b"seen")
    return sorted(came)


def report(launch: Launch, port: int) -> None:
    """Tell rank 0 that this rank is there, as soon as rank 0 listens."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            with socket.create_connection((launch.master_addr, port), timeout=5) as connection:
                connection.sendall(str(launch.rank).encode())
                assert connection.recv(16) == b"seen"
                return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def main() -> None:
    """Meet, and print what the launcher said."""
    launch = detect_launcher()
    settings = Settings.from_environment()
    port = settings.listen_port(launch)
    key = settings.load_job_key()
    print(
        f"rank {launch.rank}/{launch.world_size} local {launch.local_rank} from {launch.source}"
        f" key {len(key or b'')} threads {os.environ.get('OMP_NUM_THREADS')}"
    )
    if launch.rank == 0:
        print("met", *gather(launch, port))
    else:
        report(launch, port)


if __name__ == "__main__":
    main()
