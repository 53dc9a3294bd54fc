"""How replicas agree on the gradient of each layer: summed, gathered as factors, or not at all.

A product of (batch, inputs) with a weight (inputs, outputs) has the gradient of the weight as the
product of two factors. Replicas may sum it (all-reduce), or gather the factors of all and multiply
late, or share the weight out so that each has some of its outputs, and gather activations instead.
The choice is made for all layers together, since shares need their memory and links are shared.

Source: Krizhevsky 2014, arXiv 1404.5997; Zhang et al. 2017, "Poseidon", USENIX ATC; HiGHS (Huangfu,
Hall 2018, doi 10.1007/s12532-017-0130-5) through SciPy for the integer program.
"""

# SciPy has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from slipstream.errors import UsageError
from slipstream.forecast.work.experts import with_copies
from slipstream.forecast.work.strategy import Agreement, Strategy
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TrainingPhase,
    Workload,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridLayer:
    """A layer with a weight that all rows of a batch are multiplied with, or whose rows are read.

    Args:
        name: of the parameter.
        forward: index of its operator in the forward pass.
        backward: index of the operator that makes its gradient.
        rows: that a replica multiplies: samples or tokens.
        inputs: of the product; 0: a table, whose rows are looked up.
        outputs: of the product, or numbers of the rows of a table that are looked up.
        elements: of the weight.
        is_last: its result is the loss's, so ranks that share it out keep their share of it.
    """

    name: str
    forward: int
    backward: int
    rows: int
    inputs: int
    outputs: int
    elements: int
    is_last: bool = False

    @property
    def flops(self) -> float:
        """FLOPs that make the gradient of the weight on one replica."""
        return 2.0 * self.rows * self.inputs * self.outputs

    def between(self, other: HybridLayer, share: float) -> HybridLayer:
        """Returns the layer of another micro-batch.

        Args:
            other: the same with more samples.
            share: of the way to those, 0 to 1 and beyond.
        """
        rows = max(1, round(self.rows + (other.rows - self.rows) * share))
        outputs = max(1, round(self.outputs + (other.outputs - self.outputs) * share))
        return replace(self, rows=rows, outputs=outputs)

    def traffic(self, choice: Agreement, ranks: int) -> tuple[float, float]:
        """Returns numbers that are all in all on a rank after a gather (or before a scatter), and
        those that a rank has for all others, of a forward or backward pass.

        Args:
            choice: what is done with the layer.
            ranks: replicas.
        """
        if choice is Agreement.FACTORS:
            return float(ranks * self.rows * (self.inputs + self.outputs)), 0.0
        back = 0.0 if self.is_last else float(self.rows * self.outputs)
        return float(ranks * self.rows * self.inputs), back


def layers(workload: Workload) -> tuple[HybridLayer, ...]:
    """Returns the layers of a workload that replicas may agree on in another way than by a sum.

    Args:
        workload: of a micro-batch of the whole model.
    """
    weights = with_copies(workload.operators, {each.value for each in workload.parameters})
    by_value = {each.value: each for each in workload.parameters if each.ready >= 0}
    found: dict[str, HybridLayer] = {}
    last = ""
    for index, operator in enumerate(workload.operators):
        if operator.phase is TrainingPhase.BACKWARD:
            break
        # A bias, if any, comes before the two that are multiplied; a table comes first.
        reads = operator.reads[:1] if operator.kind is OperatorKind.GATHER else operator.reads[-2:]
        parameter = next((by_value[weights[v]] for v in reads if weights.get(v) in by_value), None)
        if operator.kind in (OperatorKind.PRODUCT, OperatorKind.CONVOLUTION):
            last = ""
        if parameter is None or parameter.name in found:
            continue
        if operator.kind is OperatorKind.GATHER:
            size = sum(workload.values[v].num_bytes for v in operator.writes) // 4
            found[parameter.name] = HybridLayer(
                name=parameter.name, forward=index, backward=parameter.ready, rows=1, inputs=0,
                outputs=size, elements=parameter.elements,
            )  # fmt: skip
        elif operator.kind is OperatorKind.PRODUCT and operator.products[0].batch == 1:
            product = _oriented(operator.products[0], parameter.elements)
            if product is not None:
                last = parameter.name
                found[last] = HybridLayer(
                    name=last, forward=index, backward=_maker(workload, parameter.ready),
                    rows=product[0], inputs=product[1], outputs=product[2],
                    elements=parameter.elements,
                )  # fmt: skip
    if last:
        found[last] = replace(found[last], is_last=True)
    return tuple(found.values())


def _oriented(product: Product, elements: int) -> tuple[int, int, int] | None:
    """Rows, inputs and outputs of a product with a weight of so many elements."""
    if product.k * product.n == elements:
        return product.m, product.k, product.n
    return (product.n, product.k, product.m) if product.k * product.m == elements else None


