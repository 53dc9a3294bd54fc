"""Turn a graph and the formats of its values into a program of Slipstream's kernels.

First, each operator is planned: it declares the memory that it needs. After planning, all memory is
arranged. Last, the operators emit the steps of the program. An operator without a kernel raises
`NoKernelError`, which names the node.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Array, Graph, Node
from slipstream.infer.native.formats import Format
from slipstream.infer.native.lowering import Lowering, caller_array, convert
from slipstream.infer.native.memory import arrange, pixels
from slipstream.infer.native.stages import Stage, stages_of


@dataclass(frozen=True)
class Compiled:
    """A program and the names of its buffers.

    The caller passes buffers in this order: the inputs of the graph, its outputs, and the constants
    that are not weights. A buffer is row-major in the graph's axis order. The numbers in a buffer
    are float32; only an input that is uint8 in the graph is uint8.
    """

    program: kernels.Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[Array, ...]
    steps: tuple[str, ...]  # name of the value that each step computes, for profiles
    bytes: int  # size of the program's own memory
    small: Mapping[str, Small]  # weights that were rounded, by the name of the graph's constant


class NoKernelError(UnsupportedError):
    """Error for a node for which the native engine has no kernel."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{node.op} {node.name or node.output}: {reason}")
        self.node = node


def plan(
    graph: Graph,
    formats: Mapping[str, Format],
    operations: Mapping[str, Callable[[Lowering, Stage], None]],
    *,
    is_dynamic: bool = False,
) -> Lowering:
    """Plan the memory and the steps of a graph.

    Raises:
        NoKernelError: no kernel can compute a node; the message names the first such node.
    """
    lowering = Lowering(graph, formats, is_dynamic)
    for index, name in enumerate(graph.inputs):
        if graph.inputs[name].dtype != np.uint8:  # uint8 images are read in place
            _take_input(lowering, name, index + 1)
    for stage in stages_of(graph):
        if stage.node.op not in operations:
            raise NoKernelError(stage.node, "the native engine has no kernel for this operator")
        try:
            operations[stage.node.op](lowering, stage)
        except UnsupportedError as error:
            raise NoKernelError(stage.node, str(error)) from error
    first_output = len(graph.inputs) + 1
    for index, name in enumerate(graph.outputs):
        _give_output(lowering, name, first_output + index)
    return lowering


def lower(
    graph: Graph,
    formats: Mapping[str, Format],
    operations: Mapping[str, Callable[[Lowering, Stage], None]],
    shifts: Mapping[str, Sequence[float]] | None = None,
    *,
    is_dynamic: bool = False,
) -> Compiled:
    """Return the program of a graph.

    Args:
        graph: Graph whose shapes are fixed.
        formats: Format of each value that is not stored as float32.
        operations: Function that plans an operator, by the operator's name. The arguments of each
            function are the lowering and a stage.
        shifts: Numbers to add to the bias of a product whose weights are rounded to int8, by the
            name of the product's output (default none). They cancel the mean error of the rounding.
        is_dynamic: Whether products of float32 values with large matrices are computed in int8
            (default False). If True, every call measures the range of each row of such a value, and
            quantises the row to this range.
    """
    lowering = plan(graph, formats, operations, is_dynamic=is_dynamic)
    lowering.shifts = shifts or {}
    lowering.locations, total = arrange(lowering.needs.items())
    lowering.program = kernels.Program(total)
    for name, emit in lowering.emits:
        emit(lowering)
        num_new_steps = len(lowering.program.names) - len(lowering.steps)
        lowering.steps.extend([name] * num_new_steps)
    return Compiled(
        lowering.program,
        tuple(graph.inputs),
        tuple(graph.outputs),
        tuple(lowering.constants),
        tuple(lowering.steps),
        total,
        lowering.small,
    )


def _take_input(lowering: Lowering, name: str, buffer: int) -> None:
    shape = lowering.shape(name)
    lowering.write(name)
    # Without gaps between pixels, the numbers of a window are contiguous in each row.
    lowering.needs[name].dense = pixels(shape)[3] <= 4

    def emit(at: Lowering) -> None:
        outside, location = caller_array(shape, buffer), at.location(name)
        convert(at, outside, location)

    lowering.emit_later(name, emit)


def _give_output(lowering: Lowering, name: str, buffer: int) -> None:
    shape = lowering.shape(name)
    lowering.read(name)

    def emit(at: Lowering) -> None:
        outside, location = caller_array(shape, buffer), at.location(name)
        convert(at, location, outside)

    lowering.emit_later(name, emit)
