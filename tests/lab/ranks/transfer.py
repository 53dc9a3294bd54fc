"""Bytes from some ranks to others over plain TCP: `transfer.py BYTES STREAMS FROM:TO...`.

The sender begins when all streams are there. The receiver prints a line of JSON per transfer when
all of its streams have ended.
"""

import json
import os
import socket
import sys
import threading
import time

RANK = int(os.environ["RANK"])
BASE_PORT = int(os.environ["MASTER_PORT"])
ADDRESSES = os.environ["LAB_ADDRESSES"].split(",")
CHUNK = bytes(1 << 20)


def port_of(source: int, target: int) -> int:
    return BASE_PORT + 10 + 64 * source + target


def receive(source: int, num_streams: int) -> None:
    """Take the streams of one sender and print how fast each was."""
    listener = socket.create_server((ADDRESSES[RANK], port_of(source, RANK)))
    streams = [listener.accept()[0] for _ in range(num_streams)]
    counts = [0] * num_streams
    seconds = [0.0] * num_streams

    def drain(index: int) -> None:
        buffer = bytearray(1 << 18)
        while size := streams[index].recv_into(buffer):
            counts[index] += size
        seconds[index] = time.monotonic() - began

    began = time.monotonic()
    for stream in streams:
        stream.send(b"!")
    threads = [threading.Thread(target=drain, args=(index,)) for index in range(num_streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = {"from": source, "to": RANK, "bytes": counts, "seconds": seconds}
    print(json.dumps(report), flush=True)


def send(target: int, num_bytes: int, num_streams: int) -> None:
    """Send the same number of bytes on every stream."""

    def fill() -> None:
        left = num_bytes // num_streams
        with connect(target) as stream:
            stream.recv(1)
            while left > 0:
                left -= stream.send(CHUNK[:left])

    threads = [threading.Thread(target=fill) for _ in range(num_streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def connect(target: int) -> socket.socket:
    """Return a connection to a rank that may not listen yet."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((ADDRESSES[target], port_of(RANK, target)), 20)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def main() -> None:
    num_bytes, num_streams = int(sys.argv[1]), int(sys.argv[2])
    pairs = [tuple(map(int, pair.split(":"))) for pair in sys.argv[3:]]
    work = [
        threading.Thread(target=receive, args=(source, num_streams))
        for source, target in pairs
        if target == RANK
    ]
    work += [
        threading.Thread(target=send, args=(target, num_bytes, num_streams))
        for source, target in pairs
        if source == RANK
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


if __name__ == "__main__":
    main()
