"""Allreduces over plain and over encrypted connections, by turns in one lab.

Every rank has two engines, one with TLS and one without, which run the same allreduce one after the
other. So a disturbance meets both alike:

    slipstream lab run --num-hosts 4 --rate 1gbit -- benchmarks/tls/measure.py --link 1e9

Rank 0 prints one JSON document: the median seconds of the slowest rank and the share of the link
that its payload reaches, the CPU seconds of all ranks for each GB that they sent and received, and
the median of the ratios of successive turns.
"""

import argparse
import dataclasses
import json
import os
import resource
import statistics
import time
from pathlib import Path

import numpy as np

from slipstream import _core, comm
from slipstream.comm.config import engine_config
from slipstream.processor import processor_name
from slipstream.settings import Settings, detect_launcher


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One allreduce.

    Args:
        seconds: Time of the slowest rank.
        cpu_seconds: CPU time of all ranks together.
        gigabytes: Bytes that all ranks sent and received, in units of 10^9.
    """

    seconds: float
    cpu_seconds: float
    gigabytes: float


class Engine:
    """An engine beside that of `slipstream.comm`, which brings the addresses together."""

    def __init__(self, *, tls: bool) -> None:
        settings = dataclasses.replace(Settings.from_environment(), tls=tls)
        launch = detect_launcher()
        key = settings.load_job_key()
        assert key is not None
        self._runtime = _core.Runtime(
            rank=comm.rank(),
            world_size=comm.size(),
            epoch=2 + int(tls),
            key=key,
            config=engine_config(settings, launch.master_addr),
        )
        self._runtime.connect(exchanged(self._runtime.address()), 60.0)
        self._group = self._runtime.group("world", list(range(comm.size())))

    def _bytes(self) -> int:
        stats = self._runtime.stats()
        return stats.network_bytes_sent + stats.network_bytes_received

    def turn(self, array: np.ndarray) -> Turn:
        """Run one allreduce of float32 in place."""
        comm.barrier()
        address = array.ctypes.data
        before, cpu, begin = self._bytes(), cpu_seconds(), time.perf_counter()
        self._group.allreduce(
            address, address, array.size, _core.DType.FLOAT32, _core.ReduceOp.SUM
        ).wait()
        own = [time.perf_counter() - begin, cpu_seconds() - cpu, (self._bytes() - before) / 1e9]
        every = comm.all_gather(np.array(own))
        return Turn(
            seconds=float(every[:, 0].max()),
            cpu_seconds=float(every[:, 1].sum()),
            gigabytes=float(every[:, 2].sum()),
        )

    def close(self) -> None:
        """Close the engine."""
        self._runtime.close()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process so far, in user space and in the kernel."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def exchanged(address: bytes) -> list[bytes]:
    """Return the addresses of all ranks."""
    lengths = [int(each) for each in comm.all_gather(np.array([len(address)]))[:, 0]]
    text = comm.all_gather_v(np.frombuffer(address, dtype=np.uint8), lengths).tobytes()
    ends = np.cumsum(lengths)
    return [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def summary(turns: list[Turn], payload_bits: float, link: float) -> dict[str, float]:
    """Return the medians of the turns of one engine."""
    seconds = statistics.median(turn.seconds for turn in turns)
    return {
        "seconds": round(seconds, 4),
        "best_seconds": round(min(turn.seconds for turn in turns), 4),
        "share_of_link": round(payload_bits / seconds / link, 4),
        "cpu_seconds_per_gb": round(
            statistics.median(turn.cpu_seconds / turn.gigabytes for turn in turns), 3
        ),
    }


def main() -> None:
    """Measure both engines by turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--link", type=float, required=True, help="Bit rate of a host's link.")
    parser.add_argument("--bytes", type=int, default=100_000_000, help="Bytes of the buffer.")
    parser.add_argument("--rounds", type=int, default=15, help="Number of timed rounds.")
    parser.add_argument("--warmup", type=int, default=8, help="Rounds that are not counted.")
    parser.add_argument("-o", "--output", type=Path, help="File for the result.")
    options = parser.parse_args()
    before = os.getloadavg()  # other work on this machine, which a measurement of CPU time feels
    comm.init()
    engines = {"plain": Engine(tls=False), "tls": Engine(tls=True)}
    array = np.zeros(options.bytes // 4, dtype=np.float32)
    turns: dict[str, list[Turn]] = {name: [] for name in engines}
    for number in range(options.warmup + options.rounds):
        order = list(engines) if number % 2 == 0 else list(engines)[::-1]
        for name in order:
            turn = engines[name].turn(array)
            if number >= options.warmup:  # the number of streams is tuned at first
                turns[name].append(turn)
    payload_bits = 8 * 2 * (comm.size() - 1) / comm.size() * options.bytes
    pairs = list(zip(turns["plain"], turns["tls"], strict=True))
    result = {
        "hosts": comm.size(),
        "bytes": options.bytes,
        "link_bits_per_second": options.link,
        "rounds": options.rounds,
        "processor": processor_name(),
        "processors": os.cpu_count(),
        "load_average": [round(load, 1) for load in before],
        **{name: summary(each, payload_bits, options.link) for name, each in turns.items()},
        "throughput_of_tls_over_plain": round(
            statistics.median(plain.seconds / tls.seconds for plain, tls in pairs), 4
        ),
    }
    if comm.rank() == 0:
        text = json.dumps(result, indent=2) + "\n"
        print(text, end="")
        if options.output:
            options.output.write_text(text)
    comm.barrier()
    for engine in engines.values():
        engine.close()
    comm.shutdown()


if __name__ == "__main__":
    main()
