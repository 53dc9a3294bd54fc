"""Choice of a gradient exchange for each layer: sum, gathered factors, or sharded weights.

The gradient of a weight of shape (inputs, outputs) is the product of two factors. Replicas have
three options: sum the gradient (all-reduce); gather the factors of all replicas and multiply them
afterwards; or shard the weight by outputs and exchange activations. The choice is made for all
layers together, because shards need memory and all layers use the same links.

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
from slipstream.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridLayer:
    """Linear layer or embedding table whose gradient exchange can be chosen.

    Args:
        name: Name of the parameter.
        forward: Index of the operator in the forward pass.
        backward: Index of the operator that computes the gradient.
        rows: Number of samples or tokens that a replica multiplies by the weight; 1 for a table.
        inputs: Number of input features of the layer; 0 for a table, which multiplies nothing.
        outputs: Number of output features of the layer; for a table, number of elements in all
            rows that a replica looks up.
        elements: Number of elements of the weight.
        is_last: Whether the layer feeds the loss, so that its output can stay sharded (default
            False).
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
        """Number of FLOPs with which one replica computes the gradient of the weight."""
        return 2.0 * self.rows * self.inputs * self.outputs

    def between(self, other: HybridLayer, share: float) -> HybridLayer:
        """Return the layer at another micro-batch size, by linear interpolation.

        Args:
            other: Same layer at a larger micro-batch size.
            share: Position between the micro-batch sizes of this layer (0) and of `other` (1); a
                position above 1 extrapolates.
        """
        rows = max(1, round(self.rows + (other.rows - self.rows) * share))
        outputs = max(1, round(self.outputs + (other.outputs - self.outputs) * share))
        return replace(self, rows=rows, outputs=outputs)

    def traffic(self, choice: Agreement, ranks: int) -> tuple[float, float]:
        """Return two numbers of elements, which ranks exchange in one forward or backward pass.

        The first number is the size of the tensor that a rank gathers from all ranks (or that it
        scatters to them). The second number is the size of the results that a rank sends back to
        all other ranks together.

        Args:
            choice: Gradient exchange of the layer.
            ranks: Number of replicas.
        """
        if choice is Agreement.FACTORS:
            return float(ranks * self.rows * (self.inputs + self.outputs)), 0.0
        back = 0.0 if self.is_last else float(self.rows * self.outputs)
        return float(ranks * self.rows * self.inputs), back


def layers(workload: Workload) -> tuple[HybridLayer, ...]:
    """Return the layers of a workload whose gradients need not be summed with an all-reduce.

    Args:
        workload: Workload of one micro-batch of the whole model.
    """
    weights = with_copies(
        workload.operators, {parameter.value for parameter in workload.parameters}
    )
    by_value = {
        parameter.value: parameter for parameter in workload.parameters if parameter.ready >= 0
    }
    by_name: dict[str, HybridLayer] = {}
    last = ""
    for index, operator in enumerate(workload.operators):
        if operator.phase is TrainingPhase.BACKWARD:
            break
        # A product reads its bias, if any, and then its two factors; a lookup reads its table
        # first.
        reads = operator.reads[:1] if operator.kind is OperatorKind.GATHER else operator.reads[-2:]
        parameter = next((by_value[weights[v]] for v in reads if weights.get(v) in by_value), None)
        if operator.kind in (OperatorKind.PRODUCT, OperatorKind.CONVOLUTION):
            last = ""
        if parameter is None or parameter.name in by_name:
            continue
        if operator.kind is OperatorKind.GATHER:
            size = sum(workload.values[v].num_bytes for v in operator.writes) // 4
            by_name[parameter.name] = HybridLayer(
                name=parameter.name, forward=index, backward=parameter.ready, rows=1, inputs=0,
                outputs=size, elements=parameter.elements,
            )  # fmt: skip
        elif operator.kind is OperatorKind.PRODUCT and operator.products[0].batch == 1:
            product = _oriented(operator.products[0], parameter.elements)
            if product is not None:
                last = parameter.name
                by_name[last] = HybridLayer(
                    name=last, forward=index, backward=_maker(workload, parameter.ready),
                    rows=product[0], inputs=product[1], outputs=product[2],
                    elements=parameter.elements,
                )  # fmt: skip
    if last:
        by_name[last] = replace(by_name[last], is_last=True)
    return tuple(by_name.values())


def _oriented(product: Product, elements: int) -> tuple[int, int, int] | None:
    """Return the numbers of rows, inputs and outputs of a product that reads a weight.

    The weight is the operand with `elements` elements. If there is none, the result is None.
    """
    if product.k * product.n == elements:
        return product.m, product.k, product.n
    return (product.n, product.k, product.m) if product.k * product.m == elements else None


