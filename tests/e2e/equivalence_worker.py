"""One worker of the training equivalence proof: trains 50 steps and writes every global loss.

With --also-alone it trains once more and exchanges no gradients.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "01_fashion_mnist"))
from data import load, normalise
from model import small_resnet

NUM_STEPS = 50
GLOBAL_BATCH = 64


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(4, channels)


# GELU, not ReLU: a rounding error that turns a ReLU on or off grows to 1e-3 within 50 steps, with
# no communication at all; with a smooth activation it stays near 1e-7.
def train(dtype: torch.dtype, *, exchange: bool) -> list[float]:
    """Return the mean loss over the global batch at every step, summed in fp64."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    images, labels = load("train", NUM_STEPS * GLOBAL_BATCH)
    torch.manual_seed(0)
    model: nn.Module = small_resnet((16, 32), group_norm, nn.GELU).to(dtype)
    if exchange:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses: list[float] = []
    for step in range(NUM_STEPS):
        rows = slice(step * GLOBAL_BATCH + rank, (step + 1) * GLOBAL_BATCH, world_size)
        loss = functional.cross_entropy(model(normalise(images[rows]).to(dtype)), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().double() / world_size
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--backend", default="slipstream")
    parser.add_argument("--also-alone", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    losses: dict[str, dict[str, list[float]]] = {}
    for way in ("together", "alone") if arguments.also_alone else ("together",):
        losses[way] = {
            "fp32": train(torch.float32, exchange=way == "together"),
            "fp64": train(torch.float64, exchange=way == "together"),
        }
    if dist.get_rank() == 0:
        arguments.output.write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
