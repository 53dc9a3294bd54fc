"""Training beside the saving of 1 GB: Slipstream, torch.save and torch.distributed.checkpoint.

Turns of every contender follow each other, round by round. A turn is a number of training steps, of
which the first one is followed by a save. "none" saves nothing. Numbers are medians over rounds.

    python benchmarks/checkpoints.py --rounds 5 -o checkpoints.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as torch_checkpoint

from slipstream.train.checkpoint import Checkpointer

WIDTH = 2048
ADAM_COPIES = 3  # the parameters and two moments


class Training:
    """A perceptron with AdamW, whose state has a given size."""

    def __init__(self, num_bytes: float, batch: int) -> None:
        layers = round(num_bytes / (4 * ADAM_COPIES * WIDTH * WIDTH))
        modules = [
            module
            for _ in range(layers)
            for module in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
        ]
        self.model = torch.nn.Sequential(*modules)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self._rows = torch.randn(batch, WIDTH)

    def step(self) -> float:
        """Train one step; return its seconds."""
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=False)
        self.model(self._rows).square().mean().backward()
        self.optimizer.step()
        return time.perf_counter() - start

    def state(self) -> dict[str, Any]:
        """Return what is saved."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


class Saver:
    """A contender: `save` returns when training may go on, `wait` when the files are safe."""

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Save nothing."""

    def is_done(self) -> bool:
        """Return whether the last save has ended."""
        return True

    def wait(self) -> None:
        """Block until the last save has ended."""


class SlipstreamSaver(Saver):
    """Checkpointer, which keeps one checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._checkpointer = Checkpointer(folder, keep=1)

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Copy the state and write it beside the training."""
        self._checkpointer.save(step, state)

    def is_done(self) -> bool:
        """Return whether the last save has ended."""
        thread = self._checkpointer._thread
        return thread is None or not thread.is_alive()

    def wait(self) -> None:
        """Block until the last save has ended."""
        self._checkpointer.wait()


class TorchSaver(Saver):
    """torch.save, whose file is then synchronized to the disk."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.pt"

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state, while the training waits."""
        with self._path.open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())


class DcpSaver(Saver):
    """torch.distributed.checkpoint.async_save, with its own format, synchronized to the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._future: Any = None

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Copy the state and write it beside the training."""
        self._future = torch_checkpoint.async_save(state, checkpoint_id=self._folder / "dcp")

    def is_done(self) -> bool:
        """Return whether the last save has ended."""
        return self._future.done()

    def wait(self) -> None:
        """Block until the last save has ended."""
        self._future.result()


def turn(training: Training, saver: Saver, step: int, num_steps: int) -> dict[str, Any]:
    """Train some steps, with a save after the first; return what was measured."""
    training.step()
    begin = time.perf_counter()
    saver.save(step, training.state())
    blocked = time.perf_counter() - begin
    seconds: list[float] = []
    beside = 0
    written = blocked
    while len(seconds) < num_steps or not saver.is_done():
        is_beside = not saver.is_done()
        seconds.append(training.step())
        beside += is_beside
        if is_beside:
            written = time.perf_counter() - begin
    saver.wait()
    return {"blocked": blocked, "steps": seconds, "beside": beside, "written": written}


def summary(turns: list[dict[str, Any]], base: list[dict[str, Any]], num_bytes: int) -> dict:
    """Return medians over rounds; ratios are those to the turn without a save of the round."""
    pairs = list(zip(turns, base, strict=True))

    def mean(of: dict[str, Any]) -> float:
        return statistics.mean(of["steps"])

    beside = [(one, other) for one, other in pairs if one["beside"]]
    return {
        "blocked_seconds": statistics.median(one["blocked"] for one in turns),
        "written_seconds": statistics.median(one["written"] for one in turns),
        "megabytes_per_second": statistics.median(
            num_bytes / one["written"] / 1e6 for one in turns
        ),
        "step_seconds": statistics.median(mean(one) for one in turns),
        "slowdown_of_steps": statistics.median(mean(one) / mean(other) - 1 for one, other in pairs),
        "slowdown_beside_the_save": statistics.median(
            statistics.mean(one["steps"][: one["beside"]]) / mean(other) - 1
            for one, other in beside
        )
        if beside
        else None,
        "slowdown_with_blocking": statistics.median(
            (one["blocked"] + sum(one["steps"])) / len(one["steps"]) / mean(other) - 1
            for one, other in pairs
        ),
    }


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run all rounds; return the summaries by contender."""
    training = Training(options.gigabytes * 1e9, options.batch)
    training.step()
    num_bytes = sum(
        tensor.nbytes
        for tensor in [
            *training.model.state_dict().values(),
            *(item for entry in training.optimizer.state.values() for item in entry.values()),
        ]
    )
    kinds: dict[str, Callable[[Path], Saver]] = {
        "none": lambda _: Saver(),
        "slipstream": SlipstreamSaver,
        "torch.save": TorchSaver,
        "dcp.async_save": DcpSaver,
    }
    savers: dict[str, Saver] = {}
    for name, make in kinds.items():
        (folder / name).mkdir()
        savers[name] = make(folder / name)
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    for number in range(options.rounds + 1):
        for name, saver in savers.items():
            result = turn(training, saver, number, options.steps)
            if number:  # the first round reserves memory
                turns[name].append(result)
            print(name, {key: result[key] for key in ("blocked", "written", "beside")}, flush=True)
    results = {name: summary(of, turns["none"], num_bytes) for name, of in turns.items()}
    return {"num_bytes": num_bytes, "options": vars(options), "results": results, "turns": turns}


def main() -> None:
    """Run the command line, and print a row for each contender."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15, help="at least, after each save")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of the state")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measured = measure(options, Path(folder))
    for name, row in measured["results"].items():
        cells = {key: None if value is None else round(value, 3) for key, value in row.items()}
        print(f"{name:15} {cells}")
    if options.output:
        options.output.write_text(json.dumps(measured, default=str))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
