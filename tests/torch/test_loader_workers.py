"""A rank is killed whose DataLoader's workers live on, with copies of all that it had open."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.multiprocess

RANK = """
import os, sys, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return os.getpid()

if __name__ == "__main__":
    dist.init_process_group("slipstream")
    value = torch.ones(100_000)
    dist.all_reduce(value)  # connected before the workers are forked
    loader = DataLoader(
        Numbers(), num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    batches = iter(loader)
    workers = {int(next(batches)) for _ in range(2)}
    print("workers", *workers, flush=True)
    dist.barrier()
    if dist.get_rank() == 1:
        print("ready", flush=True)
        sys.stdin.read()
    try:
        dist.all_reduce(value)
    except RuntimeError as error:
        print("heard", time.time(), error, flush=True)
    os._exit(0)
"""
LIMIT_SECONDS = 60.0
AT_ONCE_SECONDS = 2.0  # heartbeats alone would take five


@contextlib.contextmanager
def started(script: Path, rank: int, port: int, host: str) -> Iterator[subprocess.Popen[str]]:
    """Yield one rank, which ends with the block."""
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **{"RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            "SLIPSTREAM_HOST_ID": host,
        },
    )
    with process:
        yield process
        process.kill()


def line(process: subprocess.Popen[str], word: str) -> str:
    """Return the text after the word in the next line that begins with it."""
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith(word):
            return text[len(word) :].strip()
    raise AssertionError(f"no {word!r}: the rank ended with status {process.wait()}")


def alive(process: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow("workers that outlive their rank")
@pytest.mark.parametrize("hosts", [("same", "same"), ("one", "another")], ids=["shm", "tcp"])
def test_rank_whose_workers_live_on_is_missed_at_once(
    tmp_path: Path, hosts: tuple[str, str]
) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (
        started(script, 0, port, hosts[0]) as survivor,
        started(script, 1, port, hosts[1]) as victim,
    ):
        workers = [int(text) for text in line(victim, "workers").split()]
        line(victim, "ready")
        line(survivor, "workers")
        try:
            for worker in workers:
                os.kill(worker, signal.SIGSTOP)  # else they would notice that their parent is gone
            killed = time.time()
            victim.kill()
            heard, _, error = line(survivor, "heard").partition(" ")
            assert all(alive(worker) for worker in workers)
        finally:
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
    assert "rank 1" in error
    assert float(heard) - killed < AT_ONCE_SECONDS, error