def _maker(workload: Workload, ready: int) -> int:
    """Return the index of the product that computes the gradient of a weight.

    The operator `ready` completes that gradient. It is the product itself, or it comes after the
    product in the same module.
    """
    operators: Sequence[Operator] = workload.operators
    module = operators[ready].module
    for index in range(ready, -1, -1):
        if operators[index].kind is OperatorKind.PRODUCT and operators[index].module == module:
            return index
    return ready


@dataclass(frozen=True, slots=True)
class Option:
    """Possible gradient exchange of a layer.

    Args:
        choice: Gradient exchange; None is the default, an all-reduce.
        seconds: Seconds that the choice adds to a step, through communication and repeated
            computation.
        num_bytes: Bytes of parameters, gradients and optimizer states of the layer on one rank.
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
    state_bytes: int = 16,
) -> list[Option]:
    """Return the possible gradient exchanges of a layer.

    Args:
        layer: Layer with its sizes.
        ranks: Number of replicas.
        rate: Bytes per second that each rank sends and receives.
        latency: Latency of one step of a collective in seconds.
        flops_per_second: FLOP/s that the products of the layer reach.
        hidden: Share of an all-reduce that overlaps with the backward pass, 0 to 1 (default 0.0).
        element: Bytes per element on the wire (default 4).
        state_bytes: Bytes per parameter on a rank: the sum over parameter, gradient and optimizer
            states (default 16).
    """
    weights = layer.elements
    share = (ranks - 1) / ranks

    def seconds(numbers: float, back: float) -> float:
        return share * (numbers + back) * element / rate + (ranks - 1) * latency

    summed = 2 * seconds(weights, 0.0) * (1 - hidden)
    factors = seconds(*layer.traffic(Agreement.FACTORS, ranks)) * (1 - hidden)
    factors += (ranks - 1) * layer.flops / flops_per_second
    # Each rank multiplies the rows of all ranks by its share of the weight: inputs are gathered,
    # and outputs are sent back to the ranks of their rows. Gradients take the opposite way.
    sharded = 2 * seconds(*layer.traffic(Agreement.SHARD, ranks))
    return [
        Option(None, summed, weights * state_bytes),
        Option(Agreement.FACTORS, factors, weights * state_bytes),
        Option(Agreement.SHARD, sharded, weights * state_bytes / ranks),
    ]


def choose(layers: Sequence[Sequence[Option]], memory_bytes: float) -> list[Option]:
    """Return one option per layer: those with the least total time that fit in memory together.

    The function solves an integer program with one 0-1 variable per layer and option. The call
    blocks for some milliseconds if there are hundreds of layers.

    Args:
        layers: Options of each layer.
        memory_bytes: Memory for all layers together on one rank, in bytes.

    Raises:
        UsageError: No combination of options fits in `memory_bytes`.
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
    solution = milp(
        np.array([option.seconds for option in flat]) * 1e3,
        integrality=np.ones(len(flat)),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(sizes, -np.inf, 1)],
    )
    if not solution.success:
        least = sum(min(option.num_bytes for option in layer) for layer in layers)
        raise UsageError(
            f"the layers need at least {least / GIB:.1f} GiB on each rank, even if all are sharded,"
            f" and {memory_bytes / GIB:.1f} GiB are available; use more ranks or larger devices"
        )
    taken = np.round(solution.x).astype(bool)
    return [option for option, chosen in zip(flat, taken, strict=True) if chosen]


def shared_out(workload: Workload, strategy: Strategy) -> Workload:
    """Return the workload of a replica that stores only its shards of the sharded layers.

    Args:
        workload: Operators and tensors of one rank, for one micro-batch.
        strategy: Strategy, which states the layers that replicas shard.
    """
    names = {name for name, choice in strategy.layers if choice is Agreement.SHARD}
    if not names:
        return workload
    sharded = [parameter for parameter in workload.parameters if parameter.name in names]
    shares = set(with_copies(workload.operators, {parameter.value for parameter in sharded}))
    for parameter in sharded:
        if parameter.ready >= 0:
            made = workload.operators[_maker(workload, parameter.ready)].writes
            shares.update(v for v in made if workload.values[v].num_bytes == parameter.num_bytes)
    values = [
        replace(value, num_bytes=value.num_bytes // strategy.data) if index in shares else value
        for index, value in enumerate(workload.values)
    ]
    parameters = [
        replace(
            parameter,
            elements=parameter.elements // strategy.data,
            num_bytes=parameter.num_bytes // strategy.data,
        )
        if parameter.name in names
        else parameter
        for parameter in workload.parameters
    ]
    return replace(workload, values=tuple(values), parameters=tuple(parameters))
