"""The plan of a program: the memory of its values, and the steps that operators emit."""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.native.formats import BFloat16, Bytes, Format, number_of
from slipstream.infer.native.memory import Border, Location, Need, pixels

Emit = Callable[["Lowering"], None]
ONE = kernels.Window((1, 1), (1, 1), (1, 1), (0, 0))


@dataclass
class Lowering:
    """The state of turning a graph into a program: first the plan of memory, then the steps.

    Values are referred to by their names in the graph.

    Args:
        graph: Graph that is lowered.
        formats: Format of each value that is not stored as float32.
        is_dynamic: Whether products with large matrices are computed in int8, with ranges that each
            call measures (default False).
        needs: Memory that each value needs, by the value's name.
        views: Values that share the memory of another value (the base). The key is the name of the
            value. The item is the name of the base, and a function that turns the base's location
            into the value's location.
        splits: Names of all outputs of a Split, by the name of each of these outputs.
        gates: Names of the factors that SqueezeExcite computes, by the name of SqueezeExcite's
            result. The convolution that reads the result multiplies its weights by the factors.
        emits: One pair per planned operator: the name of the value that the operator computes, and
            the function that adds the operator's steps to the program.
        locations: Location of each value in memory, by name; locations are known after planning.
        constants: Arrays of the graph's constants that the caller passes as buffers.
        small: Number formats of the weights that are not stored as float32, by the name of the
            graph's constant.
        shifts: Numbers to add to the biases of products with rounded weights, by the name of the
            product's output. They cancel the mean error of the rounding.
        program: Program to which the steps are added.
        steps: Names of the values that the steps of the program compute, one per step.
    """

    graph: Graph
    formats: Mapping[str, Format]
    is_dynamic: bool = False
    needs: dict[str, Need] = field(default_factory=dict[str, Need])
    views: dict[str, tuple[str, Callable[[Location], Location]]] = field(
        default_factory=dict[str, "tuple[str, Callable[[Location], Location]]"]
    )
    splits: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    gates: dict[str, str] = field(default_factory=dict[str, str])
    emits: list[tuple[str, Emit]] = field(default_factory=list["tuple[str, Emit]"])
    locations: dict[str, Location] = field(default_factory=dict[str, Location])
    constants: list[Array] = field(default_factory=list[Array])
    small: dict[str, Small] = field(default_factory=dict[str, Small])
    shifts: Mapping[str, Sequence[float]] = field(default_factory=dict[str, "Sequence[float]"])
    program: kernels.Program = field(init=False)
    steps: list[str] = field(default_factory=list[str])

    # ---- planning memory -------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Index of the operator that is being planned, from 0."""
        return len(self.emits)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value.

        Raises:
            UnsupportedError: the graph does not fix all dimensions of the shape.
        """
        if name in self.needs:
            return self.needs[name].shape
        shape = self.graph.shape(name)
        if shape is None:
            raise UnsupportedError(
                f"the shape of {name} is not fixed: {self.graph.value(name)}; "
                "the native engine needs a fixed size for every dimension"
            )
        return shape

    def format(self, name: str) -> Format:
        """Return the storage format of a value; None means float32."""
        base = name
        while base in self.views:
            base = self.views[base][0]
        return self.needs[base].format if base in self.needs else self.formats.get(name)

    def write(self, name: str, shape: Sequence[int] | None = None, *, floats: bool = False) -> str:
        """Reserve memory for a result of the operator that is being planned; return its name.

        Args:
            name: Name of the value that the operator writes.
            shape: Shape of the value that is written (default: its shape in the graph).
            floats: Whether to store float32 even if `formats` gives the value another format
                (default False).
        """
        format_ = None if floats else self.formats.get(name)
        sizes = tuple(self.shape(name) if shape is None else shape)
        if isinstance(format_, BFloat16) and (pixels(sizes)[3] % 2 or self._has_odd_parts(name)):
            format_ = None  # products of bfloat16 read channels in pairs
        dtype = self.graph.value(name).dtype
        if dtype is not None and dtype != np.float32:
            raise UnsupportedError(f"the native engine computes float32, not {dtype} ({name})")
        self.needs[name] = Need(sizes, format_, self.now, self.now)
        return name

    def _has_odd_parts(self, name: str) -> bool:
        """Tell whether a Split of the value has an output with an odd number of channels.

        The outputs of a Split may be split again; these parts count, too.
        """
        parts = [
            part
            for node in self.graph.nodes
            if node.op == "Split" and node.inputs[0] == name
            for part in node.outputs
        ]
        return any(pixels(self.shape(part))[3] % 2 or self._has_odd_parts(part) for part in parts)

    def read(self, name: str, border: Border | None = None) -> str:
        """Record that the operator that is being planned reads `name`, and return the name.

        Args:
            name: Name of the value that the operator reads.
            border: Pixels around the image that the operator reads as well (default none).
        """
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

    def read_ahead(self, name: str, num_pixels: int) -> None:
        """Let kernels read up to `num_pixels` pixels beyond the last pixel of `name`."""
        while name in self.views:
            name = self.views[name][0]
        self.needs[name].ahead = max(self.needs[name].ahead, num_pixels)

    def _take_constant(self, name: str) -> None:
        """Copy a constant of the graph to memory that kernels can read."""
        if name not in self.graph.constants:
            raise UnsupportedError(
                f"{name} is neither a constant nor computed by the native engine"
            )
        array = np.array(self.graph.constants[name], np.float32)
        buffer = 1 + len(self.graph.inputs) + len(self.graph.outputs) + len(self.constants)
        self.constants.append(array)
        self.write(name, array.shape)
        self.emit_later(
            name, lambda at: convert(at, caller_array(array.shape, buffer), at.location(name))
        )

    def view(self, name: str, base: str, how: Callable[[Location], Location]) -> None:
        """Declare that `name` shares the memory of `base`, so that no step is needed.

        Args:
            name: Name of the value that is declared.
            base: Name of the value whose memory is shared.
            how: Function that takes the location of `base`, and returns the location of `name`.
        """
        self.views[name] = (base, how)

    def is_pure_output(self, name: str) -> bool:
        """Tell whether the value is an output of the graph that no node reads."""
        return name in self.graph.outputs and not any(
            name in node.inputs for node in self.graph.nodes
        )

    def merge_into(self, part: str, target_name: str, begin: int, end: int) -> bool:
        """Place a computed value (the part) inside the result of a Concat (the target).

        The part is then computed in its place, so Concat need not copy it.

        Kernels write 16 channels at a time. So the part must begin at a multiple of 16 channels,
        and must end at a multiple of 16 channels or at the end of the target. If the part already
        lies inside another value, it is not placed, because a value has only one location.

        Args:
            part: Name of the value that an earlier step computes.
            target_name: Name of the target.
            begin: First channel of the part in the target.
            end: Channel of the target after the last channel of the part.

        Returns:
            Whether the part was placed inside the target. If the part was not placed, nothing is
            changed.
        """
        need, target = self.needs.get(part), self.needs[target_name]
        ends_within = end % 16 == 0 or end == pixels(target.shape)[3]
        if need is None or need.dense or need.format != target.format:
            return False
        if begin % 16 or not ends_within:
            return False
        del self.needs[part]
        target.first = min(target.first, need.first)
        target.border = target.border.union(need.border)
        target.ahead = max(target.ahead, need.ahead)
        self.view(part, target_name, lambda at: at.channels(begin, end))
        return True

    def emit_later(self, name: str, emit: Emit) -> None:
        """Complete the plan of the operator that computes `name`.

        Args:
            name: Name of the value that the operator computes.
            emit: Function that adds the operator's steps to the program, after planning.
        """
        self.emits.append((name, emit))

    # ---- making steps ----------------------------------------------------------------------

    def location(self, name: str) -> Location:
        """Return the location of a value in memory."""
        if name in self.views:
            base, how = self.views[name]
            return how(self.location(base))
        return self.locations[name]

    def tensor(self, location: Location | str) -> kernels.Tensor:
        """Return the kernels' description of a value or of a part of a value."""
        at = self.location(location) if isinstance(location, str) else location
        return kernels.Tensor(number_of(at.format), at.buffer, at.offset, at.sizes, at.pitch)


