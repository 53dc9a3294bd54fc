"""Measurement of the NCCL plugin between two simulated hosts, or on this machine.

    report = measure(PluginSpec(lab=LabSpec(hosts=2, rate="1gbit", flow_rate="250mbit")), print)

The ranks call the plugin as NCCL does, so neither NCCL nor a GPU is needed. One rank sends and the
other one receives.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slipstream.bench.comm.limits import host_bits_per_second
from slipstream.bench.limits import GOODPUT
from slipstream.bench.plugin.job import PluginJob, PluginSamples, read_samples
from slipstream.cluster.launch.nccl import plugin_library
from slipstream.errors import SlipstreamError, UsageError
from slipstream.lab import Lab, LabSpec

NUM_LAST_LINES = 20  # lines of a failed program that an error quotes

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginSpec:
    """Settings of a measurement of the NCCL plugin.

    Args:
        lab: Description of two simulated hosts with one rank each (default None: two processes of
            this machine).
        sizes: Sizes of the messages in bytes, at least 1.
        request_bytes: Largest size of one request in bytes, at least 1; larger messages are split.
            The requests of NCCL have at most 1 MiB.
        streams: Numbers of TCP connections with which the plugin is measured, 1 to 64 each.
        sockets: Numbers of plain sockets that are measured in place of the plugin, 1 to 64 each.
        rounds: Number of rounds, at least 1; each round measures everything once.
    """

    lab: LabSpec | None = None
    sizes: tuple[int, ...] = (64_000_000,)
    request_bytes: int = 64_000_000
    streams: tuple[int, ...] = (8, 1)
    sockets: tuple[int, ...] = (1, 8)
    rounds: int = 5

    def __post_init__(self) -> None:
        """Check the values."""
        for name, values in (("sizes", self.sizes), ("streams", self.streams)):
            if not values or min(values) < 1:
                raise UsageError(f"{name} is {values}; allowed: one or more numbers from 1")
        for name, count in (("rounds", self.rounds), ("request_bytes", self.request_bytes)):
            if count < 1:
                raise UsageError(f"{name} is {count}; allowed: at least 1")
        for count in (*self.streams, *self.sockets):
            if not 1 <= count <= 64:
                raise UsageError(f"the number of connections is {count}; allowed: 1 to 64")
        if 1 not in self.sockets:
            raise UsageError("sockets lacks 1, with which all others are compared")
        if self.lab is not None and self.lab.world_size != 2:
            raise UsageError(f"the lab has {self.lab.world_size} ranks; allowed: 2 hosts of 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginReport:
    """Results of a measurement of the NCCL plugin.

    Args:
        spec: Settings of the measurement.
        samples: Results, one for each size and each way to send, sorted by size.
    """

    spec: PluginSpec
    samples: tuple[PluginSamples, ...]

    def of(self, contender: str, size: int) -> PluginSamples:
        """Return the result for one way to send and one size of message.

        Raises:
            KeyError: there is no such result.
        """
        for each in self.samples:
            if (each.contender, each.size) == (contender, size):
                return each
        raise KeyError(f"{contender} with {size} bytes")

    def times_faster(self, samples: PluginSamples) -> float:
        """Return the median time of one plain socket divided by the median time of `samples`."""
        return self.of("1 plain socket", samples.size).median / samples.median

    def limit_share(self, samples: PluginSamples) -> float | None:
        """Return the measured rate divided by the link's payload rate; None without `spec.lab`."""
        if self.spec.lab is None:
            return None
        rate = host_bits_per_second(self.spec.lab) * GOODPUT
        return 8 * samples.size / rate / samples.median


def measure(spec: PluginSpec, on_note: OnNote) -> PluginReport:
    """Run the measurement, which takes seconds to minutes.

    Args:
        spec: Settings of the measurement.
        on_note: Function that receives the name of the next measurement.

    Raises:
        ConfigError: this installation has no plugin.
        UnsupportedError: the simulated hosts cannot be made.
        SlipstreamError: a rank failed.
    """
    plugin_library()
    with tempfile.TemporaryDirectory(prefix="slipstream-plugin-") as folder:
        output = Path(folder) / "samples.json"
        job = PluginJob(
            sizes=spec.sizes,
            request_bytes=spec.request_bytes,
            streams=spec.streams,
            sockets=spec.sockets,
            rounds=spec.rounds,
            output=str(output),
        )
        program = ["-m", "slipstream.bench.plugin.rank", job.as_text()]
        on_note(f"{spec.rounds} rounds of {len(spec.streams) + len(spec.sockets)} contenders")
        if spec.lab is None:
            _run_here(program)
        else:
            with Lab(spec.lab) as lab:
                lab.run([sys.executable, *program])
        return PluginReport(spec=spec, samples=tuple(_sorted(spec, read_samples(output))))


def _run_here(program: list[str]) -> None:
    launcher = [sys.executable, "-m", "slipstream.cli", "run", "-n", "2", "--no-color"]
    command = [*launcher, *program]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stdout + done.stderr).splitlines()[-NUM_LAST_LINES:]
        raise SlipstreamError(
            "\n    ".join([f"{command[0]} ended with {done.returncode}; its last lines:", *last])
        )


def _sorted(spec: PluginSpec, samples: list[PluginSamples]) -> list[PluginSamples]:
    """Return samples sorted by size; samples of the same size keep their order."""
    return sorted(samples, key=lambda each: spec.sizes.index(each.size))
