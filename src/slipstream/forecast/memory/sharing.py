"""Gradients and parameters of replicas: buckets of DDP, and shards of ZeRO and FSDP.

Source: Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054; Zhao et al. 2023, "PyTorch FSDP", arXiv
2304.11277; torch.nn.parallel.DistributedDataParallel and torch.distributed.fsdp.fully_shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.forecast.memory.units import RepeatedModule, num_forward
from slipstream.forecast.work.strategy import Exchange, Strategy
from slipstream.forecast.work.workload import Workload

# DDP's first bucket is small, so that it starts early (_DEFAULT_FIRST_BUCKET_BYTES in PyTorch's
# torch/csrc/distributed/c10d/reducer.hpp).
_FIRST_BUCKET_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of a parameter, its gradient and its optimizer states on one device.

    Args:
        complete: Bytes of the complete parameter, which operators read.
        stored: Bytes of the part of the parameter that stays in memory between steps: all, or a
            shard.
        gradient: Bytes of the part of the gradient that stays in memory between micro-batches: all,
            or a shard.
        sent: Bytes of the complete gradient when it is exchanged with other replicas.
        state: Bytes of one optimizer state, such as the momentum.
        master: Bytes of the optimizer's separate fp32 copy of the parameter; 0 if there is none.
    """

    complete: int
    stored: int
    gradient: int
    sent: int
    state: int
    master: int


def sizes(workload: Workload, strategy: Strategy, *, master: bool) -> tuple[Sizes, ...]:
    """Return the sizes of each parameter of a workload.

    With ZeRO 3 and fp32 copies of parameters, each rank stores its shard of the fp32 copies instead
    of 16-bit parameters, and gradients are added in fp32.

    Args:
        workload: Workload of one tensor-parallel rank.
        strategy: Strategy whose `zero` and `data` decide what the replicas shard.
        master: Whether the optimizer works on fp32 copies of 16-bit parameters.
    """
    shares = [strategy.data if strategy.zero >= level else 1 for level in (1, 2, 3)]

    def of(complete: int, elements: int) -> Sizes:
        wide = 4 * elements if master else complete
        narrow = wide if strategy.zero == 3 else complete
        return Sizes(
            complete=complete,
            stored=-(-narrow // shares[2]),
            gradient=-(-narrow // shares[1]),
            sent=narrow,
            state=-(-wide // shares[0]),
            master=-(-wide // shares[0]) if master and strategy.zero < 3 else 0,
        )

    return tuple(of(parameter.num_bytes, parameter.elements) for parameter in workload.parameters)


def gradient_owners(workload: Workload) -> dict[int, int]:
    """Return the parameter of each gradient, by the gradient's value; -1 if it is unknown.

    Gradients are the values that the backward pass creates and never frees. The gradient of a
    parameter is recognised when it is complete: it is then the newest gradient that has the size of
    the parameter.
    """
    forward = num_forward(workload)
    left = {i for i, v in enumerate(workload.values) if v.born >= forward and v.dies < 0}
    owners: dict[int, int] = {}
    order = sorted(range(len(workload.parameters)), key=lambda i: workload.parameters[i].ready)
    by_size: dict[int, list[int]] = {}
    for value in sorted(left, key=lambda v: workload.values[v].born):
        by_size.setdefault(workload.values[value].num_bytes, []).append(value)
    for index in order:
        parameter = workload.parameters[index]
        candidates = [
            value
            for value in by_size.get(parameter.num_bytes, ())
            if value not in owners and workload.values[value].born <= parameter.ready
        ]
        if candidates:
            owners[candidates[-1]] = index
    return {value: owners.get(value, -1) for value in left}


def buckets(
    workload: Workload, strategy: Strategy, modules: Sequence[RepeatedModule]
) -> list[list[int]]:
    """Return the groups of parameters whose gradients are exchanged together.

    The groups, and the parameters in a group, are sorted by the time when gradients are complete.

    Args:
        workload: Workload that says when each gradient is complete.
        strategy: Strategy with the size of a bucket. With ZeRO 3 the parameters of each unit form a
            group, and all parameters outside units form one more group.
        modules: Units of the workload; see `slipstream.forecast.memory.units`.
    """
    trained = [i for i, parameter in enumerate(workload.parameters) if parameter.ready >= 0]
    trained.sort(key=lambda index: workload.parameters[index].ready)
    if strategy.zero == 3:
        owner = {index: unit.name for unit in modules for index in unit.parameters}
        groups: dict[str, list[int]] = {}
        for index in trained:
            groups.setdefault(owner.get(index, ""), []).append(index)
        return list(groups.values())
    result: list[list[int]] = []
    limit, size = _FIRST_BUCKET_BYTES, strategy.bucket_bytes
    for index in trained:
        if not result or size >= limit:
            limit = strategy.bucket_bytes if result else _FIRST_BUCKET_BYTES
            result.append([])
            size = 0
        result[-1].append(index)
        size += workload.parameters[index].num_bytes
    return result


def has_buckets(strategy: Strategy) -> bool:
    """Return whether replicas have flat buffers (buckets) for the gradients that they exchange."""
    return strategy.data > 1 and strategy.zero < 2 and strategy.exchange is not Exchange.LOCAL
