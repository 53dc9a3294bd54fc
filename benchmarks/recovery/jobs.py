"""The jobs of the contenders: how each is started, what its ranks log, and how it is ended."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LIMIT_SECONDS = 120.0  # for a start, and for a recovery; a slower one counts as none
_END_SECONDS = 20.0
_POLL_SECONDS = 0.002


class JobError(Exception):
    """A job did not start, or did not recover."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A completed step of a rank; see training.StepLog."""

    seconds: float
    generation: int
    rank: int
    size: int


class Job:
    """A training of some ranks on this machine.

    Args:
        folder: Folder for logs and checkpoints of this job.
        ranks: Number of ranks.
    """

    name = ""
    restarts_everybody = False  # whether the survivors of a fault are started again as well

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder = folder
        self.ranks = ranks
        self.output = folder / "output"
        self.entries: dict[int, list[Entry]] = {}
        self._read: dict[int, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    @classmethod
    def missing(cls) -> str:
        """Return what must be installed for this contender; empty if nothing is missing."""
        return ""

    def start(self) -> None:
        """Start the launcher."""
        self._spawn(self.command())

    def command(self) -> list[str]:
        """Return the command of the launcher."""
        raise NotImplementedError

    def environ(self) -> dict[str, str]:
        """Return the environment variables that the contender needs."""
        return {}

    def _spawn(self, command: list[str], **environ: str) -> subprocess.Popen[bytes]:
        fixed = {"RECOVERY_FOLDER": str(self._folder), "OMP_NUM_THREADS": "1"}
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **fixed, **self.environ(), **environ},
                stdout=output,
                stderr=output,
            )
        self._processes.append(process)
        return process

    # ---- what the ranks log ----

    def look(self) -> None:
        """Read what the ranks have logged since the last call."""
        for path in self._folder.glob("*.log"):
            pid = int(path.stem)
            with path.open() as file:
                file.seek(self._read.get(pid, 0))
                text = file.read()
            whole = text[: text.rfind("\n") + 1]
            self._read[pid] = self._read.get(pid, 0) + len(whole)
            entries = self.entries.setdefault(pid, [])
            for line in whole.splitlines():
                seconds, _, generation, rank, size = line.split()
                entry = Entry(
                    seconds=float(seconds),
                    generation=int(generation),
                    rank=int(rank),
                    size=int(size),
                )
                entries.append(entry)

    def living(self) -> dict[int, Entry]:
        """Return the last step of each process that lives, by process id."""
        return {
            pid: entries[-1]
            for pid, entries in self.entries.items()
            if entries and Path(f"/proc/{pid}").exists()
        }

    def is_whole(self) -> bool:
        """Return whether all ranks train together."""
        last = list(self.living().values())
        generations = {each.generation for each in last}
        return (
            {each.rank for each in last} == set(range(self.ranks))
            and len(last) == self.ranks
            and {each.size for each in last} == {self.ranks}
            and len(generations) == 1
        )

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Read the logs until a condition holds.

        Raises:
            JobError: it did not hold in time.
        """
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            self.look()
            if condition():
                return
            if time.monotonic() > deadline:
                raise JobError(f"{self.name}: {what} did not happen in {LIMIT_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    # ---- end ----

    def end(self) -> None:
        """End the launcher and all ranks."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self.look()
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()


class SlipstreamJob(Job):
    """Elastic training by `slipstream run --min`, which replaces the killed ranks."""

    name = "slipstream"

    def command(self) -> list[str]:
        """Return the command of the launcher."""
        options = ["--min", "1", "--max", str(self.ranks), "--grace", "5s"]
        return [
            *(sys.executable, "-m", "slipstream.cli", "run", *options),
            *(sys.executable, str(HERE / "rank_slipstream.py")),
        ]


class TorchrunJob(Job):
    """torchrun on one node with the c10d rendezvous.

    By default, the workers of every restart use the same store (PyTorch 2.13), in which gloo finds
    the addresses of the processes of the last attempt, and waits for them until its timeout. A
    variable of PyTorch makes a new store for each attempt.
    """

    name = "torchrun"
    restarts_everybody = True

    def environ(self) -> dict[str, str]:
        """Return the environment variables that the contender needs."""
        return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def command(self) -> list[str]:
        """Return the command of the launcher."""
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
            *("--nproc-per-node", str(self.ranks), "--max-restarts", "100"),
            *("--monitor-interval", "0.1", str(HERE / "rank_torchrun.py")),
        ]


class TorchftJob(Job):
    """torchft with a lighthouse, and a replica group of each process, which is started again."""

    name = "torchft"

    @classmethod
    def missing(cls) -> str:
        """Return what must be installed for this contender; empty if nothing is missing."""
        return "" if importlib.util.find_spec("torchft") else "torchft"

    def start(self) -> None:
        """Start the lighthouse and the replicas."""
        self._ends = False
        port = _free_port()
        self._address = f"http://localhost:{port}"
        self._spawn(
            [
                *(str(Path(sys.executable).with_name("torchft_lighthouse")), "--bind"),
                *(f"[::]:{port}", "--min_replicas", "1", "--quorum_tick_ms", "50"),
                *("--join_timeout_ms", "1000", "--heartbeat_timeout_ms", "1000"),
            ]
        )
        self._keepers = [
            threading.Thread(target=self._keep, args=(slot,)) for slot in range(self.ranks)
        ]
        for keeper in self._keepers:
            keeper.start()

    def _keep(self, slot: int) -> None:
        command = [sys.executable, str(HERE / "rank_torchft.py")]
        while not self._ends:
            environ = {"RECOVERY_SLOT": str(slot), "TORCHFT_LIGHTHOUSE": self._address}
            self._spawn(command, **environ).wait()
            time.sleep(1.0)

    def end(self) -> None:
        """End the lighthouse and all replicas."""
        self._ends = True
        super().end()
        for keeper in self._keepers:
            keeper.join()
        super().end()


KINDS: dict[str, type[Job]] = {job.name: job for job in (SlipstreamJob, TorchrunJob, TorchftJob)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]