@dataclass(frozen=True)
class CallerArray(Location):
    """An array that the caller passes: float32, row-major in the graph's axis order."""

    def strides(self) -> tuple[int, ...]:
        sizes = np.cumprod((1, *self.shape[:0:-1]))[::-1]
        return tuple(int(size) * 4 for size in sizes)


def caller_array(shape: tuple[int, ...], buffer: int) -> CallerArray:
    return CallerArray(buffer, 0, (1, 1, 1, int(np.prod(shape))), (0, 0, 0), None, shape)


def _copy(
    lowering: Lowering,
    source: Location,
    target: Location,
    sizes: Sequence[int],
    source_strides: Sequence[int],
    target_strides: Sequence[int],
    change: tuple[float, float] = (1.0, 0.0),
) -> None:
    """Add a step that copies numbers from strided memory to strided memory.

    Dimensions that are contiguous in both tensors are merged. The dimension with the smallest
    stride in the target becomes the innermost loop.
    """
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
    source: Location,
    target: Location,
    source_strides: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    target_strides: Sequence[int] | None = None,
) -> None:
    """Add a step that copies a value, and converts it between locations of different formats.

    Args:
        lowering: State of the lowering; the step is added to its program.
        source: Location from which the step reads.
        target: Location to which the step writes.
        source_strides: Bytes between neighbours in the source, for each axis (default: the strides
            of the source's location).
        sizes: Numbers of elements to copy along each axis (default: the shape of the source).
        target_strides: Bytes between neighbours in the target, for each axis (default: the strides
            of the target's location).
    """
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
