"""Kill ranks with SIGKILL while they save checkpoints; a whole checkpoint is always found.

Each round starts ranks that restore the newest checkpoint, check every element of it, and save one
checkpoint after the other. After a random time one rank is killed, and then the others. A kill
counts if a save was under way. A rank reports a step when its save has ended; from then on, this
step or a later one must be found.

    python tests/soak/checkpoint_kills.py --kills 100 --ranks 2 --seed 1
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

from slipstream import comm
from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.train.checkpoint import Checkpointer, PerRank
from slipstream.train.checkpoint.manifest import MANIFEST, step_of

KEEP = 2
LIMIT_SECONDS = 120.0
LONGEST_SECONDS = 0.4  # several saves of 8 MB


class KillError(Exception):
    """A checkpoint was lost or wrong."""


def state_of(step: int, rank: int, num_elements: int) -> dict:
    """Return a state whose elements all tell the step."""
    return {
        "large": torch.full((num_elements // 100, 100), step, dtype=torch.int32),
        "small": torch.full((10,), step, dtype=torch.int64),
        "own": PerRank(torch.full((1000,), step * 100 + rank)),
        "step": step,
    }


def train(folder: Path, num_elements: int, pipe: int) -> None:
    """Restore, check and save without end, as one rank; tell by the pipe what was done."""
    rank = comm.init().rank
    checkpointer = Checkpointer(folder, keep=KEEP, timeout_seconds=LIMIT_SECONDS)
    state = state_of(-1, rank, num_elements)
    step = checkpointer.restore(state) or 0
    if step:
        expected = state_of(step, rank, num_elements)
        for name in ("large", "small"):
            assert torch.equal(state[name], expected[name]), f"{name} of step {step} is wrong"
        assert torch.equal(state["own"].value, expected["own"].value), f"own part of step {step}"
        assert state["step"] == step
    os.write(pipe, f"restored {step}\n".encode())
    while True:
        step += 1
        checkpointer.save(step, state_of(step, rank, num_elements))
        checkpointer.wait()
        os.write(pipe, f"whole {step}\n".encode())


def start_rank(rank: int, environ: dict[str, str], folder: Path, num_elements: int) -> tuple:
    """Fork a rank; return its process id and the end of its pipe."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    try:
        os.environ.update({**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        train(folder, num_elements, writing)
    except BaseException:  # noqa: BLE001  the top of a process
        os.write(writing, f"failed {traceback.format_exc()}".encode())
    os._exit(1)


class Round:
    """Ranks from their start until they are killed."""

    def __init__(self, folder: Path, num_ranks: int, num_elements: int) -> None:
        environ = {
            "WORLD_SIZE": str(num_ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(find_free_port_pair()),
            "SLIPSTREAM_JOB_KEY": secrets.token_hex(16),
        }
        self.ranks = [start_rank(rank, environ, folder, num_elements) for rank in range(num_ranks)]
        self.texts = {pipe: "" for _, pipe in self.ranks}

    def listen(self, seconds: float) -> None:
        """Take what ranks tell, for some time."""
        ready, _, _ = select.select(list(self.texts), [], [], seconds)
        for pipe in ready:
            self.texts[pipe] += os.read(pipe, 1 << 16).decode()
            if "failed" in self.texts[pipe]:
                raise KillError(self.texts[pipe])

    def wait_for_restored(self) -> int:
        """Return the step that all ranks have restored."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not all("restored" in text for text in self.texts.values()):
            if time.monotonic() > deadline:
                raise KillError(f"ranks do not restore: {self.texts}")
            self.listen(0.1)
        steps = {int(text.split()[1]) for text in self.texts.values()}
        if len(steps) != 1:
            raise KillError(f"ranks restored different steps: {steps}")
        return steps.pop()

    def last_whole(self) -> int:
        """Return the last step that a rank has reported as whole; 0 if there is none."""
        lines = [line for text in self.texts.values() for line in text.split("\n")[:-1]]
        return max([int(line.split()[1]) for line in lines if line.startswith("whole")] + [0])

    def kill(self, order: list[int], pauses: list[float]) -> None:
        """Kill the ranks in an order, with pauses before each; then take what they told."""
        for index, pause in zip(order, pauses, strict=True):
            time.sleep(pause)
            os.kill(self.ranks[index][0], signal.SIGKILL)
        for process, pipe in self.ranks:
            os.waitpid(process, 0)
            while data := os.read(pipe, 1 << 16):
                self.texts[pipe] += data.decode()
            os.close(pipe)


def is_in_save(folder: Path, since: float) -> bool:
    """Return whether a folder of a step has no manifest, and was changed since a time."""
    steps = [path for path in folder.iterdir() if step_of(path.name) is not None]
    return any(not (path / MANIFEST).exists() and path.stat().st_mtime >= since for path in steps)


def run(folder: Path, kills: int, num_ranks: int, num_elements: int, seed: int) -> None:
    """Kill until the number of kills during a save is reached; raise KillError at a loss."""
    draw = random.Random(seed)
    safe = num_rounds = num_counted = num_saved = 0
    while num_counted < kills:
        num_rounds += 1
        began = time.time()
        ranks = Round(folder, num_ranks, num_elements)
        restored = ranks.wait_for_restored()
        if restored < safe:
            raise KillError(f"step {safe} was whole, but step {restored} was restored")
        deadline = time.monotonic() + draw.uniform(0, LONGEST_SECONDS)
        while (rest := deadline - time.monotonic()) > 0:
            ranks.listen(rest)
        order = draw.sample(range(num_ranks), num_ranks)
        ranks.kill(order, [draw.choice((0.0, draw.uniform(0, 0.05))) for _ in order])
        last = ranks.last_whole()
        num_saved += max(last - restored, 0)
        safe = max(safe, restored, last)
        num_counted += is_in_save(folder, began)
        if num_rounds % 20 == 0:
            print(f"{num_rounds} kills, {num_counted} during a save, step {safe}", flush=True)
    ranks = Round(folder, num_ranks, num_elements)
    restored = ranks.wait_for_restored()
    ranks.kill(list(range(num_ranks)), [0.0] * num_ranks)
    if restored < safe:
        raise KillError(f"step {safe} was whole, but step {restored} was restored")
    print(
        f"{num_counted} of {num_rounds} kills came during a save; {num_saved} saves ended;"
        f" a whole checkpoint was found after each ({num_ranks} ranks, seed {seed})"
    )


def main() -> int:
    """Run the command line; return 1 if a checkpoint was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills during a save")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--elements", type=int, default=2_000_000, help="of 4 bytes in a state")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="slipstream-kills-") as folder:
        try:
            run(Path(folder), options.kills, options.ranks, options.elements, options.seed)
        except KillError as error:
            print(f"FAILED with seed {options.seed}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
