"""Seconds from kill -9 of a rank to the next completed step of all survivors, beside torchrun.

Slipstream's survivors go on in their processes. torchrun starts all workers again, which load a
checkpoint of each step; a contender counts only if it recovers every time. Contenders take turns.

    python benchmarks/recovery.py --ranks 4 8 --rounds 3 -o recovery.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 180.0
STEPS = 10**9  # the benchmark ends the training


def main_of_slipstream() -> None:
    """Train elastically, as one rank."""
    import torch

    from slipstream.train import elastic

    model, optimizer = parts()
    elastic.init()
    state = elastic.TorchState(model=model, optimizer=optimizer, step=0)

    @elastic.run
    def train(state: Any) -> None:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        while state.step < STEPS:
            step(wrapped, optimizer)
            state.step += 1
            note(state.step)
            state.commit()

    train(state)


def main_of_torchrun() -> None:
    """Train over gloo with a checkpoint of each step, as one rank."""
    import torch
    import torch.distributed as dist

    model, optimizer = parts()
    dist.init_process_group("gloo")
    path = Path(os.environ["RECOVERY_FOLDER"]) / "checkpoint"
    first = 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    for number in range(first, STEPS):
        step(wrapped, optimizer)
        note(number + 1)
        if dist.get_rank() == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**saved, "step": number + 1}, path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)


def parts() -> tuple[Any, Any]:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step(wrapped: Any, optimizer: Any) -> None:
    import torch

    optimizer.zero_grad()
    wrapped(torch.randn(16, 256)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)


def note(number: int) -> None:
    """Write the time of a completed step to this process's file."""
    file = Path(os.environ["RECOVERY_FOLDER"]) / f"step-{os.getpid()}"
    file.write_text(f"{time.time()} {number}")


def steps(folder: Path) -> dict[int, tuple[float, int]]:
    """Return the time and number of the last step of each process."""
    found: dict[int, tuple[float, int]] = {}
    for file in folder.glob("step-*"):
        words = file.read_text().split()
        if len(words) == 2:
            found[int(file.name[5:])] = float(words[0]), int(words[1])
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened for {LIMIT_SECONDS:g} s")
        time.sleep(0.002)


def living(folder: Path) -> set[int]:
    return {pid for pid in steps(folder) if Path(f"/proc/{pid}").exists()}


def recovery(contender: str, ranks: int, draw: random.Random) -> dict[str, Any]:
    """Start a job, kill one rank, and measure until all others have completed another step."""
    with tempfile.TemporaryDirectory(prefix="recovery-") as name:
        folder = Path(name)
        environ = os.environ | {"RECOVERY_FOLDER": name, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            COMMANDS[contender](ranks),
            env=environ | {"SLIPSTREAM_JOB_KEY": secrets.token_hex(16)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_for(lambda: len(steps(folder)) == ranks)
            time.sleep(1.0)
            before = living(folder)
            victim = draw.choice(sorted(before))
            os.kill(victim, signal.SIGKILL)
            killed = time.time()
            expected = ranks - 1 if contender == "slipstream" else ranks
            wait_for(lambda: len(after(folder, killed, contender)) >= expected)
            times = after(folder, killed, contender)
            same = before - {victim} <= living(folder)
            return {"seconds": max(times) - killed, "same_processes": same}
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def after(folder: Path, killed: float, contender: str) -> list[float]:
    """Return the times of the first steps that needed the survivors only."""
    # A step in flight at the kill may still complete, over the dead rank's last bytes.
    margin = 0.02 if contender == "slipstream" else 0.5
    return [at for at, _ in steps(folder).values() if at > killed + margin]


def torchrun_command(ranks: int) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(ranks), "--max-restarts", "3", "--monitor-interval", "0.1"),
        *(__file__, "--contender", "torchrun"),
    ]


def slipstream_command(ranks: int) -> list[str]:
    command = str(Path(sys.executable).with_name("slipstream"))
    return [
        *(command, "run", "--min", "1", "--max", str(ranks), "-np", str(ranks)),
        *(__file__, "--contender", "slipstream"),
    ]


COMMANDS = {"slipstream": slipstream_command, "torchrun": torchrun_command}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8], help="ranks (4 8)")
    parser.add_argument("--rounds", type=int, default=3, help="kills of each contender (3)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the killed ranks (1)")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the results")
    parser.add_argument("--contender", choices=list(COMMANDS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        return {"slipstream": main_of_slipstream, "torchrun": main_of_torchrun}[options.contender]()
    draw = random.Random(options.seed)
    results: list[dict[str, Any]] = []
    for ranks in options.ranks:
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in COMMANDS}
        for _ in range(options.rounds):
            for name in COMMANDS:
                rounds[name].append(recovery(name, ranks, draw))
        medians = {
            name: statistics.median(each["seconds"] for each in rounds[name]) for name in COMMANDS
        }
        ratio = medians["torchrun"] / medians["slipstream"]
        results.append({"ranks": ranks, "rounds": rounds, "medians": medians, "ratio": ratio})
        print(
            f"{ranks} ranks: slipstream {medians['slipstream']:.2f} s, torchrun"
            f" {medians['torchrun']:.2f} s, {ratio:.1f} times faster"
        )
    if options.output:
        options.output.write_text(json.dumps({"seed": options.seed, "results": results}, indent=1))


if __name__ == "__main__":
    main()
