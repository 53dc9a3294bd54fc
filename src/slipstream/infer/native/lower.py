"""From a graph and its formats to a program of our kernels.

Every operation first says what memory it needs; then all of it is arranged; then the steps are
made. Operations that have no kernel raise NotOursError, which names them.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Array, Graph, Node
from slipstream.infer.native.formats import BFloat16, Bytes, Format
from slipstream.infer.native.places import Border, Need, Place, arrange, pixels
from slipstream.infer.native.stages import Stage, Tail, stages_of

Emit = Callable[["Lowering"], None]
ONE = kernels.Window((1, 1), (1, 1), (1, 1), (0, 0))


@dataclass(frozen=True)
class Compiled:
    """A program, and its buffers in their order: the graph's inputs, its outputs, constants that
    are not weights. All are row-major, in the graph's own layout, and float32, but for inputs that
    are uint8 in the graph."""

    program: kernels.Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[Array, ...]
    steps: tuple[str, ...]  # the value that each step computes, for profiles
    bytes: int
    small: Mapping[str, Small]  # weights that were rounded


class NotOursError(UnsupportedError):
    """Our kernels cannot do one node."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(f"{node.op} {node.name or node.output}: {why}")
        self.node = node


@dataclass
class Lowering:
    """The state of one lowering."""

    graph: Graph
    formats: Mapping[str, Format]
    is_dynamic: bool = False  # matrices multiply bytes whose ranges are found in each call
    needs: dict[str, Need] = field(default_factory=dict[str, Need])
    views: dict[str, tuple[str, Callable[[Place], Place]]] = field(
        default_factory=dict[str, "tuple[str, Callable[[Place], Place]]"]
    )
    splits: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    gates: dict[str, str] = field(default_factory=dict[str, str])  # of values to be multiplied
    emits: list[tuple[str, Emit]] = field(default_factory=list["tuple[str, Emit]"])
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    constants: list[Array] = field(default_factory=list[Array])
    small: dict[str, Small] = field(default_factory=dict[str, Small])
    shifts: Mapping[str, Sequence[float]] = field(default_factory=dict[str, "Sequence[float]"])
    program: kernels.Program = field(init=False)
    steps: list[str] = field(default_factory=list[str])

    # ---- what memory is needed -------------------------------------------------------------

    @property
    def now(self) -> int:
        """The number of the operation that is being planned."""
        return len(self.emits)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value of the graph; UnsupportedError where it is not known."""
        if name in self.needs:
            return self.needs[name].shape
        shape = self.graph.shape(name)
        if shape is None:
            raise UnsupportedError(f"the shape of {name} is not fixed: {self.graph.value(name)}")
        return shape

    def format(self, name: str) -> Format:
        """How a value is stored; None: float32."""
        base = name
        while base in self.views:
            base = self.views[base][0]
        return self.needs[base].format if base in self.needs else self.formats.get(name)

    def write(self, name: str, shape: Sequence[int] | None = None, *, floats: bool = False) -> str:
        """The operation being planned gives `name`."""
        format_ = None if floats else self.formats.get(name)
        whole = tuple(self.shape(name) if shape is None else shape)
        if isinstance(format_, BFloat16) and (pixels(whole)[3] % 2 or self._has_odd_parts(name)):
            format_ = None  # products of bfloat16 take numbers two by two
        dtype = self.graph.value(name).dtype
        if dtype is not None and dtype != np.float32:
            raise UnsupportedError(f"our kernels compute float32, and {name} is {dtype}")
        self.needs[name] = Need(whole, format_, self.now, self.now)
        return name

    def _has_odd_parts(self, name: str) -> bool:
        """Whether a part that it is split into ends next to a number of another part."""
        parts = [
            part
            for node in self.graph.nodes
            if node.op == "Split" and node.inputs[0] == name
            for part in node.outputs
        ]
        return any(pixels(self.shape(part))[3] % 2 or self._has_odd_parts(part) for part in parts)

    def read(self, name: str, border: Border | None = None) -> str:
        """The operation being planned reads `name`, and as much of a border as given."""
        base = name
        while base in self.views:
            base = self.views[base][0]
        if base not in self.needs:
            self._take_constant(base)
        need = self.needs[base]
        need.last = max(need.last, self.now)
        if border is not None:
            need.border = need.border.union(border)
        return name

    def reach(self, name: str, ahead: int) -> None:
        """Kernels may read as many pixels beyond the last of `name`."""
        while name in self.views:
            name = self.views[name][0]
        self.needs[name].ahead = max(self.needs[name].ahead, ahead)

    def _take_constant(self, name: str) -> None:
        """Copy a constant to where kernels can read it."""
        if name not in self.graph.constants:
            raise UnsupportedError(f"{name} is computed by no kernel of ours")
        array = np.array(self.graph.constants[name], np.float32)
        buffer = 1 + len(self.graph.inputs) + len(self.graph.outputs) + len(self.constants)
        self.constants.append(array)
        self.write(name, array.shape)
        self.then(name, lambda at: convert(at, _outside(array.shape, buffer), at.place(name)))

    def view(self, name: str, base: str, how: Callable[[Place], Place]) -> None:
        """`name` lies where `base` lies: no step is needed."""
        self.views[name] = (base, how)

    def only_leaves(self, name: str) -> bool:
        """True for an output of the graph that nothing of ours reads."""
        return name in self.graph.outputs and not any(
            name in node.inputs for node in self.graph.nodes
        )

    def take_in(self, part: str, whole: str, begin: int, end: int) -> bool:
        """Let `part`, which a step has computed, lie in `whole` as its channels [begin, end); False
        where it cannot: kernels write 16 channels at a time, and nothing lies in two places."""
        need, target = self.needs.get(part), self.needs[whole]
        ends_within = end % 16 == 0 or end == pixels(target.shape)[3]
        if need is None or need.dense or need.format != target.format:
            return False
        if begin % 16 or not ends_within:
            return False
        del self.needs[part]
        target.first = min(target.first, need.first)
        target.border = target.border.union(need.border)
        target.ahead = max(target.ahead, need.ahead)
        self.view(part, whole, lambda at: at.channels(begin, end))
        return True

    def then(self, name: str, emit: Emit) -> None:
        """The plan of the operation is complete: `emit` makes its steps, for the value `name`."""
        self.emits.append((name, emit))

    # ---- while steps are made --------------------------------------------------------------

    def place(self, name: str) -> Place:
        """Where a value lies."""
        if name in self.views:
            base, how = self.views[name]
            return how(self.place(base))
        return self.places[name]

    def tensor(self, place: Place | str) -> kernels.Tensor:
        """A place as kernels take it."""
        at = self.place(place) if isinstance(place, str) else place
        return kernels.Tensor(number_of(at.format), at.buffer, at.offset, at.sizes, at.pitch)


def number_of(format_: Format) -> kernels.Number:
    """A format's kind, as kernels name it."""
    if isinstance(format_, Bytes):
        return kernels.Number.UINT8
    return kernels.Number.BFLOAT16 if isinstance(format_, BFloat16) else kernels.Number.FLOAT32


