"""Forecasts of peak memory, compared with published peaks.

Publishers count memory in different ways. torchtitan prints the memory that PyTorch's allocator
reserved; other publishers read the memory in use on the device, which includes the context of the
framework.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slipstream.forecast.memory import ReplayOptions, replay
from slipstream.forecast.memory.sharing import gradient_owners
from slipstream.forecast.validate.case import PublishedCase
from slipstream.forecast.validate.predict import CasePredictor, optimizer_of
from slipstream.forecast.work.blocks import blocks
from slipstream.forecast.work.division import divide
from slipstream.forecast.work.stages import stage
from slipstream.forecast.work.strategy import Optimizer, Strategy
from slipstream.forecast.work.workload import OperatorKind, TensorValue, TrainingPhase, Workload
from slipstream.units import MIB


@dataclass(frozen=True, slots=True)
class Footprint:
    """Peak memory of a measured training in MiB, as forecast and as measured.

    Args:
        case: Measurement that states the peak memory.
        forecast: Forecast of the peak memory in MiB, counted as by the publisher.
    """

    case: PublishedCase
    forecast: float

    @property
    def measured(self) -> float:
        """Published peak memory in MiB."""
        assert self.case.memory_mb is not None
        return self.case.memory_mb

    @property
    def error(self) -> float:
        """Relative error: |forecast - measured| / measured."""
        return abs(self.forecast / self.measured - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Details of a framework's memory use that a strategy does not determine.

    Args:
        context_mb: Memory in MiB that the CUDA context, kernels and libraries use before the first
            tensor (default 0).
        peer_mb: Additional memory in MiB of the context for each other device of the host (default
            0).
        master: Whether parameters in 16 bits have fp32 copies (default False).
        expandable: Whether the segments of PyTorch's allocator can grow (default False).
        planned: Whether the framework fixes the addresses of all tensors before the first step, and
            needs no allocator and no gradient buckets (default False).
        zeroed: Whether gradients are set to zero between steps, and not freed (default False).
        aside: Whether the weight of the last layer is normalised on a separate CUDA stream, which
            has its own memory (default False).
    """

    context_mb: int = 0
    peer_mb: int = 0
    master: bool = False
    expandable: bool = False
    planned: bool = False
    zeroed: bool = False
    aside: bool = False


_TORCHTITAN = Habits(master=True, expandable=True)
# Derived from the rows of DLPerf, in which buffers of NCCL and mappings of peers grow with the
# number of devices.
_ONEFLOW = Habits(context_mb=900, peer_mb=127, planned=True)
# PyTorch with cuBLAS and cuDNN.
_USUAL = Habits(context_mb=600)
# insightface, recognition/arcface_torch in 2021. PyTorch's `zero_grad` frees gradients only since
# version 2.0.
_ARCFACE = replace(_USUAL, zeroed=True, aside=True)


def footprint(case: PublishedCase, predictor: CasePredictor) -> Footprint:
    """Forecast the peak memory of a measured training, on the device that uses most memory.

    The call blocks for seconds if the model was not traced before.

    Args:
        case: Measurement that states the peak memory.
        predictor: Predictor of measurements, which reuses a model that it has traced before.
    """
    habits = _habits(case)
    workload = _shared_out(predictor.workload(case), case)
    strategy = case.strategy
    if habits.planned:
        return Footprint(case, _planned(workload, case, habits) / MIB)
    apart = 0
    if habits.zeroed:
        workload = _with_kept_gradients(workload)
    if habits.aside:
        workload, beside = _split(workload, optimizer_of(case))
        apart = replay(beside, replace(strategy, data=1), optimizer=optimizer_of(case)).reserved
    peaks = [
        replay(
            part,
            strategy,
            optimizer=optimizer_of(case),
            options=ReplayOptions(
                master=habits.master,
                in_flight=in_flight,
                fused=True,
                selective=strategy.selective,
                compiled=case.runtime == "fsdp-compile",
                compiled_loss=case.runtime == "fsdp-compile" and _compiles_loss(case),
                expandable=habits.expandable,
            ),
        )
        for part, in_flight in _ends(workload, strategy)
    ]
    most = apart + max(peak.reserved for peak in peaks)
    return Footprint(case, _context(habits, case) + most / MIB)


def ratios(cases: Sequence[PublishedCase], predictor: CasePredictor) -> dict[str, list[float]]:
    """Return the ratios of measured to forecast peak memory of all measurements, by publisher.

    Args:
        cases: Published measurements; those without a peak memory are skipped.
        predictor: Predictor of measurements, which reuses models that it has traced before.
    """
    by_source: dict[str, list[float]] = {}
    for case in cases:
        if case.memory_mb is not None:
            peak = footprint(case, predictor)
            by_source.setdefault(case.source, []).append(peak.measured / peak.forecast)
    return by_source


def _planned(workload: Workload, case: PublishedCase, habits: Habits) -> float:
    """Return the peak memory in bytes if all addresses are fixed before the first step.

    Gradients have memory of their own. All other tensors share memory if they are not alive at the
    same time.
    """
    gradients = gradient_owners(workload)
    gradient_bytes = sum(workload.values[index].num_bytes for index in gradients)
    alone = replace(case.strategy, data=1)
    without_gradients = _only(workload, lambda index: index not in gradients)
    peak = replay(
        without_gradients, alone, optimizer=optimizer_of(case), options=ReplayOptions(fused=True)
    )
    return peak.allocated + gradient_bytes + _context(habits, case) * MIB


