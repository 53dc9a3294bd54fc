"""One rank of training over gloo, which torchrun restarts; rank 0 saves a checkpoint of each step.

The checkpoint has the form that PyTorch's tutorial on fault tolerance recommends, and the file is
replaced atomically.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
import training
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train on from the checkpoint until the benchmark ends the job."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    log = training.StepLog()
    model = training.make_model()
    optimizer = training.make_optimizer(model)
    path = training.folder() / "checkpoint"
    first = 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    wrapped = DistributedDataParallel(model)
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for step in range(first + 1, training.STEPS):
        training.train_one_step(wrapped, optimizer)
        log.add(step, restarts, dist.get_rank(), dist.get_world_size())
        if dist.get_rank() == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(saved, path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)


main()