def plan(
    graph: Graph,
    formats: Mapping[str, Format],
    operations: Mapping[str, Callable[[Lowering, Stage], None]],
    *,
    is_dynamic: bool = False,
) -> Lowering:
    """What memory and steps a graph needs; NotOursError names the first node without a kernel."""
    lowering = Lowering(graph, formats, is_dynamic)
    for index, name in enumerate(graph.inputs):
        if graph.inputs[name].dtype != np.uint8:  # pictures of bytes are read where they are
            _take_input(lowering, name, index + 1)
    for stage in stages_of(graph):
        if stage.node.op not in operations:
            raise NotOursError(stage.node, "our kernels have none")
        try:
            operations[stage.node.op](lowering, stage)
        except UnsupportedError as error:
            raise NotOursError(stage.node, str(error)) from error
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
    """The program of a graph whose values in `formats` are stored so, others as float32.

    Args:
        operations: plans each operator: called with the lowering and a stage.
        shifts: by the outputs of products, added to their biases where their weights are rounded
            to bytes.
        is_dynamic: products of matrices that read float32 multiply bytes all the same, with ranges
            that each call finds for each row.
    """
    lowering = plan(graph, formats, operations, is_dynamic=is_dynamic)
    lowering.shifts = shifts or {}
    lowering.places, total = arrange(lowering.needs.items())
    lowering.program = kernels.Program(total)
    for name, emit in lowering.emits:
        emit(lowering)
        made = len(lowering.program.names) - len(lowering.steps)
        lowering.steps.extend([name] * made)
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
    # The taps of a picture of few colours are one run in each row.
    lowering.needs[name].dense = pixels(shape)[3] <= 4

    def emit(at: Lowering) -> None:
        outside, place = _outside(shape, buffer), at.place(name)
        convert(at, outside, place)

    lowering.then(name, emit)