def _with_kept_gradients(workload: Workload) -> Workload:
    """Return a workload whose gradients exist before the step; the step adds to these gradients."""
    ready = {value: workload.values[value].born + 1 for value in gradient_owners(workload)}
    fresh = tuple(
        replace(value, dies=ready.get(index, value.dies))
        for index, value in enumerate(workload.values)
    )
    gradients = tuple(TensorValue(workload.values[value].num_bytes, -1, -1) for value in ready)
    return replace(workload, values=fresh + gradients)


def _split(workload: Workload, optimizer: Optimizer) -> tuple[Workload, Workload]:
    """Return the workload of the main CUDA stream, and the workload of the separate stream.

    The two streams share no memory. The last layer holds one vector per class, its centre. The
    separate stream normalises the centres to length 1, and computes the gradient of the
    normalisation in the backward pass. Replicas do not exchange the gradient of the last layer, and
    its optimizer states exist before the first step.
    """
    head = _head(workload)
    size = workload.values[head].num_bytes
    products = {
        v for op in workload.operators if op.kind is OperatorKind.PRODUCT for v in op.writes
    }
    beside = {
        index
        for index, value in enumerate(workload.values)
        if value.num_bytes == size and value.born >= 0 and index not in products
    }
    states = (TensorValue(size, -1, -1),) * optimizer.value
    parameters = tuple(parameter for parameter in workload.parameters if parameter.value != head)
    main = _only(workload, lambda index: index not in beside)
    return (
        replace(main, values=main.values + states, parameters=parameters),
        replace(_only(workload, beside.__contains__), parameters=()),
    )


def _only(workload: Workload, is_chosen: Callable[[int], bool]) -> Workload:
    """Return a workload in which only the chosen tensors take memory."""
    values = enumerate(workload.values)
    return replace(
        workload,
        values=tuple(v if is_chosen(index) else replace(v, num_bytes=0) for index, v in values),
    )


def _head(workload: Workload) -> int:
    """Return the index of the last layer's weight, which is assumed to be the largest weight."""
    return max(workload.parameters, key=lambda parameter: parameter.elements).value


def _habits(case: PublishedCase) -> Habits:
    if _is_torchtitan(case):
        default = "default allocator" in case.framework.lower()
        return replace(_TORCHTITAN, expandable=not default)
    if "ranks" in case.sizes:
        return _ARCFACE
    return _ONEFLOW if case.runtime == "oneflow" else _USUAL


def _is_torchtitan(case: PublishedCase) -> bool:
    return "torchtitan" in f"{case.source} {case.framework}".lower()


def _compiles_loss(case: PublishedCase) -> bool:
    """Return whether torchtitan of 2025 or later, which compiles the loss too, ran the training."""
    return re.search("torchtitan 20(2[5-9]|[3-9])", case.framework.lower()) is not None


def _context(habits: Habits, case: PublishedCase) -> float:
    return habits.context_mb + habits.peer_mb * (min(case.devices, case.per_host) - 1)


def _ends(workload: Workload, strategy: Strategy) -> list[tuple[Workload, int]]:
    """Return workload and number of stored micro-batches of the first and last pipeline rank."""
    divided = divide(workload, strategy.tensor, sequence=strategy.sequence).workload
    pipeline, virtual = strategy.pipeline, strategy.virtual
    if pipeline == 1:
        return [(divided, 1)]
    count, places = blocks(divided.operators)
    ranks = [place * pipeline * virtual // count % pipeline for place in places]
    return [
        (stage(divided, ranks, end), min(strategy.micro_batches, _begun(end, pipeline, virtual)))
        for end in (0, pipeline - 1)
    ]


def _begun(rank: int, pipeline: int, virtual: int) -> int:
    """Return how many micro-batches' activations a pipeline rank stores at once, rounded up."""
    if virtual == 1:
        return pipeline - rank
    parts = 2 * (pipeline - rank - 1) + (virtual - 1) * pipeline + 1
    return -(-parts // virtual)


def _shared_out(workload: Workload, case: PublishedCase) -> Workload:
    """Return the workload of one rank if ranks divide embedding tables or the last layer."""
    if case.sharded == "none" or case.devices == 1:
        return workload
    if case.sharded == "head":
        return _shrunk(workload, [_head(workload)], case)
    looked_up = [op for op in workload.operators if op.kind is OperatorKind.GATHER]
    tables = {op.reads[0] for op in looked_up if op.phase is TrainingPhase.FORWARD}
    shrunk = _shrunk(workload, tables, case)
    # A rank looks up its rows for the samples of all ranks. The looked-up values are exchanged, and
    # share memory with no other value.
    rows = {
        v
        for op in looked_up
        if op.phase is TrainingPhase.FORWARD
        for v in (*op.reads[1:], *op.writes)
    }
    rows |= {v for op in looked_up if op.phase is TrainingPhase.BACKWARD for v in op.reads}
    values = list(shrunk.values)
    for index in rows:
        num_bytes = values[index].num_bytes * case.devices
        values[index] = TensorValue(num_bytes, -1, -1)
    return replace(shrunk, values=tuple(values))


def _shrunk(workload: Workload, shared: Sequence[int] | set[int], case: PublishedCase) -> Workload:
    """Divide given parameters, and tensors as large or half as large, among the devices."""
    sizes = {workload.values[value].num_bytes for value in shared}
    sizes |= {size // 2 for size in sizes}
    return replace(
        workload,
        values=tuple(
            replace(value, num_bytes=value.num_bytes // case.devices)
            if value.num_bytes in sizes
            else value
            for value in workload.values
        ),
        parameters=tuple(
            replace(
                parameter,
                elements=parameter.elements // case.devices,
                num_bytes=parameter.num_bytes // case.devices,
            )
            if parameter.value in shared
            else parameter
            for parameter in workload.parameters
        ),
    )