def _maker(workload: Workload, ready: int) -> int:
    """The last product of the module whose gradient is whole after an operator."""
    operators: Sequence[Operator] = workload.operators
    module = operators[ready].module
    for index in range(ready, -1, -1):
        if operators[index].kind is OperatorKind.PRODUCT and operators[index].module == module:
            return index
    return ready


@dataclass(frozen=True, slots=True)
class Option:
    """A choice for a layer.

    Args:
        choice: which; None: gradients are summed as all others.
        seconds: that it adds to a step: communication and what is computed several times.
        num_bytes: of parameters, gradients and states that a rank keeps for the layer.
    """

    choice: Agreement | None
    seconds: float
    num_bytes: float


def options(
    layer: HybridLayer,
    ranks: int,
    rate: float,
    latency: float,
    *,
    flops_per_second: float,
    hidden: float = 0.0,
    element: int = 4,
    kept: int = 16,
) -> list[Option]:
    """Returns what can be done with a layer.

    Args:
        layer: with its sizes.
        ranks: replicas.
        rate: bytes per second that each sends, and as many that it receives.
        latency: seconds of a step of a collective.
        flops_per_second: that its products reach.
        hidden: share of the sum of gradients that runs beside the backward pass, 0 to 1.
        element: bytes of a number on the wire.
        kept: bytes that a rank keeps per parameter: itself, its gradient, states.
    """
    weights = layer.elements
    share = (ranks - 1) / ranks

    def seconds(numbers: float, back: float) -> float:
        return share * (numbers + back) * element / rate + (ranks - 1) * latency

    summed = 2 * seconds(weights, 0.0) * (1 - hidden)
    factors = seconds(*layer.traffic(Agreement.FACTORS, ranks)) * (1 - hidden)
    factors += (ranks - 1) * layer.flops / flops_per_second
    # Each rank multiplies the rows of all with its outputs: inputs are gathered, outputs sent back
    # to the rank that has the row; their gradients go the other way.
    sharded = 2 * seconds(*layer.traffic(Agreement.SHARD, ranks))
    return [
        Option(None, summed, weights * kept),
        Option(Agreement.FACTORS, factors, weights * kept),
        Option(Agreement.SHARD, sharded, weights * kept / ranks),
    ]


def choose(layers: Sequence[Sequence[Option]], memory_bytes: float) -> list[Option]:
    """Returns the option of each layer so that the sum of seconds is least and all fits.

    An integer program with one 0-1 variable per layer and option. Blocks for some milliseconds for
    hundreds of layers.

    Args:
        layers: the options of each.
        memory_bytes: for all layers together on one rank.

    Raises:
        UsageError: no choice fits.
    """
    flat = [option for layer in layers for option in layer]
    if not flat:
        return []
    one_each = np.zeros((len(layers), len(flat)))
    column = 0
    for row, layer in enumerate(layers):
        one_each[row, column : column + len(layer)] = 1
        column += len(layer)
    sizes = np.array([[option.num_bytes for option in flat]]) / memory_bytes
    found = milp(
        np.array([option.seconds for option in flat]) * 1e3,
        integrality=np.ones(len(flat)),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(sizes, -np.inf, 1)],
    )
    if not found.success:
        least = sum(min(option.num_bytes for option in layer) for layer in layers)
        raise UsageError(
            f"layers need at least {least / 2**30:.1f} GiB on each rank, with all shared out;"
            f" {memory_bytes / 2**30:.1f} GiB are there: take more ranks or a larger device"
        )
    taken = np.round(found.x).astype(bool)
    return [option for option, chosen in zip(flat, taken, strict=True) if chosen]


def shared_out(workload: Workload, strategy: Strategy) -> Workload:
    """Returns what a replica keeps of a workload whose layers have a strategy of their own.

    Args:
        workload: of a rank.
        strategy: with its layers.
    """
    names = {name for name, choice in strategy.layers if choice is Agreement.SHARD}
    if not names:
        return workload
    own = [each for each in workload.parameters if each.name in names]
    shares = set(with_copies(workload.operators, {each.value for each in own}))
    for each in own:
        if each.ready >= 0:
            made = workload.operators[_maker(workload, each.ready)].writes
            shares.update(v for v in made if workload.values[v].num_bytes == each.num_bytes)
    values = [
        replace(value, num_bytes=value.num_bytes // strategy.data) if index in shares else value
        for index, value in enumerate(workload.values)
    ]
    parameters = [
        replace(
            each,
            elements=each.elements // strategy.data,
            num_bytes=each.num_bytes // strategy.data,
        )
        if each.name in names
        else each
        for each in workload.parameters
    ]
    return replace(workload, values=tuple(values), parameters=tuple(parameters))
