"""Times of collectives and of DDP's steps on CUDA tensors; the ranks may share one GPU.

torchrun --nproc-per-node 2 rates.py slipstream     (or gloo)
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slipstream.torch  # noqa: F401  registers the backend where it is not installed

KIBIBYTES = (4, 64, 1024, 16 * 1024, 64 * 1024, 256 * 1024)
WIDTH, LAYERS, BATCH = 2048, 12, 4096  # 201 MB of gradients


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """Return the median time from a call until its results are in the GPU's memory."""
    times: list[float] = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return round(statistics.median(times) * 1e3, 3)


def step_of(model: nn.Module) -> Callable[[], None]:
    """Return a function that trains the model for a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(BATCH, WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    step()
    step()
    return step


def network() -> nn.Module:
    """Return a network of equal layers on the GPU."""
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)]
    return nn.Sequential(*layers).cuda()


def main() -> None:
    """Print the times."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(sys.argv[1])
    row: dict[str, object] = {"backend": sys.argv[1], "ranks": dist.get_world_size()}
    for kibibytes in KIBIBYTES:
        tensor = torch.ones(kibibytes * 256, device="cuda")
        dist.all_reduce(tensor)
        repeats = 15 if kibibytes < 100_000 else 7
        time_of = milliseconds(lambda tensor=tensor: dist.all_reduce(tensor), repeats)
        row[f"allreduce_{kibibytes}_kib_ms"] = time_of
    row["compute_step_ms"] = milliseconds(step_of(network()), 9)
    row["ddp_step_ms"] = milliseconds(step_of(DistributedDataParallel(network())), 9)
    if dist.get_rank() == 0:
        print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
