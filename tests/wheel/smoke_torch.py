"""Two processes of an installed wheel train one step through torch.distributed."""

from pathlib import Path

import torch
import torch.distributed as dist

import slipstream


def main() -> None:
    """Fail unless an unchanged script finds the backend and gets the right sum and gradients."""
    assert "site-packages" in Path(slipstream.__file__).parts, slipstream.__file__
    dist.init_process_group("slipstream")
    rank, size = dist.get_rank(), dist.get_world_size()
    values = torch.full((1 << 16,), float(rank + 1))
    dist.all_reduce(values)
    assert (values == size * (size + 1) / 2).all(), values[:4]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
    model(torch.full((1, 4), float(rank))).sum().backward()
    gradient = model.module.weight.grad
    assert gradient is not None
    assert (gradient == (size - 1) / 2).all(), gradient
    dist.destroy_process_group()
    print("allreduce and DDP through torch.distributed work")


if __name__ == "__main__":
    main()
