"""Training across the step boundary equals synchronous training, whatever else the script does.

torchrun --nproc-per-node 2 overlap.py
"""

import copy
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel

from slipstream.errors import UsageError
from slipstream.torch import overlap

STEPS = 8
ROWS_PER_RANK = 4
SMALL = 3000  # bytes of a bucket: several of them, and some parameters in one


class Net(nn.Module):
    """A tied weight, a normalisation, and a head that is used every other step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.body = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32))
        self.head = nn.Linear(16, 32)
        self.head.weight = self.embed.weight
        self.rest = nn.Linear(32, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = self.body(self.norm(self.embed(rows)))
        return (hidden @ self.head.weight).square().mean() + self.rest(hidden).mean()


def batches(step: int) -> torch.Tensor:
    """Return the data that all ranks use in a step, by rank."""
    torch.manual_seed(100 + step)
    return torch.randn(dist.get_world_size(), ROWS_PER_RANK, 16)


Adapt = Callable[[nn.Module, torch.optim.Optimizer], Any]


class Loop:
    """An ordinary training loop; subclasses change what scripts change."""

    def __init__(self, model: nn.Module, make_optimizer: Callable[..., Any], adapt: Adapt) -> None:
        self.model = model
        self.optimizer = make_optimizer(model.parameters())
        self.handle = adapt(model, self.optimizer)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.7)
        self.setup()

    def setup(self) -> None:
        pass

    def run(self, rank: int) -> "Loop":
        for step in range(STEPS):
            self.step(step, batches(step)[rank])
        return self

    def step(self, step: int, rows: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(rows).backward()
        self.optimizer.step()
        self.scheduler.step()

    def values(self) -> list[torch.Tensor]:
        return [value.clone() for value in self.model.state_dict().values()]


class Clipped(Loop):
    """Clips the norm over all gradients."""

    def step(self, step: int, rows: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(rows).backward()
        clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()


class Inspected(Loop):
    """Saves state between backward and clipping, and sets a parameter's data after the step."""

    def step(self, step: int, rows: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(rows).backward()
        self.optimizer.state_dict()
        clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model(rows).backward()
        self.optimizer.step()
        self.model.rest.bias.data = torch.full((1,), 0.5)


class Scaled(Loop):
    """A GradScaler, whose scale overflows in the third step: that step is skipped."""

    def setup(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(self, step: int, rows: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss = self.model(rows) * (float("inf") if step == 2 else 1.0)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Averaged(Loop):
    """Keeps an average of the weights, and looks at a weight between steps."""

    def setup(self) -> None:
        self.average = AveragedModel(copy.deepcopy(self.model))
        self.seen: list[torch.Tensor] = []

    def step(self, step: int, rows: torch.Tensor) -> None:
        super().step(step, rows)
        self.average.update_parameters(self.model)
        self.seen.append(self.model.rest.weight.sum().detach())

    def values(self) -> list[torch.Tensor]:
        return [*super().values(), *self.average.state_dict().values(), *self.seen]


class Evaluated(Loop):
    """Evaluates, and saves and loads all state half-way."""

    def setup(self) -> None:
        self.losses: list[torch.Tensor] = []

    def step(self, step: int, rows: torch.Tensor) -> None:
        super().step(step, rows)
        self.model.eval()
        with torch.no_grad():
            self.losses.append(self.model(rows))
        self.model.train()
        if step == STEPS // 2:
            model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
            self.model.load_state_dict(copy.deepcopy(model))
            self.optimizer.load_state_dict(copy.deepcopy(optimizer))

    def values(self) -> list[torch.Tensor]:
        return [*super().values(), *self.losses]


class KeptGradients(Loop):
    """Zeroes gradients in place, and reads them after the step."""

    def setup(self) -> None:
        self.seen: list[torch.Tensor] = []

    def step(self, step: int, rows: torch.Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        self.model(rows).backward()
        self.optimizer.step()
        gradients = [each.grad for each in self.model.parameters()]
        self.seen.extend(each.clone() for each in gradients if each is not None)

    def values(self) -> list[torch.Tensor]:
        return [*super().values(), *self.seen]


class TwoLosses(Loop):
    """Two backward passes a step, the second through a part of the model."""

    def step(self, step: int, rows: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(rows).backward()
        self.model.rest(self.model.embed(rows)).mean().backward()
        self.optimizer.step()


class Accumulated(Loop):
    """Two micro-batches a step, the first one without communication."""

    def step(self, step: int, rows: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        with self.handle.no_sync():
            self.model(rows[:2]).backward()
        self.model(rows[2:]).backward()
        self.optimizer.step()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=0.01)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


class Synchronous:
    """The reference: gradients of all ranks averaged by hand when backward is done."""

    def __init__(self, model: nn.Module, _: torch.optim.Optimizer) -> None:
        self.paused = False
        for each in model.parameters():
            each.register_post_accumulate_grad_hook(self.average)

    def average(self, parameter: nn.Parameter) -> None:
        if not self.paused:
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)

    @contextmanager
    def no_sync(self) -> Generator[None]:
        self.paused = True
        yield
        self.paused = False


def check_equal(loop: type[Loop], optimizer: Callable[..., Any]) -> None:
    """Compare across, within and the reference; the first two have to be equal bit for bit."""
    torch.manual_seed(3)
    model = Net()
    rank = dist.get_rank()
    kinds: list[Adapt] = [
        lambda model, optimizer: overlap(model, optimizer, bucket_bytes=SMALL),
        lambda model, optimizer: overlap(model, optimizer, bucket_bytes=SMALL, across_steps=False),
        Synchronous,
    ]
    across, within, reference = (
        loop(copy.deepcopy(model), optimizer, kind).run(rank).values() for kind in kinds
    )
    for mine, theirs, expected in zip(across, within, reference, strict=True):
        assert torch.equal(mine, theirs), loop.__name__
        torch.testing.assert_close(
            mine, expected, rtol=1e-5, atol=1e-6, msg=lambda text: f"{loop.__name__}: {text}"
        )
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, across[0])
    assert all(torch.equal(each, across[0]) for each in everybody), loop.__name__


def check_unused_parameters() -> None:
    """Check that a parameter that only one rank uses gets the average with zeros."""
    model = nn.ModuleDict({"one": nn.Linear(4, 1), "two": nn.Linear(4, 1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    overlap(model, optimizer)
    before = model["two"].bias.detach().clone()
    name = "one" if dist.get_rank() == 0 else "two"
    model[name](torch.ones(1, 4)).sum().backward()
    optimizer.step()
    size = dist.get_world_size()
    torch.testing.assert_close(model["two"].bias, before - (size - 1) / size)


def check_priorities() -> None:
    """Check that the first parameters of forward have the highest priority, and one bucket each."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    handle = overlap(model, torch.optim.SGD(model.parameters(), lr=0.1), bucket_bytes=20_000)
    buckets = handle._buckets
    assert len(buckets) > 2
    assert any(each is model[0].weight for each in buckets[-1].parameters)
    assert buckets[-1].priority == max(each.priority for each in buckets)


def check_removal() -> None:
    """After remove() all is as before."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = overlap(model, optimizer)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    handle.remove()
    assert type(model.weight) is nn.Parameter
    assert "step" not in vars(optimizer)
    assert "zero_grad" not in vars(model)
    optimizer.zero_grad()
    model(torch.ones(1, 4) * dist.get_rank()).sum().backward()
    assert model.weight.grad is not None
    assert float(model.weight.grad.sum()) == 16.0 * dist.get_rank()


def check_errors() -> None:
    """Check that impossible arguments are refused at once."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.LBFGS(model.parameters())
    overlap(model, optimizer)
    assert "closure" in refusal(lambda: optimizer.step(lambda: torch.zeros(())))
    stranger = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    assert "do not belong to the model" in refusal(lambda: overlap(nn.Linear(2, 2), stranger))
    known = nn.Linear(2, 2)
    known_optimizer = torch.optim.SGD(known.parameters(), lr=0.1)
    assert "allowed: none, fp16" in refusal(lambda: overlap(known, known_optimizer, codec="int4"))
    other = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    assert "nothing to train" in refusal(lambda: overlap(nn.ReLU(), other))


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except UsageError as error:
        return str(error)
    raise AssertionError("it was accepted")


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def check_says_once() -> None:
    """Whoever reads all gradients each step is told once what it costs."""
    lines = _Lines()
    logger = logging.getLogger("slipstream.torch.step_overlap")
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    Clipped(Net(), sgd, lambda model, optimizer: overlap(model, optimizer)).run(dist.get_rank())
    logger.removeHandler(lines)
    assert sum("clip_grad_norm_" in line for line in lines.lines) == 1, lines.lines


def main() -> None:
    dist.init_process_group("slipstream")
    for loop in (
        Loop,
        Clipped,
        Inspected,
        Scaled,
        Averaged,
        Evaluated,
        KeptGradients,
        TwoLosses,
        Accumulated,
    ):
        check_equal(loop, sgd)
    check_equal(Loop, adam)
    check_unused_parameters()
    check_priorities()
    check_removal()
    check_errors()
    check_says_once()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
