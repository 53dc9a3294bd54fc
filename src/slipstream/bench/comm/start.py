"""Start of the ranks of a measurement: in a lab, on this machine, or with mpirun."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slipstream.bench.comm.job import NOTE, READ, CommJob, CommSamples, read_samples
from slipstream.bench.devices import (
    CPU,
    NCCL,
    NCCL_PLUGIN,
    NCCL_TUNED,
    NCCL_WAYS,
    nccl_obstacle,
)
from slipstream.errors import SlipstreamError, UnsupportedError
from slipstream.lab import Lab, LabCounters
from slipstream.lab.network import INTERFACE
from slipstream.processor import num_gpus

NUM_LAST_LINES = 20  # last lines of a failed program's output, which the error quotes

OnNote = Callable[[str], None]


def check_torch() -> None:
    """Check that PyTorch is installed.

    Raises:
        UnsupportedError: PyTorch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise UnsupportedError(
            "this benchmark needs PyTorch, which is not installed: pip install 'slipstream[torch]'"
        )


def obstacles(
    peers: Sequence[str], ranks: int, lab: Lab | None, device: str = CPU
) -> dict[str, str]:
    """Return the implementations that cannot be measured, each with the reason.

    Args:
        peers: Names of the implementations that are compared with Slipstream.
        ranks: Number of ranks of the measurement.
        lab: Lab on whose hosts the ranks run; None if they run on this machine.
        device: PyTorch's name of the device that has the tensors (default "cpu").
    """
    reasons = {peer: _obstacle(peer, ranks, lab, device) for peer in peers}
    return {peer: reason for peer, reason in reasons.items() if reason}


def _obstacle(peer: str, ranks: int, lab: Lab | None, device: str) -> str:
    if device != CPU and peer in NCCL_WAYS:
        return nccl_obstacle(peer, device, lab.spec.ranks_per_host if lab else ranks)
    if peer in (NCCL_TUNED, NCCL_PLUGIN):
        return f"NCCL has no code for tensors of {device}"
    if peer == "mpi":
        if device != CPU:
            return f"it is measured on tensors of the CPU only, not of {device}"
        if lab is not None and lab.is_relayed:
            return "the lab has a relay, which does not know the hosts of mpirun"
        if shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None:
            return "it needs mpirun and mpi4py"
        if lab is not None and "Open MPI" not in _version_of_mpirun():
            return "in a lab, only the mpirun of Open MPI can reach the hosts"
    if peer == NCCL and num_gpus() < ranks:
        return f"it needs a GPU for each of {ranks} ranks; this machine has {num_gpus()}"
    return ""


def _version_of_mpirun() -> str:
    done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def run_in_lab(
    lab: Lab, job: CommJob, environ: Mapping[str, str], on_note: OnNote
) -> tuple[list[CommSamples], dict[int, LabCounters]]:
    """Run the benchmark's ranks on all hosts of a lab, and wait until they have ended.

    Returns:
        A pair: the measured times that rank 0 wrote, and a dictionary from the identifier of each
        reading to the values of the link counters.

    Raises:
        SlipstreamError: a rank failed.
    """
    readings: dict[int, LabCounters] = {}

    def take(rank: int, line: str) -> None:
        if rank == 0 and line.startswith(READ):
            number = int(line.removeprefix(READ))
            readings[number] = lab.counters()
            job.reading(number).touch()
        elif rank == 0 and line.startswith(NOTE):
            on_note(line.removeprefix(NOTE))

    command = [sys.executable, "-m", "slipstream.bench.comm.rank", job.as_text()]
    lab.run(command, environ=environ, on_line=take)
    return read_samples(job.output), readings


def run_here(
    job: CommJob, ranks: int, environ: Mapping[str, str], on_note: OnNote
) -> list[CommSamples]:
    """Run the benchmark's ranks on this machine, and wait until they have ended.

    Raises:
        SlipstreamError: a rank failed.
    """
    launcher = [sys.executable, "-m", "slipstream.cli", "run", "-n", str(ranks), "--no-color"]
    _follow([*launcher, "-m", "slipstream.bench.comm.rank", job.as_text()], environ, on_note)
    return read_samples(job.output)


def run_mpi(job: CommJob, ranks: int, lab: Lab | None, on_note: OnNote) -> list[CommSamples]:
    """Run the ranks with mpirun; in a lab, each rank runs in the network namespace of its host.

    Raises:
        SlipstreamError: a rank failed.
    """
    program = [sys.executable, "-m", "slipstream.bench.comm.mpi", job.as_text()]
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    if lab is None:
        _follow(["mpirun", *options, *program], {}, on_note)
        return read_samples(job.output)
    agent = Path(job.folder) / "agent"
    agent.write_text(_agent(lab))
    agent.chmod(0o755)
    hosts = [f"host{host}:{lab.spec.ranks_per_host}" for host in range(lab.spec.hosts)]
    options += ["-H", ",".join(hosts)]
    for name, value in (
        ("plm_rsh_agent", str(agent)),
        ("plm_rsh_no_tree_spawn", "1"),
        ("oob_tcp_if_include", INTERFACE),
        ("btl_tcp_if_include", INTERFACE),
        ("btl", "self,vader,tcp"),
        ("orte_keep_fqdn_hostnames", "1"),
    ):
        options += ["--mca", name, value]
    inside = _entry(lab, 0, f"exec {shlex.join(['mpirun', *options, *program])}")
    _follow(inside, {}, on_note)
    return read_samples(job.output)


def _agent(lab: Lab) -> str:
    """Return a shell script that mpirun calls with a host and a command, as it would call ssh."""
    cases = [
        f'host{host}) exec {shlex.join(_entry(lab, host, ""))[:-3]} "$*" ;;'
        for host in range(lab.spec.hosts)
    ]
    return "\n".join(["#!/bin/sh", "host=$1", "shift", 'case "$host" in', *cases, "esac", ""])


def _entry(lab: Lab, host: int, command: str) -> list[str]:
    """Return the arguments that run a shell command in the network namespace of a host."""
    enter = ["ip", "netns", "exec", lab.namespaces[host], "unshare", "--uts", "sh", "-c"]
    return [*enter, f'hostname host{host}; eval "$0"', command]


def _follow(command: Sequence[str], environ: Mapping[str, str], on_note: OnNote) -> None:
    """Run a command to its end, and pass each line of progress in its output to `on_note`."""
    last: deque[str] = deque(maxlen=NUM_LAST_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **environ},
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last.append(line.rstrip())
                if note := re.search(f"{NOTE}(.*)", line):
                    on_note(note[1])
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise SlipstreamError(
            "\n    ".join([f"{command[0]} ended with {process.returncode}; its last lines:", *last])
        )
