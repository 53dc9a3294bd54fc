"""A training that is saved beside its steps and continues where it stopped.

slipstream run -n 2 examples/06_checkpoints/train.py --steps 200
slipstream run -n 3 examples/06_checkpoints/train.py --steps 400    # other ranks continue
slipstream checkpoints checkpoints
"""

import argparse
import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from slipstream.train.checkpoint import Checkpointer, PerRank


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=50, help="steps from save to save")
    parser.add_argument("--checkpoints", default="checkpoints", help="folder or URL")
    parser.add_argument(
        "--resume", default="auto", help="auto: from the newest whole one; none; or a step"
    )
    return parser.parse_args()


def resume(checkpointer: Checkpointer, state: dict, choice: str) -> int:
    """Restore what --resume asks for; return the number of steps that are done."""
    if choice == "none":
        return 0
    return checkpointer.restore(state, "auto" if choice == "auto" else int(choice)) or 0


def main() -> None:
    """Train a classifier of points inside and outside a circle."""
    options = parse()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("slipstream")
    torch.manual_seed(0)
    layers = torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100, gamma=0.5)
    points = torch.Generator().manual_seed(dist.get_rank())

    checkpointer = Checkpointer(options.checkpoints, keep=3)
    state = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "points": PerRank(points.get_state()),  # each rank draws points of its own
    }
    first = resume(checkpointer, state, options.resume)
    points.set_state(state["points"].value)
    for step in range(first + 1, options.steps + 1):
        rows = torch.randn(32, 2, generator=points)
        inside = (rows.square().sum(1) < 1).float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(rows)[:, 0], inside)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % options.every == 0:
            state["points"].value = points.get_state()
            checkpointer.save(step, state)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {loss.item():.6f}", flush=True)
    checkpointer.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
