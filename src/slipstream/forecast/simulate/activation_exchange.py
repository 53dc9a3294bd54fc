"""Communication within the forward and backward pass; the next operator waits until it ends.

Source: Liu, Zaharia, Abbeel 2023, "Ring attention", arXiv 2310.01889, for keys and values that
circulate while attention reads them.
"""

# Pyright loses the types of NumPy arrays in sums and copies.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from slipstream.forecast.simulate.compute import FloatArray, blend
from slipstream.forecast.simulate.gradients import replicas
from slipstream.forecast.simulate.hybrid import HybridLayer, layers
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import (
    all_reduce,
    all_to_all,
    dimensions,
    reduce_scatter,
    send,
)
from slipstream.forecast.work.division import Joint
from slipstream.forecast.work.strategy import Agreement
from slipstream.forecast.work.workload import OperatorKind, TrainingPhase, Workload

_SIZES = {"float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationExchange:
    """Bytes that ranks exchange after each operator.

    `sums`, `moves` and `rings` have one entry per operator.

    Args:
        workload: Operators and tensors of one rank, for one micro-batch.
        sums: Bytes that tensor-parallel ranks sum in an all-reduce.
        moves: Bytes of tokens that are sent to experts, or returned from experts.
        rings: Bytes of keys and values that circulate between context-parallel ranks (ring
            attention).
        layers: Mapping from the name of a parameter to its layer, for layers whose gradient
            exchange can be chosen separately; see `slipstream.forecast.simulate.hybrid`.
    """

    workload: Workload
    sums: FloatArray
    moves: FloatArray
    rings: FloatArray
    layers: Mapping[str, HybridLayer]

    @classmethod
    def of(
        cls, workload: Workload, joints: Iterable[Joint], expert_bytes: Mapping[int, float]
    ) -> ActivationExchange:
        """Return the bytes that ranks exchange after each operator of a workload.

        Args:
            workload: Operators and tensors of one rank, for one micro-batch.
            joints: Sums over tensor-parallel ranks; each names the operator whose result is summed.
            expert_bytes: Bytes of tokens that are sent to experts, or returned from experts, by
                operator index.
        """
        count = len(workload.operators)
        sums, moves, rings = np.zeros(count), np.zeros(count), np.zeros(count)
        for joint in joints:
            sums[joint.after] += joint.num_bytes
        for index, num_bytes in expert_bytes.items():
            moves[index] += num_bytes
        for index, operator in enumerate(workload.operators):
            if operator.kind is OperatorKind.ATTENTION:
                keys = [workload.values[value].num_bytes for value in operator.reads[1:3]]
                # In the backward pass, the gradients of keys and values circulate too.
                passes = 1 if operator.phase is TrainingPhase.FORWARD else 2
                rings[index] = sum(keys) * passes
        return cls(
            workload=workload,
            sums=sums,
            moves=moves,
            rings=rings,
            layers={layer.name: layer for layer in layers(workload)},
        )

    def between(self, other: ActivationExchange, share: float) -> ActivationExchange:
        """Return the exchange at another micro-batch size, by linear interpolation.

        Args:
            other: Exchange at a larger micro-batch size.
            share: Position between the micro-batch sizes of this exchange (0) and of `other` (1); a
                position above 1 extrapolates.
        """
        return replace(
            self,
            sums=blend(self.sums, other.sums, share),
            moves=blend(self.moves, other.moves, share),
            rings=blend(self.rings, other.rings, share),
            layers={
                name: layer.between(other.layers[name], share)
                for name, layer in self.layers.items()
            },
        )

    def seconds(self, job: TrainingJob, device: FloatArray) -> FloatArray:
        """Return the seconds that each operator waits for other ranks after it has run.

        Args:
            job: Job with its strategy and cluster.
            device: Seconds that each operator takes on the device.
        """
        strategy, wire = job.strategy, job.wire
        waits = np.zeros(len(device))
        if strategy.tensor > 1:
            group = dimensions(job.cluster, wire, strategy.tensor)
            waits += _mapped(self.sums, lambda size: all_reduce(size, group, wire))
        if strategy.expert > 1:
            stride = strategy.tensor * strategy.context
            group = dimensions(job.cluster, wire, strategy.expert, stride)
            waits += _mapped(self.moves, lambda size: all_to_all(size, group, wire))
        if strategy.context > 1:
            steps = strategy.context - 1
            rings = _mapped(
                self.rings, lambda size: steps * send(size, job.cluster, wire, strategy.tensor)
            )
            waits += np.maximum(0.0, rings - device)
        self._add_layers(job, waits)
        return waits

    def _add_layers(self, job: TrainingJob, waits: FloatArray) -> None:
        group = replicas(job)
        for name, choice in job.strategy.layers:
            layer = self.layers.get(name)
            if layer is None:
                continue
            size = _SIZES.get(self.workload.operators[layer.forward].dtype, 4)
            gathered, back = layer.traffic(choice, job.strategy.data)
            seconds = reduce_scatter(gathered * size, group, job.wire) if gathered else 0.0
            if choice is Agreement.FACTORS:
                waits[layer.backward] += seconds * (1 - job.runtime.overlap)
            else:
                seconds += all_to_all(back * size, group, job.wire) if back else 0.0
                waits[layer.forward] += seconds
                waits[layer.backward] += seconds

    def repeated(self, job: TrainingJob, device: FloatArray) -> FloatArray:
        """Return the seconds of each operator, including work that all replicas repeat.

        A weight gradient is repeated if each replica multiplies the gathered factors of all.

        Args:
            job: Job with its strategy.
            device: Seconds that each operator takes on the device without repeated work.
        """
        late = [name for name, choice in job.strategy.layers if choice is Agreement.FACTORS]
        if not late:
            return device
        device, half = device.copy(), job.rates.half_sum
        for name in late:
            if name in self.layers:
                # The product of gathered factors sums over the rows of all replicas; its result
                # stays as large as that of one replica.
                layer = self.layers[name]
                longer = (layer.rows * job.strategy.data + half) / (layer.rows + half)
                device[layer.backward] *= longer
        return device


def _mapped(sizes: FloatArray, of: Callable[[float], float]) -> FloatArray:
    """Return the value of a function for each size in bytes; a size of 0 gives 0."""
    results = {size: of(size) for size in set(sizes.tolist()) if size}
    return np.array([results.get(size, 0.0) for size in sizes.tolist()])
