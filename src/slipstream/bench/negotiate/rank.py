"""One rank of the negotiation benchmark: python -m slipstream.bench.negotiate.rank JOB.

JOB is JSON text from `NegotiateJob.as_text`. In each round of the measurement, the negotiation
methods take turns.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from pathlib import Path

import numpy as np

from slipstream import comm
from slipstream.bench.negotiate.contenders import Coordinator, NegotiationContender, Ours
from slipstream.bench.negotiate.job import (
    CASES,
    ONE_BY_ONE,
    Negotiated,
    NegotiateJob,
    write_results,
)
from slipstream.errors import InternalError

ONE_BY_ONE_TENSORS = 50

# Indices of the measured values in the result of a turn.
SECONDS, EXCHANGES, MESSAGES, SENT_BYTES = range(4)


def measure(job: NegotiateJob, contenders: list[NegotiationContender]) -> list[Negotiated]:
    """Measure all negotiation methods, which takes seconds.

    Args:
        job: Settings, the same on all ranks.
        contenders: Negotiation methods, in the same order on all ranks.

    Returns:
        A result for each negotiation method and case.
    """
    turns: dict[tuple[str, str], list[list[float]]] = {}
    for number in range(job.rounds + 1):
        for contender in contenders:
            names = [f"layer.{i}.weight/{number}" for i in range(job.tensors)]
            some = names[:ONE_BY_ONE_TENSORS]
            contender.prepare(names)
            for case in CASES:
                random.Random(f"{comm.rank()} {number} {case}").shuffle(names)
                batches = [[name] for name in some] if case == ONE_BY_ONE else [names]
                turn = _turn(contender, batches)
                if number:  # the first round is not recorded, because it opens connections
                    turns.setdefault((contender.name, case), []).append(turn)
    return [_result(name, case, measured) for (name, case), measured in turns.items()]


def _turn(contender: NegotiationContender, batches: list[list[str]]) -> list[float]:
    """Negotiate one batch of tensors after another, and return four values, averaged per batch.

    The values are the seconds, the rounds of negotiation, the messages, and the sent bytes. Each
    value is the maximum over all ranks.
    """
    effort, sent = contender.effort(), _sent_bytes()
    comm.barrier()
    start = time.perf_counter()
    ready = [contender.negotiate(names) for names in batches]
    seconds = time.perf_counter() - start
    if [sorted(names) for names in ready] != [sorted(names) for names in batches]:
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
    return (numbers / len(batches)).tolist()


def _sent_bytes() -> int:
    stats = comm.stats()
    return stats.network_bytes_sent + stats.shm_bytes_sent


def _result(name: str, case: str, turns: list[list[float]]) -> Negotiated:
    def column(number: int) -> tuple[int, ...]:
        return tuple(round(turn[number]) for turn in turns)

    return Negotiated(
        contender=name,
        case=case,
        seconds=tuple(turn[SECONDS] for turn in turns),
        exchanges=column(EXCHANGES),
        messages=column(MESSAGES),
        sent_bytes=column(SENT_BYTES),
    )


def main(text: str) -> None:
    """Measure together with the other ranks; rank 0 writes the results.

    Args:
        text: Settings as JSON text, from `NegotiateJob.as_text`.
    """
    job = NegotiateJob.from_text(text)
    gc.disable()  # a garbage collection in one rank would make all ranks wait
    group = comm.init()
    contenders: list[NegotiationContender] = [Ours(group, job.cycle_seconds), Coordinator(group)]
    results = measure(job, contenders)
    comm.barrier()
    for contender in contenders:
        contender.close()
    if comm.rank() == 0:
        write_results(Path(job.output), results)
    comm.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
