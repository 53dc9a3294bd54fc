"""One rank of the training that chaos.py disturbs: `chaos_rank.py SEED EPOCHS SAMPLES BATCH FILE`.

The training ends after EPOCHS passes over the samples, but not before FILE exists.

A network of two layers learns to tell ten noisy patterns apart. A batch is the same whatever the
number of ranks, so faults change the result by rounding only. Each rank counts the samples that it
has really used; the counts are summed with the gradients, and are a part of the state.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from slipstream import comm
from slipstream.comm import elastic

SEED, EPOCHS, SAMPLES, BATCH = (int(each) for each in sys.argv[1:5])
END = Path(sys.argv[5])
INPUTS, HIDDEN, CLASSES = 64, 32, 10
RATE = 0.1


def data(num_samples: int, seed: int) -> tuple[Any, Any]:
    patterns = np.random.default_rng(SEED).normal(size=(CLASSES, INPUTS))
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, CLASSES, num_samples)
    return patterns[labels] + 2.5 * draws.normal(size=(num_samples, INPUTS)), labels


def forward(weights: dict[str, Any], inputs: Any) -> tuple[Any, Any]:
    hidden = np.maximum(inputs @ weights["first"], 0)
    scores = hidden @ weights["second"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def gradients(weights: dict[str, Any], inputs: Any, labels: Any) -> dict[str, Any]:
    """Return the gradients of the sum of the losses."""
    hidden, shares = forward(weights, inputs)
    errors = shares
    errors[np.arange(len(labels)), labels] -= 1
    back = (errors @ weights["second"].T) * (hidden > 0)
    return {"first": inputs.T @ back, "second": hidden.T @ errors}


INPUTS_OF, LABELS = data(SAMPLES, SEED + 1)
TESTED, TRUE = data(4000, SEED + 2)


def train(state: elastic.ObjectState) -> None:
    report(epoch=elastic.session().epoch.number)
    while not state.ends:
        order = np.random.default_rng(SEED + state.pass_number).permutation(SAMPLES)
        while state.position < SAMPLES:
            batch = order[state.position : state.position + BATCH]
            step(state, batch)
            state.position += len(batch)
            state.commit()
        assert (state.counts == state.pass_number + 1).all(), "samples were lost or used twice"
        state.pass_number += 1
        state.position = 0
        state.ends = may_end(state.pass_number)
        state.commit()


def may_end(num_passes: int) -> bool:
    """Return rank 0's answer."""
    answer = np.array([comm.rank() == 0 and num_passes >= EPOCHS and END.exists()], np.int32)
    comm.broadcast(answer, 0)
    return bool(answer[0])


def step(state: elastic.ObjectState, batch: Any) -> None:
    mine = batch[comm.rank() :: comm.size()]
    changes = gradients(state.weights, INPUTS_OF[mine], LABELS[mine])
    counts = np.zeros(SAMPLES)
    counts[mine] += 1
    for values in (*changes.values(), counts):
        comm.allreduce(values)
    for name, values in changes.items():
        state.weights[name] -= RATE / len(batch) * values
    state.counts += counts


def cut_a_connection(*_: object) -> None:
    """Shut one of this process's TCP connections down, as a fault of the network would."""
    threading.Thread(target=_cut, daemon=True).start()


def _cut() -> None:
    own = elastic.session().me.place[1]
    for name in sorted(os.listdir("/proc/self/fd"), key=lambda _: os.urandom(4)):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            end = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with end:
            try:
                if (
                    end.family == socket.AF_INET
                    and end.getpeername()
                    and end.getsockname()[1] != own
                ):
                    end.shutdown(socket.SHUT_RDWR)
                    return
            except OSError:
                continue


def report(**values: object) -> None:
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    files = len(os.listdir("/proc/self/fd"))
    facts = {"pid": os.getpid(), "rank": comm.rank(), "size": comm.size()}
    print(json.dumps(facts | {"memory": memory, "files": files} | values), flush=True)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    signal.signal(signal.SIGUSR2, cut_a_connection)
    draws = np.random.default_rng(SEED)
    weights = {
        "first": draws.normal(size=(INPUTS, HIDDEN)) / 8,
        "second": draws.normal(size=(HIDDEN, CLASSES)) / 6,
    }
    state = elastic.ObjectState(
        weights=weights, counts=np.zeros(SAMPLES), pass_number=0, position=0, ends=False
    )
    elastic.run(train)(state)
    accuracy = float((forward(state.weights, TESTED)[1].argmax(axis=1) == TRUE).mean())
    digest = float(sum(np.abs(values).sum() for values in state.weights.values()))
    report(
        accuracy=accuracy,
        digest=digest,
        passes=state.pass_number,
        reopened=comm.stats().streams_reopened,
    )


if __name__ == "__main__":
    main()