def _give_output(lowering: Lowering, name: str, buffer: int) -> None:
    shape = lowering.shape(name)
    lowering.read(name)

    def emit(at: Lowering) -> None:
        outside, place = _outside(shape, buffer), at.place(name)
        convert(at, place, outside)

    lowering.then(name, emit)


@dataclass(frozen=True)
class _Outside(Place):
    """A caller's array: float32, row-major in the graph's own order."""

    def strides(self) -> tuple[int, ...]:
        sizes = np.cumprod((1, *self.shape[:0:-1]))[::-1]
        return tuple(int(size) * 4 for size in sizes)


def _outside(shape: tuple[int, ...], buffer: int) -> _Outside:
    return _Outside(buffer, 0, (1, 1, 1, int(np.prod(shape))), (0, 0, 0), None, shape)


def _copy(
    lowering: Lowering,
    source: Place,
    target: Place,
    sizes: Sequence[int],
    source_strides: Sequence[int],
    target_strides: Sequence[int],
    change: tuple[float, float] = (1.0, 0.0),
) -> None:
    """A strided copy, dimensions that lie alike merged and the densest one innermost."""
    dims = [
        dim for dim in zip(sizes, source_strides, target_strides, strict=True) if dim[0] != 1
    ] or [(1, source.size, target.size)]
    dims.sort(key=lambda dim: (-dim[2], -dim[1]))
    merged = [dims[0]]
    for size, from_, to in dims[1:]:
        outer = merged[-1]
        if outer[1] == size * from_ and outer[2] == size * to:
            merged[-1] = (outer[0] * size, from_, to)
        else:
            merged.append((size, from_, to))
    lowering.program.copy(
        lowering.tensor(source),
        lowering.tensor(target),
        [dim[0] for dim in merged],
        [dim[1] for dim in merged],
        [dim[2] for dim in merged],
        *change,
    )


def convert(
    lowering: Lowering,
    source: Place,
    target: Place,
    source_strides: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    target_strides: Sequence[int] | None = None,
) -> None:
    """Copy, with the change of format that the places ask for; strides as given, or their own."""
    scale, shift = 1.0, 0.0
    if source.format != target.format:
        if isinstance(source.format, Bytes):
            scale, shift = source.format.scale, -source.format.zero * source.format.scale
        if isinstance(target.format, Bytes):
            scale, shift = scale / target.format.scale, shift / target.format.scale
            shift += target.format.zero
    _copy(
        lowering,
        source,
        target,
        source.shape if sizes is None else sizes,
        source.strides() if source_strides is None else source_strides,
        target.strides() if target_strides is None else target_strides,
        (scale, shift),
    )


def epilogue(
    tail: Tail, scale: Array, bias: Array, output: Format, addend: Format
) -> kernels.Epilogue:
    """What the kernel does with sums: real = sum * scale + bias, then the tail, then the format.

    Scales and zeros of bytes fold into the numbers that the kernel multiplies and adds anyway.
    """
    stretch, shift = 1.0, 0.0
    if isinstance(output, Bytes):
        stretch, shift = 1 / output.scale, float(output.zero)
    own = bias  # what the factor multiplies too
    if tail.factor is not None:
        bias = np.zeros_like(bias) if tail.offset is None else tail.offset.astype(np.float32)
    weight, offset = 1.0, 0.0
    if isinstance(addend, Bytes):
        weight, offset = addend.scale, -addend.scale * addend.zero
    if tail.addend is None:
        offset = 0.0
    active = tail.activation != "NONE"
    if tail.after and active:
        shift += offset * stretch
    else:
        bias = bias + offset
    if not active:
        scale, bias, weight = scale * stretch, bias * stretch + shift, weight * stretch
        own = own * stretch
    made = kernels.Epilogue(_floats(scale), _floats(bias if tail.factor is None else own))
    if tail.factor is not None:
        made.offset(_floats(bias))
    made.activation = getattr(kernels.Activation, tail.activation)
    made.alpha, made.beta = tail.alpha, tail.beta
    made.stretch, made.shift = (stretch, shift) if active else (1.0, 0.0)
    made.addend_weight = weight
    if tail.addend is not None:
        made.adds = kernels.Adds.AFTER if tail.after else kernels.Adds.BEFORE
        made.addend = number_of(addend)
    made.low, made.high = _clip(tail, output)
    made.output = number_of(output)
    return made


def _floats(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32)


def _clip(tail: Tail, output: Format) -> tuple[float, float]:
    if not isinstance(output, Bytes):
        return tail.low, tail.high
    low = tail.low / output.scale + output.zero
    high = tail.high / output.scale + output.zero
    return float(np.clip(low, 0, 255)), float(np.clip(high, 0, 255))
