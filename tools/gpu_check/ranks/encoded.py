"""DDP on CUDA tensors, with gradients encoded for the transfer over TCP between ranks.

The ranks run on one machine, but Slipstream treats each rank as a host of its own.

torchrun --nproc-per-node 2 encoded.py
"""

import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slipstream.torch import compress

STEPS = 30
CODECS = ("none", "fp16", "bf16", "int8")


def train(codec: str) -> tuple[float, float]:
    """Train a small network; return its last loss and the milliseconds of a step."""
    torch.manual_seed(5)
    layers = [nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(2048, 1)).cuda())
    if codec != "none":
        compress(model, codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    torch.manual_seed(100 + dist.get_rank())
    batch = torch.randn(256, 512, device="cuda")
    wanted = batch[:, :8].sum(1, keepdim=True)
    loss = torch.zeros(())
    begin = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (model(batch) - wanted).square().mean()
        loss.backward()
        optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean.item(), (time.perf_counter() - begin) / STEPS * 1e3


def main() -> None:
    """Print loss and time with each codec."""
    os.environ["SLIPSTREAM_HOST_ID"] = os.environ["RANK"]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("slipstream")
    plain, _ = train("none")
    for codec in CODECS:
        loss, milliseconds = train(codec)
        assert abs(loss - plain) < 0.05 * plain + 0.01, (codec, loss, plain)
        if dist.get_rank() == 0:
            row = {"codec": codec, "loss": round(loss, 4), "step_ms": round(milliseconds, 2)}
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
