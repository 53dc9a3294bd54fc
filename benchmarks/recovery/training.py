"""The training that every contender runs, and the log in which a rank notes its completed steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

STEPS = 10**9  # the benchmark ends the training
PAUSE_SECONDS = 0.01  # stands for the computation of a larger model


def folder() -> Path:
    """Return the folder of the job, for logs and checkpoints."""
    return Path(os.environ["RECOVERY_FOLDER"])


def make_model() -> torch.nn.Module:
    """Return a small perceptron."""
    torch.set_num_threads(1)
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer with a state."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train_one_step(
    wrapped: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Callable[[], None] = lambda: None,
) -> None:
    """Train on one random batch; `average` may bring the gradients of all ranks together."""
    optimizer.zero_grad()
    wrapped(torch.randn(16, 256)).square().mean().backward()
    average()
    optimizer.step()
    time.sleep(PAUSE_SECONDS)


class StepLog:
    """The completed steps of this process, one per line: seconds, step, generation, rank, size.

    The generation is a number that grows whenever the group of ranks is made anew.
    """

    def __init__(self) -> None:
        self._file = (folder() / f"{os.getpid()}.log").open("w", buffering=1)

    def add(self, step: int, generation: int, rank: int, size: int) -> None:
        """Note a step that has just been completed."""
        self._file.write(f"{time.time():.6f} {step} {generation} {rank} {size}\n")
