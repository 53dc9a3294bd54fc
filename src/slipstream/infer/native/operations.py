"""How each operator becomes steps of our kernels: what memory it needs, and which step it is."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.graph import Array, Node
from slipstream.infer.native.formats import BFloat16, Bytes, Format, Weights
from slipstream.infer.native.lower import HIGHEST, ONE, Lowering, convert, epilogue
from slipstream.infer.native.places import Border, Place
from slipstream.infer.native.stages import Stage, Tail, is_ours


def convolution(lowering: Lowering, stage: Stage) -> None:
    """Conv: of all channels, of each by itself, or of groups of channels."""
    node = stage.node
    weights = _constant(lowering, node, 1)
    if weights.ndim == 3:
        raise UnsupportedError("our kernels have no Conv over one dimension")
    groups = int(node.get("group", 1))
    bias = _bias(lowering, node, 2, len(weights))
    window, border = _window(lowering, node, weights.shape[2:])
    source = lowering.read(node.inputs[0], border)
    if groups > 1 and groups == len(weights) == lowering.shape(source)[1]:
        _depthwise(lowering, stage, source, window, weights, bias, border)
    elif groups == 1:
        matrix = np.ascontiguousarray(weights.transpose(0, 2, 3, 1))
        _dense(lowering, stage, source, window, matrix, bias, border)
    else:
        raise UnsupportedError(f"our kernels have no Conv with {groups} groups")


def linear(lowering: Lowering, stage: Stage) -> None:
    """Linear (x, weight[K, N], bias) and Gemm with a constant matrix."""
    node = stage.node
    weights = _constant(lowering, node, 1)
    if node.op == "Gemm":
        if node.get("transA", 0) or node.get("alpha", 1.0) != 1 or node.get("beta", 1.0) != 1:
            raise UnsupportedError(f"our kernels have no Gemm with {sorted(node.attributes)}")
        weights = weights.T if node.get("transB", 0) else weights
    if len(lowering.shape(node.inputs[0])) > 3:
        raise UnsupportedError("Linear of our kernels reads up to three dimensions")
    matrix = np.ascontiguousarray(weights.T)
    bias = _bias(lowering, node, 2, len(matrix))
    source = lowering.read(node.inputs[0])
    _dense(lowering, stage, source, ONE, matrix.reshape(len(matrix), 1, 1, -1), bias, Border())


def _dense(
    lowering: Lowering,
    stage: Stage,
    source: str,
    window: kernels.Window,
    matrix: Array,
    bias: Array,
    border: Border,
) -> None:
    """`matrix` is (output channels, kernel rows, kernel columns, input channels)."""
    format_ = lowering.format(source)
    scale = np.ones(len(matrix), np.float32)
    if isinstance(format_, BFloat16):
        matrix = BFloat16.round(matrix)
    elif isinstance(format_, Bytes):
        weights = Weights.quantise(matrix)
        scale = weights.scale * format_.scale
        sums = weights.numbers.reshape(len(matrix), -1).sum(axis=1, dtype=np.int64)
        bias, matrix = bias - scale * format_.zero * sums, weights.numbers
    addend = _addend(lowering, stage.tail)
    output = lowering.write(stage.output)
    end = epilogue(stage.tail, scale, bias, lowering.format(output), addend)

    def emit(at: Lowering) -> None:
        _fill(at, source, border)
        more = None if stage.tail.addend is None else at.tensor(stage.tail.addend)
        at.program.convolution(at.tensor(source), at.tensor(output), more, window, matrix, end)

    lowering.then(output, emit)


def _depthwise(
    lowering: Lowering,
    stage: Stage,
    source: str,
    window: kernels.Window,
    weights: Array,
    bias: Array,
    border: Border,
) -> None:
    format_ = lowering.format(source)
    scale = np.ones(len(weights), np.float32)
    if isinstance(format_, Bytes):
        whole = Weights.quantise(weights)
        scale = whole.scale * format_.scale
        sums = whole.numbers.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
        bias, weights = bias - scale * format_.zero * sums, whole.numbers
    taps = np.ascontiguousarray(weights.reshape(len(weights), -1).T, np.float32)
    addend = _addend(lowering, stage.tail)
    output = lowering.write(stage.output)
    end = epilogue(stage.tail, scale, bias, lowering.format(output), addend)

    def emit(at: Lowering) -> None:
        _fill(at, source, border)
        more = None if stage.tail.addend is None else at.tensor(stage.tail.addend)
        at.program.depthwise(
            at.tensor(source),
            at.tensor(output),
            more,
            window,
            taps,
            isinstance(format_, Bytes),
            end,
        )

    lowering.then(output, emit)


def pointwise(lowering: Lowering, stage: Stage) -> None:
    """Activations, clips, additions: a depthwise convolution with one tap, all in its tail."""
    node = stage.node
    source = node.inputs[0]
    factor, bias = np.ones(1, np.float32), np.zeros(1, np.float32)
    whole = _whole_constant(lowering, node)
    if whole is not None and stage.tail.addend is None:
        source = next(name for name in node.inputs if name != whole)
        stage.tail.addend = whole
    elif node.op in ("Add", "Mul") and any(n in lowering.graph.constants for n in node.inputs):
        source, constant = _constant_operand(lowering, node)
        factor, bias = (constant, bias) if node.op == "Mul" else (factor, constant)
    elif node.op == "Add" and lowering.shape(node.inputs[0]) != lowering.shape(node.inputs[1]):
        raise UnsupportedError("our kernels add tensors of one shape")
    elif node.op == "Clip" and (node.attributes or not _bounds_are_constant(lowering, node)):
        raise UnsupportedError("our kernels have Clip with constant bounds only")
    elif node.op == "Gelu" and node.get("approximate", "none") != "none":
        raise UnsupportedError("our kernels have Gelu without approximation only")
    _scaled(lowering, stage, source, factor, bias)


def _scaled(lowering: Lowering, stage: Stage, source: str, factor: Array, bias: Array) -> None:
    source = lowering.read(source)
    format_ = lowering.format(source)
    shape = lowering.shape(source)
    channels = shape[1] if len(shape) == 4 else shape[-1]
    scale = np.broadcast_to(factor, channels).astype(np.float32)
    add = np.broadcast_to(bias, channels).astype(np.float32)
    if isinstance(format_, Bytes):
        scale, add = scale * format_.scale, add - scale * format_.scale * format_.zero
    addend = _addend(lowering, stage.tail)
    output = lowering.write(stage.output)
    end = epilogue(stage.tail, scale, add, lowering.format(output), addend)
    taps = np.ones((1, channels), np.float32)

    def emit(at: Lowering) -> None:
        more = None if stage.tail.addend is None else at.tensor(stage.tail.addend)
        at.program.depthwise(at.tensor(source), at.tensor(output), more, ONE, taps, True, end)

    lowering.then(output, emit)


def multiply(lowering: Lowering, stage: Stage) -> None:
    """Mul by a constant per channel, or by a tensor that has one number per channel."""
    node = stage.node
    if any(name in lowering.graph.constants for name in node.inputs):
        return pointwise(lowering, stage)
    first, second = node.inputs
    if int(np.prod(lowering.shape(first)[2:])) == 1 and len(lowering.shape(first)) == 4:
        first, second = second, first
    shape, factors = lowering.shape(first), lowering.shape(second)
    if len(shape) != 4 or factors != (*shape[:2], 1, 1):
        raise UnsupportedError(f"our kernels have no Mul of {shape} by {factors}")
    if lowering.format(second) is not None:
        raise UnsupportedError("factors of Mul are float32 in our kernels")
    _gate(lowering, first, second, stage.output)
    return None


def _gate(lowering: Lowering, source: str, factors: str, output: str) -> None:
    lowering.read(source)
    lowering.read(factors)
    lowering.write(output)
    from_, to = lowering.format(source), lowering.format(output)
    offset, scale = 0.0, 1.0
    if isinstance(from_, Bytes):
        offset, scale = -float(from_.zero), from_.scale
    shift, low, high = 0.0, -HIGHEST, HIGHEST
    if isinstance(to, Bytes):
        scale, shift, low, high = scale / to.scale, float(to.zero), 0.0, 255.0

    def emit(at: Lowering) -> None:
        at.program.gate(
            at.tensor(source),
            at.tensor(factors),
            at.tensor(output),
            offset,
            scale,
            shift,
            low,
            high,
        )

    lowering.then(output, emit)


def squeeze_excite(lowering: Lowering, stage: Stage) -> None:
    """x times a factor per channel: two small matrices after the mean of x."""
    node = stage.node
    source, output = node.inputs[0], stage.output
    batch, channels = lowering.shape(source)[:2]
    mean = _mean(lowering, source, f"{output}:mean", (batch, channels))
    hidden = f"{output}:hidden"
    squeeze, excite = (_constant(lowering, node, i).astype(np.float32) for i in (1, 3))
    _small(lowering, mean, hidden, squeeze, _constant(lowering, node, 2), node, "activation")
    _small(lowering, hidden, f"{output}:gate", excite, _constant(lowering, node, 4), node, "gate")
    _gate(lowering, source, f"{output}:gate", output)


def _small(
    lowering: Lowering, source: str, output: str, matrix: Array, bias: Array, node: Node, which: str
) -> None:
    batch = lowering.shape(source)[0]
    lowering.read(source)
    lowering.write(output, (batch, matrix.shape[1]), floats=True)
    end = epilogue(
        _gate_tail(node, which), np.ones(matrix.shape[1], np.float32), bias.ravel(), None, None
    )
    rows = np.ascontiguousarray(matrix.T).reshape(matrix.shape[1], 1, 1, -1)

    def emit(at: Lowering) -> None:
        at.program.convolution(at.tensor(source), at.tensor(output), None, ONE, rows, end)

    lowering.then(output, emit)


def _gate_tail(node: Node, which: str) -> Tail:
    names = {
        "silu": "SILU",
        "sigmoid": "SIGMOID",
        "hardsigmoid": "HARD_SIGMOID",
        "hardswish": "HARD_SWISH",
        "gelu": "GELU",
        "tanh": "TANH",
    }
    kind = str(node.get(which, "none")).lower()
    if kind == "relu":
        return Tail(low=0.0)
    if kind not in names:
        raise UnsupportedError(f"our kernels have no SqueezeExcite with {which} {kind!r}")
    return Tail(
        activation=names[kind],
        alpha=float(node.get(f"{which}_alpha", 1 / 6)),
        beta=float(node.get(f"{which}_beta", 0.5)),
    )


def _mean(lowering: Lowering, source: str, output: str, shape: Sequence[int]) -> str:
    lowering.read(source)
    lowering.write(output, shape, floats=True)
    format_ = lowering.format(source)
    scale, zero = 1.0, 0.0
    if isinstance(format_, Bytes):
        scale, zero = format_.scale, float(format_.zero)

    def emit(at: Lowering) -> None:
        at.program.global_mean(at.tensor(source), at.tensor(output), scale, zero)

    lowering.then(output, emit)
    return output


def global_mean(lowering: Lowering, stage: Stage) -> None:
    """GlobalAveragePool, and ReduceMean over rows and columns."""
    node = stage.node
    if node.op == "ReduceMean":
        axes = node.get("axes")
        if axes is None and len(node.inputs) > 1:
            axes = _constant(lowering, node, 1).tolist()
        if len(lowering.shape(node.inputs[0])) != 4 or sorted(a % 4 for a in axes or ()) != [2, 3]:
            raise UnsupportedError(f"our kernels have no ReduceMean over {axes}")
    if len(lowering.shape(node.inputs[0])) != 4:
        raise UnsupportedError(f"{node.op} of our kernels reads pictures")
    shape = lowering.shape(stage.output)
    if lowering.formats.get(stage.output) is None:
        _mean(lowering, node.inputs[0], stage.output, shape)
        return
    mean = _mean(lowering, node.inputs[0], f"{stage.output}:float", shape)
    _converted(lowering, mean, stage.output)


def _converted(lowering: Lowering, source: str, output: str) -> None:
    lowering.read(source)
    lowering.write(output)

    def emit(at: Lowering) -> None:
        convert(at, at.place(source), at.place(output))

    lowering.then(output, emit)


def pooling(lowering: Lowering, stage: Stage) -> None:
    """MaxPool, AveragePool."""
    node = stage.node
    if node.get("ceil_mode", 0) or len(node.outputs) > 1:
        raise UnsupportedError(f"our kernels have no {node.op} with ceil_mode or indices")
    if len(node.get("kernel_shape")) != 2 or set(node.get("dilations", [1])) != {1}:
        raise UnsupportedError(f"our kernels have no {node.op} of {node.attributes}")
    window, border = _window(lowering, node, node.get("kernel_shape"))
    source = lowering.read(node.inputs[0])
    format_ = lowering.format(source)
    outside = node.op == "AveragePool" and bool(node.get("count_include_pad", 0))
    if outside and isinstance(format_, Bytes) and format_.zero and border != Border():
        raise UnsupportedError("AveragePool of our kernels counts no pixels outside as bytes")
    output = lowering.write(stage.output)
    lowering.needs[output].format = format_
    kind = kernels.Pooling.MAX if node.op == "MaxPool" else kernels.Pooling.MEAN

    def emit(at: Lowering) -> None:
        at.program.pooling(at.tensor(source), at.tensor(output), window, kind, outside)

    lowering.then(output, emit)


def concat(lowering: Lowering, stage: Stage) -> None:
    """Concat of channels: copies of the parts."""
    node = stage.node
    shape = lowering.shape(stage.output)
    axis = int(node.get("axis", 0)) % len(shape)
    parts = [lowering.read(name) for name in node.inputs]
    output = lowering.write(stage.output)
    ends = np.cumsum([lowering.shape(name)[axis] for name in parts])

    def emit(at: Lowering) -> None:
        for part, end in zip(parts, ends, strict=True):
            source, target = at.place(part), at.place(output)
            begin = int(end) - source.shape[axis]
            moved = _moved(target, begin * target.strides()[axis])
            convert(at, source, moved, target_strides=target.strides())

    lowering.then(output, emit)


def _moved(place: Place, by: int) -> Place:
    return Place(
        place.buffer, place.offset + by, place.sizes, place.pitch, place.format, place.shape
    )


def split(lowering: Lowering, stage: Stage) -> None:
    """Split of channels: the parts are read where they lie."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    axis = int(node.get("axis", 0)) % len(shape)
    if axis != (1 if len(shape) == 4 else len(shape) - 1):
        raise UnsupportedError(f"our kernels have no Split along axis {axis} of {shape}")
    begin = 0
    for output in node.outputs:
        end = begin + lowering.shape(output)[axis]
        lowering.view(output, node.inputs[0], lambda at, b=begin, e=end: at.channels(b, e))
        begin = end


