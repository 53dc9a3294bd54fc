"""The contenders: implementations of collectives that are measured on the same data.

The input of rank r is a fixed pattern multiplied by r + 1, so the right output is known.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportDeprecated=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

from slipstream.bench.devices import CPU, NCCL_WAYS, choose_device, new_group, settle
from slipstream.errors import InternalError
from slipstream.torch.process_group import SlipstreamProcessGroup

# Collectives that gloo has for tensors of GPUs.
GLOO_ON_DEVICES = ("allreduce", "broadcast")

# Largest allowed error relative to the largest expected value, by codec. Errors come from rounding
# the inputs and the sum.
TOLERANCE: Mapping[str, float] = {
    "none": 1e-5,
    "fp16": 2e-3,
    "bf16": 2e-2,
    "int8": 2e-2,
    "int8+feedback": 2e-2,
}


class Buffers:
    """Input and output of one collective on one device.

    Args:
        collective: Name of the collective, from `limits.COLLECTIVES`.
        size: Size in bytes of the larger of a rank's two buffers (input and output). The size is
            rounded up so that all ranks get the same number of elements.
        device: Device that holds both buffers.
    """

    def __init__(self, collective: str, size: int, device: torch.device) -> None:
        self.ranks, self.rank = dist.get_world_size(), dist.get_rank()
        self.share = max(1, -(-size // (4 * self.ranks)))
        generator = torch.Generator().manual_seed(1)
        pattern = torch.randn(self.share * self.ranks, generator=generator)
        self.pattern = pattern.to(device)
        self.collective = collective
        mine = self.pattern * (self.rank + 1)
        self._input = self._part(mine) if collective == "all_gather" else mine
        self._input = self._input.clone()
        self.is_in_place = collective in ("allreduce", "broadcast")
        elements = self.share if collective == "reduce_scatter" else self.share * self.ranks
        self.output = torch.empty(elements, device=device)

    def reset(self) -> None:
        """Copy the input to the output if the collective works in place."""
        if self.is_in_place:
            self.output.copy_(self._input)

    @property
    def source(self) -> torch.Tensor:
        """Input, which does not share memory with the output."""
        return self._input

    def expected(self, *, is_average: bool) -> torch.Tensor:
        """Return the right output after one call."""
        total = self.ranks * (self.ranks + 1) / 2
        if self.collective == "allreduce":
            return self.pattern * (total / self.ranks if is_average else total)
        if self.collective == "reduce_scatter":
            return self._part(self.pattern) * total
        if self.collective == "broadcast":
            return self.pattern
        numbers = torch.arange(1, self.ranks + 1, device=self.pattern.device)
        factors = numbers.repeat_interleave(self.share)
        if self.collective == "all_gather":
            return self.pattern * factors
        return self._part(self.pattern).repeat(self.ranks) * factors

    def _part(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor[self.rank * self.share : (self.rank + 1) * self.share]


@dataclass(frozen=True, slots=True)
class CollectiveContender:
    """One implementation of collectives.

    Args:
        name: Name from `CommJob.contenders`.
        group: Process group that runs the collective.
        device: Device that holds the buffers.
        codec: Codec that encodes the data sent between hosts (default "none"). Only Slipstream's
            allreduce can use a codec.
    """

    name: str
    group: dist.ProcessGroup
    device: torch.device
    codec: str = "none"

    def supports(self, collective: str) -> bool:
        """Return whether the contender can run a collective."""
        if self.name == "gloo" and self.device.type != CPU:
            return collective in GLOO_ON_DEVICES
        return self.codec == "none" or collective == "allreduce"

    def call(self, buffers: Buffers) -> Callable[[], None]:
        """Return a function that runs the collective once and blocks until it is done."""
        if self.codec != "none":
            return self._encoded(buffers)
        return _finished(_operation(buffers, self.group), self.device)

    def check(self, buffers: Buffers, call: Callable[[], None]) -> None:
        """Run the collective once, and compare its result with the right output.

        Raises:
            InternalError: the result is wrong.
        """
        buffers.reset()
        call()
        expected = buffers.expected(is_average=self.codec != "none")
        error = (buffers.output - expected).abs().max() / expected.abs().max()
        if not error <= TOLERANCE[self.codec]:
            raise InternalError(
                f"{buffers.collective} over {self.name} is wrong by {error:.2g} of the largest"
                f" value; allowed: {TOLERANCE[self.codec]:g}"
            )

    def _encoded(self, buffers: Buffers) -> Callable[[], None]:
        assert isinstance(self.group, SlipstreamProcessGroup)
        group, output = self.group, buffers.output
        codec, _, feedback = self.codec.partition("+")
        place = group.losses_on(output)
        residual = torch.zeros(output.shape, device=place) if feedback else None
        return _finished(
            lambda: group.average_encoded(output, codec, residual=residual).wait(), self.device
        )


def make_contender(name: str, device: str = CPU) -> CollectiveContender:
    """Return a contender with a new process group.

    All ranks must call this function in the same order.

    Args:
        name: Name of the contender: "gloo", a name from `devices.NCCL_WAYS`, "slipstream", or
            "slipstream CODEC".
        device: PyTorch's name of the device that has the tensors (default "cpu"). NCCL's tensors
            are always on a GPU.
    """
    backend, _, codec = name.partition(" ")
    chosen = choose_device("cuda" if backend in NCCL_WAYS else device)
    return CollectiveContender(name, new_group(backend, chosen), chosen, codec or "none")


def _operation(buffers: Buffers, group: dist.ProcessGroup) -> Callable[[], object]:
    output, source = buffers.output, buffers.source
    calls: Mapping[str, Callable[[], object]] = {
        "allreduce": lambda: dist.all_reduce(output, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(output, source, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(output, source, group=group),
        "broadcast": lambda: dist.broadcast(output, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(output, source, group=group),
    }
    return calls[buffers.collective]


def _finished(call: Callable[[], object], device: torch.device) -> Callable[[], None]:
    def run() -> None:
        call()
        settle(device)

    return run
