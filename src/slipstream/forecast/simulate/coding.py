"""Gradient compression: the bytes on the wire between hosts, and the time of encoding.

A chunk is encoded while another chunk is sent, so only the slower of the two activities counts.
"""

from __future__ import annotations

from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.work.strategy import WIRE_SHARE

# Bytes of fp32 per second that a core processes if it encodes them, decodes and adds them, and
# decodes the sum. The numbers follow from the rates of these three steps in GB/s, for 64 MiB on a
# core of an AMD EPYC 9004 (core/bench/wire_bench.cc): 1 / (1/12.0 + 1/17.0 + 1/13.4) in fp16, 1 /
# (1/16.9 + 1/17.6 + 1/14.7) in bf16 and 1 / (1/15.7 + 1/18.9 + 1/16.2) in int8.
_CORE_RATES = {"fp16": 4.6e9, "bf16": 5.4e9, "int8": 5.6e9}


def wire_bytes(job: TrainingJob) -> float:
    """Return the bytes on the wire per gradient element; only traffic between hosts is compressed.

    Args:
        job: Job with its strategy and cluster.
    """
    return 4 * WIRE_SHARE[job.strategy.codec] if _is_coded(job) else job.gradient_bytes


def coding_seconds(numbers: float, job: TrainingJob) -> float:
    """Return the seconds in which a rank's CPU core encodes and decodes its part of a gradient.

    The ranks of a host divide the gradient into equal parts.

    Args:
        numbers: Number of elements of the gradient.
        job: Job with its strategy and cluster.
    """
    if not _is_coded(job):
        return 0.0
    part = numbers / min(job.cluster.per_host, job.strategy.ranks)
    return 4 * part / _CORE_RATES[job.strategy.codec]


def _is_coded(job: TrainingJob) -> bool:
    several = job.strategy.ranks > job.cluster.per_host
    return several and 4 * WIRE_SHARE[job.strategy.codec] < job.gradient_bytes