def relayout(lowering: Lowering, stage: Stage) -> None:
    """Reshape and its kin, and Transpose: a strided copy, or none where nothing would move."""
    node = stage.node
    source = lowering.read(node.inputs[0])
    output = lowering.write(stage.output)
    before, after = lowering.shape(source), lowering.shape(output)
    order = list(node.get("perm", range(len(before))[::-1])) if node.op == "Transpose" else None
    sizes = _common(before, after) if order is None else ()

    def emit(at: Lowering) -> None:
        from_, to = at.place(source), at.place(output)
        if order is not None:
            strides = [from_.strides()[axis] for axis in order]
            convert(at, from_, to, strides, after, to.strides())
            return
        convert(
            at,
            from_,
            to,
            _refined(before, from_.strides(), sizes),
            sizes,
            _refined(after, to.strides(), sizes),
        )

    lowering.then(output, emit)


def _common(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """The coarsest sizes of which the dimensions of both shapes are products."""
    ends = sorted(set(np.cumprod(before[::-1]).tolist()) | set(np.cumprod(after[::-1]).tolist()))
    sizes: list[int] = []
    last = 1
    for end in ends:
        if end % last:
            raise UnsupportedError(f"our kernels have no Reshape from {before} to {after}")
        if end != last:
            sizes.append(end // last)
        last = end
    return sizes[::-1] or [1]


def _refined(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The strides of a tensor whose dimensions are cut into `sizes`."""
    found: list[int] = []
    rest = list(sizes)[::-1]
    for size, stride in zip(shape[::-1], strides[::-1], strict=True):
        inside = 1
        while rest and inside < size:
            found.append(stride * inside)
            inside *= rest.pop(0)
    found.extend([0] * len(rest))
    return found[::-1]


# Forms of Resize that repeat each pixel, where the factors are whole.
REPEATS = {
    ("nearest", "asymmetric", "floor"),
    *(
        ("nearest", where, rounding)
        for where in ("half_pixel", "pytorch_half_pixel")
        for rounding in ("round_prefer_floor", "round_prefer_ceil")
    ),
}


def resize(lowering: Lowering, stage: Stage) -> None:
    """Resize to a whole multiple by repeating the nearest pixel."""
    node = stage.node
    before, after = lowering.shape(node.inputs[0]), lowering.shape(stage.output)
    kinds = (
        node.get("mode", "nearest"),
        node.get("coordinate_transformation_mode", "half_pixel"),
        node.get("nearest_mode", "round_prefer_floor"),
    )
    if (
        len(before) != 4
        or kinds not in REPEATS
        or any(b % a for a, b in zip(before, after, strict=True))
        or before[:2] != after[:2]
    ):
        raise UnsupportedError(f"our kernels have no Resize {kinds} from {before} to {after}")
    down, right = after[2] // before[2], after[3] // before[3]
    source, output = lowering.read(node.inputs[0]), lowering.write(stage.output)
    sizes = (*before[:2], before[2], down, before[3], right)

    def emit(at: Lowering) -> None:
        from_, to = at.place(source), at.place(output)
        b, c, y, x = from_.strides()
        tb, tc, ty, tx = to.strides()
        convert(at, from_, to, (b, c, y, 0, x, 0), sizes, (tb, tc, ty * down, ty, tx * right, tx))

    lowering.then(output, emit)


def layer_norm(lowering: Lowering, stage: Stage) -> None:
    """LayerNormalization over the last axis."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    if int(node.get("axis", -1)) % len(shape) != len(shape) - 1 or len(shape) == 4:
        raise UnsupportedError("our kernels normalise over the last of up to three dimensions")
    source = lowering.read(node.inputs[0])
    if lowering.format(source) is not None:
        raise UnsupportedError("LayerNormalization of our kernels reads float32")
    scale = _constant(lowering, node, 1).astype(np.float32)
    bias = _bias(lowering, node, 2, shape[-1])
    if stage.tail.addend is not None:
        raise UnsupportedError("LayerNormalization of our kernels adds nothing after it")
    output = lowering.write(stage.output)
    end = epilogue(stage.tail, scale, bias, lowering.format(output), None)
    epsilon = float(node.get("epsilon", 1e-5))

    def emit(at: Lowering) -> None:
        at.program.layer_norm(at.tensor(source), at.tensor(output), epsilon, end)

    lowering.then(output, emit)


def attention(lowering: Lowering, stage: Stage) -> None:
    """Attention (q, k, v[, mask]) of ours: tokens in the middle, heads side by side."""
    node = stage.node
    if not is_ours(node, "Attention"):
        raise UnsupportedError("our kernels have the Attention that rewrites make, not ONNX's")
    heads, scale = int(node.get("heads")), float(node.get("scale"))
    names = [lowering.read(name) for name in node.inputs[:3]]
    shape = lowering.shape(stage.output)
    if any(lowering.format(name) is not None for name in names) or shape[-1] // heads % 16:
        raise UnsupportedError("Attention of our kernels has float32 and heads of 16 n channels")
    mask = _mask(lowering, stage) if len(node.inputs) > 3 and node.inputs[3] else None
    for name in names:  # they are read after the mask was made
        lowering.read(name)
    output = lowering.write(stage.output, floats=True)

    def emit(at: Lowering) -> None:
        q, k, v = (at.tensor(name) for name in names)
        place = None if mask is None else at.place(mask)
        if place is not None and place.sizes[0] == 1:  # one for all pictures
            place = replace(place, pitch=(0, *place.pitch[1:]))
        more = None if place is None else at.tensor(place)
        at.program.attention(q, k, v, more, at.tensor(output), heads, scale)

    lowering.then(output, emit)


def _mask(lowering: Lowering, stage: Stage) -> str:
    """A mask for all heads as (pictures or 1, queries or 1, keys)."""
    source = lowering.read(stage.node.inputs[3])
    shape = (1,) * (4 - len(lowering.shape(source))) + lowering.shape(source)
    if len(shape) != 4 or shape[1] != 1 or lowering.format(source) is not None:
        raise UnsupportedError(f"our kernels have no mask {shape} of Attention")
    output = lowering.write(f"{stage.output}:mask", (shape[0], *shape[2:]), floats=True)

    def emit(at: Lowering) -> None:
        from_, to = at.place(source), at.place(output)
        strides = ((0,) * (4 - len(from_.shape)) + from_.strides())[-4:]
        convert(at, from_, to, (strides[0], *strides[2:]), to.shape, to.strides())

    lowering.then(output, emit)
    return lowering.read(output)


def softmax(lowering: Lowering, stage: Stage) -> None:
    """Softmax over the last axis, float32."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    axis = int(node.get("axis", -1)) % len(shape)
    source = lowering.read(node.inputs[0])
    if len(shape) == 4 or axis != len(shape) - 1 or lowering.format(source) is not None:
        raise UnsupportedError("our kernels have Softmax over the last of up to three dimensions")
    output = lowering.write(stage.output, floats=True)

    def emit(at: Lowering) -> None:
        at.program.softmax(at.tensor(source), at.tensor(output))

    lowering.then(output, emit)


# ---- what they share -----------------------------------------------------------------------


def _constant(lowering: Lowering, node: Node, index: int) -> Array:
    name = node.inputs[index]
    if name not in lowering.graph.constants:
        raise UnsupportedError(f"our kernels have {node.op} with constants only, not with {name}")
    return lowering.graph.constants[name]


def _bias(lowering: Lowering, node: Node, index: int, channels: int) -> Array:
    if len(node.inputs) <= index or not node.inputs[index]:
        return np.zeros(channels, np.float32)
    bias = _constant(lowering, node, index)
    if bias.size not in (1, channels) or (bias.ndim and bias.shape[-1] != bias.size):
        raise UnsupportedError(f"our kernels have no {node.op} with a bias {bias.shape}")
    return np.broadcast_to(bias.ravel(), channels).astype(np.float32)


def _constant_operand(lowering: Lowering, node: Node) -> tuple[str, Array]:
    """The operand that is computed, and the other one: a number, or one per channel."""
    source, other = node.inputs
    if source in lowering.graph.constants:
        source, other = other, source
    constant = lowering.graph.constants[other].astype(np.float32)
    shape = lowering.shape(source)
    axis = 1 if len(shape) == 4 else len(shape) - 1
    sizes = (1,) * (len(shape) - constant.ndim) + constant.shape
    if len(sizes) > len(shape) or any(
        size != 1 and (at != axis or size != shape[at]) for at, size in enumerate(sizes)
    ):
        raise UnsupportedError(f"our kernels have no {node.op} of {shape} and {constant.shape}")
    return source, constant.ravel()


def _bounds_are_constant(lowering: Lowering, node: Node) -> bool:
    return all(not name or name in lowering.graph.constants for name in node.inputs[1:])


def _whole_constant(lowering: Lowering, node: Node) -> str | None:
    """A constant that is added number by number."""
    shape = lowering.shape(node.output)
    for name in node.inputs:
        constant = lowering.graph.constants.get(name)
        if node.op == "Add" and constant is not None and constant.shape == shape and len(shape) > 1:
            return name
    return None


def _addend(lowering: Lowering, tail: Tail) -> Format:
    if tail.addend is None:
        return None
    return lowering.format(lowering.read(tail.addend))


def _fill(lowering: Lowering, source: str, border: Border) -> None:
    if border == Border():
        return
    while source in lowering.views:
        source = lowering.views[source][0]
    format_ = lowering.format(source)
    around = (border.above, border.left, border.below, border.right)
    lowering.program.border(
        lowering.tensor(source), around, format_.zero if isinstance(format_, Bytes) else 0
    )


def _window(lowering: Lowering, node: Node, size: Sequence[int]) -> tuple[kernels.Window, Border]:
    """The taps of a convolution or pooling, and how far they reach beyond the input."""
    stride = [int(i) for i in node.get("strides", [1, 1])]
    dilation = [int(i) for i in node.get("dilations", [1, 1])]
    before, after = lowering.shape(node.inputs[0])[2:], lowering.shape(node.output)[2:]
    reach = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
    span = [(o - 1) * s + r for o, s, r in zip(after, stride, reach, strict=True)]
    pads = [int(i) for i in node.get("pads", [0, 0, 0, 0])]
    kind = node.get("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        whole = [max(s - b, 0) for s, b in zip(span, before, strict=True)]
        first = [w // 2 if kind == "SAME_UPPER" else w - w // 2 for w in whole]
        pads = first + [w - f for w, f in zip(whole, first, strict=True)]
    rest = [s - b - p for s, b, p in zip(span, before, pads[:2], strict=True)]
    border = Border(pads[0], pads[1], max(rest[0], 0), max(rest[1], 0))
    window = kernels.Window(tuple(size), tuple(stride), tuple(dilation), (pads[0], pads[1]))
    return window, border


OPERATIONS: dict[str, Callable[[Lowering, Stage], None]] = {
    "Conv": convolution,
    "Linear": linear,
    "Gemm": linear,
    "Mul": multiply,
    "SqueezeExcite": squeeze_excite,
    "GlobalAveragePool": global_mean,
    "ReduceMean": global_mean,
    "MaxPool": pooling,
    "AveragePool": pooling,
    "Concat": concat,
    "Split": split,
    "Resize": resize,
    "LayerNormalization": layer_norm,
    "Attention": attention,
    "Softmax": softmax,
    **dict.fromkeys(
        (
            "Add",
            "Relu",
            "Clip",
            "Silu",
            "HardSwish",
            "Sigmoid",
            "HardSigmoid",
            "Gelu",
            "Tanh",
            "LeakyRelu",
        ),
        pointwise,
    ),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"), relayout),
}
