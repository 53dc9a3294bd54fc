"""One rank of a measurement of negotiation: python -m slipstream.bench.negotiate_rank JOB.

Contenders take turns in each round of the measurement: tensors that are new, and those again.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from pathlib import Path

import numpy as np

from slipstream import comm
from slipstream.bench.negotiate_contenders import Contender, Coordinator, Ours
from slipstream.bench.negotiate_job import Negotiated, NegotiateJob, write_results
from slipstream.errors import InternalError

# By column of a turn's numbers.
SECONDS, EXCHANGES, MESSAGES, SENT_BYTES = range(4)


def measure(job: NegotiateJob, contenders: list[Contender]) -> list[Negotiated]:
    """Measures all contenders; blocks for seconds.

    Args:
        job: what is done.
        contenders: in the same order on all ranks.

    Returns:
        Two results for each contender: of new tensors, and of those again.
    """
    turns: dict[tuple[str, bool], list[list[float]]] = {}
    for number in range(job.rounds + 1):
        for contender in contenders:
            names = [f"layer.{i}.weight/{number}" for i in range(job.tensors)]
            for is_new in (True, False):
                random.Random(f"{comm.rank()} {number} {is_new}").shuffle(names)
                turn = _turn(contender, names)
                if number:  # the first one opens what is opened on first use
                    turns.setdefault((contender.name, is_new), []).append(turn)
    return [_result(name, is_new, measured) for (name, is_new), measured in turns.items()]


def _turn(contender: Contender, names: list[str]) -> list[float]:
    """Returns the numbers of the rank that had most of each."""
    effort, sent = contender.effort(), _sent_bytes()
    comm.barrier()
    start = time.perf_counter()
    ready = contender.negotiate(names)
    seconds = time.perf_counter() - start
    if sorted(ready) != sorted(names):
        raise InternalError(f"{contender.name} agreed on tensors that were not submitted")
    done = contender.effort()
    numbers = np.array(
        [
            seconds,
            done.exchanges - effort.exchanges,
            done.messages - effort.messages,
            _sent_bytes() - sent,
        ]
    )
    comm.allreduce(numbers, "max")
    return numbers.tolist()


def _sent_bytes() -> int:
    stats = comm.stats()
    return stats.network_bytes_sent + stats.shm_bytes_sent


def _result(name: str, is_new: bool, turns: list[list[float]]) -> Negotiated:
    def column(number: int) -> tuple[int, ...]:
        return tuple(round(turn[number]) for turn in turns)

    return Negotiated(
        contender=name,
        is_new=is_new,
        seconds=tuple(turn[SECONDS] for turn in turns),
        exchanges=column(EXCHANGES),
        messages=column(MESSAGES),
        sent_bytes=column(SENT_BYTES),
    )


def main(text: str) -> None:
    """Runs a job, together with the other ranks.

    Args:
        text: the job as `NegotiateJob.as_text` writes it.
    """
    job = NegotiateJob.from_text(text)
    gc.disable()  # a collection in one rank would make all wait
    group = comm.init()
    contenders: list[Contender] = [Ours(group, job.cycle_seconds), Coordinator(group)]
    results = measure(job, contenders)
    comm.barrier()
    for contender in contenders:
        contender.close()
    if comm.rank() == 0:
        write_results(Path(job.output), results)
    comm.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
