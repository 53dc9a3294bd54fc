"""The training that spot_losses.py disturbs: `spot_training.py EPOCHS BATCH SECONDS FOLDER`.

A linear classifier learns to tell ten noisy patterns apart. Members of an elastic job share each
batch, which is the same whatever their number, so lost hosts change the result by rounding only.
Rank 0 keeps the state in a folder that all hosts share, for the case that no member is left.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from slipstream import comm
from slipstream.comm import elastic

EPOCHS, BATCH = int(sys.argv[1]), int(sys.argv[2])
SECONDS, FOLDER = float(sys.argv[3]), Path(sys.argv[4])
INPUTS, CLASSES, SAMPLES = 64, 10, 2000
RATE, KEEP_EVERY = 0.05, 5


def data(num_samples: int, seed: int) -> tuple[Any, Any]:
    """Return noisy patterns and their labels."""
    patterns = np.random.default_rng(0).normal(size=(CLASSES, INPUTS))
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, CLASSES, num_samples)
    return patterns[labels] + 3.0 * draws.normal(size=(num_samples, INPUTS)), labels


INPUTS_OF, LABELS = data(SAMPLES, 1)
TESTED, TRUE = data(4000, 2)


def shares(weights: Any, inputs: Any) -> Any:
    """Return the probability of each class."""
    scores = inputs @ weights
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@elastic.run
def train(state: elastic.ObjectState) -> None:
    """Train to the end; print the begin of each epoch."""
    while state.epoch < EPOCHS:
        order = np.random.default_rng(state.epoch).permutation(SAMPLES)
        if state.position == 0 and comm.rank() == 0:
            tell(begins=state.epoch)
        while state.position < SAMPLES:
            step(state, order[state.position : state.position + BATCH])
            state.position += BATCH
            state.commit()
            keep(state)
            time.sleep(SECONDS)
        state.epoch, state.position = state.epoch + 1, 0
        state.commit()


def step(state: elastic.ObjectState, batch: Any) -> None:
    """Change the weights by the gradient of a batch, of which each rank computes a part."""
    mine = batch[comm.rank() :: comm.size()]
    errors = shares(state.weights, INPUTS_OF[mine])
    errors[np.arange(len(mine)), LABELS[mine]] -= 1
    gradient = INPUTS_OF[mine].T @ errors
    comm.allreduce(gradient)
    state.weights -= RATE / len(batch) * gradient


def tell(**fields: float) -> None:
    """Print fields, and write them where they are not lost with a host."""
    line = json.dumps(fields)
    print(line, flush=True)
    with (FOLDER / "told.jsonl").open("a") as file:
        file.write(f"{line}\n")


def keep(state: elastic.ObjectState) -> None:
    """Write the state into the shared folder after some steps."""
    number = state.epoch * (SAMPLES // BATCH) + state.position // BATCH
    if comm.rank() == 0:
        tell(step=number)
    if comm.rank() == 0 and number % KEEP_EVERY == 0:
        temporary = FOLDER / f"state.{os.uname().nodename}.npz"
        np.savez(temporary, weights=state.weights, epoch=state.epoch, position=state.position)
        temporary.replace(FOLDER / "state.npz")


def main() -> None:
    """Go on from the shared folder, or begin."""
    fields: dict[str, Any] = {"weights": np.zeros((INPUTS, CLASSES)), "epoch": 0, "position": 0}
    if (FOLDER / "state.npz").exists():
        kept = np.load(FOLDER / "state.npz")
        fields = {"weights": kept["weights"], "epoch": int(kept["epoch"])}
        fields["position"] = int(kept["position"])
    state = elastic.ObjectState(**fields)
    train(state)
    accuracy = float((shares(state.weights, TESTED).argmax(axis=1) == TRUE).mean())
    if comm.rank() == 0:
        tell(accuracy=accuracy)


main()
