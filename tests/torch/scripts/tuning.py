"""Tuning while training: all ranks switch together, results stay right, a profile is given back.

torchrun --nproc-per-node 2 tuning.py
"""

import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slipstream.comm.tuning import FIRST_STEPS, WINDOW, Tuning
from slipstream.torch import overlap, tune

STEPS = 100
WANTED = 1 << 20  # bytes of a bucket
PENALTY = 0.05  # seconds a step, for each doubling beyond; a busy machine has pauses of 0.02


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 8))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    torch.manual_seed(1000 * step + dist.get_rank())
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def check_alike(what: object) -> None:
    """Check that all ranks have the same settings."""
    everyone: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, what)
    assert all(each == everyone[0] for each in everyone), everyone


def train_overlapped(profile: Path | None, steps: int) -> tuple[Tuning, torch.Tensor]:
    """Large buckets make the steps of rank 0 long, and the others wait for it."""
    os.environ["SLIPSTREAM_PROFILE"] = str(profile or "")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = overlap(model, optimizer)
    for step in range(steps):
        if dist.get_rank() == 0 and "SLIPSTREAM_DETERMINISTIC" not in os.environ:
            size = handle.tuning.choice["bucket bytes"]
            time.sleep(PENALTY * (size.bit_length() - WANTED.bit_length()))
        train_step(model, optimizer, step)
    handle.remove()
    check_alike(weights(model).tolist())
    check_alike((handle.tuning.choice, list(handle.tuning.news)))
    return handle.tuning, weights(model)


def check_overlap_is_tuned() -> None:
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.json"  # another one at each rank: that of rank 0 counts
        tuning, result = train_overlapped(profile, STEPS)
        assert tuning.choice["bucket bytes"] < 8 << 20, tuning.news
        assert tuning.news
        assert profile.exists() == (dist.get_rank() == 0)
        again, _ = train_overlapped(profile, 1)
        if dist.get_rank() == 0:
            kept = json.loads(profile.read_text())
            assert again.choice == kept["choice"], kept
            profile.write_text('{"version": 1, "dimensions": [77], "choice": {"bucket bytes": 1}}')
        other, _ = train_overlapped(profile, 1)
        assert other.choice["bucket bytes"] == 8 << 20
        if dist.get_rank() == 0:
            profile.write_text("no profile")
        broken, _ = train_overlapped(profile, 1)
        assert broken.choice["bucket bytes"] == 8 << 20
    os.environ["SLIPSTREAM_DETERMINISTIC"] = "1"
    frozen, reference = train_overlapped(None, STEPS)
    del os.environ["SLIPSTREAM_DETERMINISTIC"]
    assert not frozen.news
    torch.testing.assert_close(result, reference)


def check_what_is_lost_moves_along() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = overlap(model, optimizer, codec="int8", bucket_bytes=1000)
    losses = {name: torch.randn_like(each) for name, each in model.named_parameters()}
    handle.load_state_dict({"codec": "int8", "residuals": losses})
    handle._fusion.values = [1000, 1 << 20]
    before = len(handle._buckets)
    handle._fusion.set(1 << 20)
    handle._fuse_anew()
    assert len(handle._buckets) < before
    for name, kept in handle.state_dict()["residuals"].items():
        assert torch.equal(kept, losses[name]), name
    handle.remove()


def check_fused_anew_while_training() -> None:
    """Check that cuts change with updates still due, and wait for a step if gradients add up."""
    results: list[torch.Tensor] = []
    for sizes in ([1000], [1000, 1 << 20]):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        handle = overlap(model, optimizer, bucket_bytes=1000)
        handle._fusion.values = sorted(sizes)
        cuts: set[int] = set()
        for step in range(12):
            handle._fusion.set(sizes[step % len(sizes)])
            if step % 4 == 1:
                model(torch.full((4, 16), 0.1 * step)).sum().backward()
            torch.manual_seed(1000 * step + dist.get_rank())
            model(torch.randn(4, 16)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 3 > 0)
            cuts.add(len(handle._buckets))
        assert len(cuts) == len(sizes), cuts
        handle.remove()
        results.append(weights(model))
        check_alike(results[-1].tolist())
    torch.testing.assert_close(results[0], results[1])


def check_tuned_ddp() -> None:
    results: list[torch.Tensor] = []
    for tunes in (False, True):
        model = net()
        wrapped = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        tuning = tune(optimizer) if tunes else None
        for step in range(FIRST_STEPS + 12 * (WINDOW + 2)):
            train_step(wrapped, optimizer, step)
        results.append(weights(model))
        if tuning is not None:
            check_alike((tuning.choice, list(tuning.news)))
    check_alike(results[1].tolist())
    torch.testing.assert_close(results[0], results[1])


def main() -> None:
    dist.init_process_group("slipstream")
    check_overlap_is_tuned()
    check_what_is_lost_moves_along()
    check_fused_anew_while_training()
    check_tuned_ddp()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
