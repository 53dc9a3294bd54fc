"""Every imported op, in many forms, gives TensorFlow's own results."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
from grids import Case, Families, bound, cases

from slipstream.infer.importers.tensorflow.models import import_tensorflow

GRID = Families()
floats, positive, whole, flags = GRID.floats, GRID.positive, GRID.whole, GRID.flags


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture
def check(tf):
    def run(case: Case):
        def function(*inputs):
            return case.function(tf, *inputs)

        specs = [tf.TensorSpec(array.shape, array.dtype) for array in case.inputs]
        outputs = tf.nest.flatten(function(*map(tf.constant, case.inputs)))
        traced = tf.function(function, input_signature=specs)
        imported, notes = import_tensorflow(traced, case.inputs, {}, case.name)
        case.check(imported, [tuple(item.shape) for item in outputs])
        assert notes == ()

    return run


def op(name, *last, **options):
    """Return a function of TensorFlow, which is looked up when it is called."""
    find = operator.attrgetter(name)
    return bound(lambda tf, *xs, **more: find(tf)(*xs, **more), *last, **options)


def named(prefix, *names):
    return [(name, op(prefix + name)) for name in names]


# ---- one element -----------------------------------------------------------------------------

UNARY = named(
    "math.",
    *("abs", "sign", "exp", "expm1", "sin", "cos", "sinh", "cosh", "tanh", "atan", "asinh"),
    *("floor", "ceil", "round", "negative", "square", "sigmoid", "softplus", "erf", "erfc"),
    *("reciprocal", "is_finite", "is_nan", "is_inf", "tan", "rint", "log_sigmoid"),
)
POSITIVE = named("math.", "log", "log1p", "sqrt", "rsqrt")
SMALL = named("math.", "asin", "acos", "atanh")
ACTIVATIONS = named(
    "nn.",
    *("relu", "relu6", "elu", "selu", "leaky_relu", "softplus", "softsign", "silu", "gelu"),
    *("softmax", "log_softmax", "sigmoid", "tanh", "crelu"),
)
BINARY = named(
    "math.",
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "equal", "not_equal"),
    *("less", "less_equal", "greater", "greater_equal", "squared_difference", "floordiv"),
    *("floormod", "divide_no_nan"),
)
INTEGER = named(
    "math.", "add", "subtract", "multiply", "maximum", "minimum", "floordiv", "floormod", "less"
)
LOGIC = named("math.", "logical_and", "logical_or", "logical_xor")
CASTS = {name: name for name in ("float32", "int32", "int64", "uint8", "bool", "float16", "int8")}


def elements():
    yield from GRID.unary(UNARY, lambda: 3 * floats(2, 4, 6), 100)
    yield from GRID.unary(POSITIVE, lambda: positive(3, 5))
    yield from GRID.unary(SMALL, lambda: np.tanh(floats(3, 5)), 100)
    yield from GRID.unary(ACTIVATIONS, lambda: 2 * floats(2, 3, 6))
    yield Case("gelu by tanh", op("nn.gelu", approximate=True), (floats(9),))
    yield Case("acosh", op("math.acosh"), (positive(9) + 1,))
    yield Case("softmax of axis 1", op("nn.softmax", 1), (floats(2, 3, 4),))
    yield Case("clip", op("clip_by_value", -0.5, 0.5), (floats(3, 4),))
    yield Case("l2_normalize", op("math.l2_normalize", -1), (floats(3, 4),))
    yield from GRID.powers(op("pow"), (-1.0, 0.5, 2.0, 3.0))
    yield from GRID.binary(BINARY)
    yield from GRID.integer_binary(INTEGER, ("int32", "int64"))
    yield from GRID.logic(LOGIC)
    yield Case("not", op("logical_not"), (flags(3, 4),))
    yield Case("add_n", lambda tf, *xs: tf.add_n(xs), tuple(floats(3, 4) for _ in "abc"))
    yield Case("truncatemod", op("truncatemod"), (whole(9), whole(9, low=1)))
    for layout in ("NHWC", "NCHW"):
        yield Case(f"bias {layout}", op("nn.bias_add", layout), (floats(2, 3, 4, 3), floats(3)))
    yield from GRID.casts(op("cast"), CASTS)


def choices():
    yield from GRID.choices(op("where"), ("float32", "int32", "bool", "uint8"))
    yield Case("where of one shape", op("where"), (flags(3, 4), floats(3, 4), floats(3, 4)))
    yield Case("where of rows", op("compat.v1.where"), (flags(3), floats(3, 4), floats(3, 4)))
    yield Case("where broadcast", op("where", 0.0), (flags(4), floats(3, 4)))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(elements(), choices()))
def test_single_elements(case, check):
    check(case)


# ---- shapes ----------------------------------------------------------------------------------


ALONG_AXES = [
    ("concat", 2, lambda tf, *xs, axis: tf.concat(xs, axis)),
    ("stack", 3, lambda tf, *xs, axis: tf.stack(xs, axis)),
    ("unstack", 1, op("unstack")),
    ("split sizes", 1, op("split", [1, -1])),
    ("expand", 1, op("expand_dims")),
    ("reverse", 1, lambda tf, x, axis: tf.reverse(x, [axis])),
]


def shapes():
    x = floats(2, 3, 4)
    yield from GRID.orders(op("transpose"), op("reshape"))
    yield from GRID.slices()
    yield from GRID.along_axes(ALONG_AXES, range(-1, 3))
    yield Case("reshape by shape", lambda tf, x: tf.reshape(x, [tf.shape(x)[0], -1]), (x,))
    yield Case("fill", lambda tf, x: x + tf.fill(tf.shape(x), 2.0), (x,))
    yield Case("fill of a value", lambda tf, x: tf.fill([2, 3], x[0, 0, 0]), (x,))
    yield Case("zeros_like", lambda tf, x: tf.concat([x, tf.zeros_like(x)], 0), (x,))
    yield Case("range", lambda tf, x: x + tf.cast(tf.range(tf.shape(x)[2]), tf.float32), (x,))
    yield Case("size", lambda tf, x: x * tf.cast(tf.size(x) + tf.rank(x), tf.float32), (x,))
    for name, run in (
        ("slice op", op("slice", [0, 1, 2], [2, -1, 1])),
        ("split", op("split", 2, 2)),
        ("tile", op("tile", [2, 1, 3])),
        ("broadcast_to", op("broadcast_to", [5, 2, 3, 4])),
        ("pad", op("pad", [[1, 2], [0, 1], [0, 0]])),
        ("pad value", op("pad", [[1, 2], [0, 1], [0, 0]], "CONSTANT", 3.0)),
        ("pad reflect", op("pad", [[0, 1], [2, 1], [1, 3]], "REFLECT")),
        *(("band", op("linalg.band_part", *band)) for band in ((-1, 0), (0, -1), (1, 1), (0, 0))),
    ):
        yield Case(name, run, (x,))
    yield Case("squeeze", op("squeeze"), (floats(1, 3, 1),))
    yield Case("squeeze one", op("squeeze", [0]), (floats(1, 3, 1),))
    yield Case("space_to_depth", op("nn.space_to_depth", 2), (floats(1, 4, 6, 3),))
    yield Case("depth_to_space", op("nn.depth_to_space", 2), (floats(1, 4, 3, 8),))
    split = op("space_to_batch", block_shape=[2, 3], paddings=[[1, 1], [0, 1]])
    yield Case("space_to_batch", split, (floats(2, 4, 5, 3),))
    merge = op("batch_to_space", block_shape=[2, 3], crops=[[1, 0], [0, 2]])
    yield Case("batch_to_space", merge, (floats(12, 4, 5, 3),))


REDUCTIONS = [
    (name, op(f"math.reduce_{name}"))
    for name in ("sum", "prod", "max", "min", "mean", "std", "variance", "logsumexp")
]
FLAG_REDUCTIONS = [(name, op(f"math.reduce_{name}")) for name in ("any", "all")]
EXTREMES = [
    ("argmax", lambda tf, x, axis: tf.argmax(x, axis, tf.int32)),
    ("argmin", lambda tf, x, axis: tf.argmin(x, axis, tf.int32)),
]


def reductions():
    yield from GRID.reductions(REDUCTIONS, REDUCTIONS[:4], FLAG_REDUCTIONS)
    yield from GRID.extremes(EXTREMES, (0, 1, 2))
    for name, function in REDUCTIONS[:2]:
        run = lambda tf, x, function=function: function(tf, x, []) + 1  # noqa: E731
        yield Case(f"{name} over nothing", run, (floats(2, 3),))
    for axis, back, exclusive in itertools.product((0, 1), (False, True), (False, True)):
        run = op("cumsum", axis=axis, reverse=back, exclusive=exclusive)
        yield Case("cumsum", run, (floats(3, 4),))
    for k in (1, 3):
        yield Case("top_k", lambda tf, x, k=k: tuple(tf.math.top_k(x, k)), (floats(3, 5),))
    yield Case("moments", op("nn.moments", [0, 1]), (floats(3, 5),))


def lookups():
    table, places = floats(7, 4), whole(2, 3, low=0, high=4)
    for axis in (0, 1, -1):
        yield Case("gather", op("gather", axis=axis), (table, places))
    batched = (floats(2, 5, 4), whole(2, 3, low=0, high=5))
    yield Case("gather of rows", op("gather", batch_dims=1), batched)
    yield Case("embedding", op("nn.embedding_lookup"), (table, places))
    pairs = np.array([[0, 1], [6, 3]], np.int32)
    yield Case("gather_nd", op("gather_nd"), (table, pairs))
    yield Case("scatter update", op("tensor_scatter_nd_update"), (table, pairs, floats(2)))
    yield Case("scatter add", op("tensor_scatter_nd_add"), (table, pairs, floats(2)))
    for axis in (0, 1, -1):
        run = op("one_hot", 5, 2.0, -1.0, axis=axis)
        yield Case(f"one_hot {axis}", run, (whole(2, 3, low=-2, high=7),))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(shapes(), reductions(), lookups()))
def test_shapes_reductions_and_lookups(case, check):
    check(case)


# ---- products --------------------------------------------------------------------------------


def products():
    for one, other in itertools.product((False, True), (False, True)):
        run = op("matmul", transpose_a=one, transpose_b=other)
        left, right = ((4, 3) if one else (3, 4)), ((5, 4) if other else (4, 5))
        yield Case("matmul", run, (floats(*left), floats(*right)))
        yield Case("batch matmul", run, (floats(2, *left), floats(2, *right)))
    yield Case("matmul broadcast", lambda tf, x, y: x @ y, (floats(2, 1, 3, 4), floats(5, 4, 2)))
    yield Case("matmul whole", op("matmul"), (whole(3, 4), whole(4, 2)))
    texts = (
        *("ab,bc->ac", "abc,cde->abde", "aecd,abcd->acbe", "acbe,aecd->abcd", "abcd,cde->abe"),
        *("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ij,jk->ki", "ij,ij->i", "ij,kl->ijkl"),
        *("ii->i", "ij->ji", "ij,jk,kl->il", "abc,cd->abd", "ijk,jil->kl", "ij,kj->k"),
    )
    yield from GRID.einsums(lambda tf, *xs, text: tf.einsum(text, *xs), texts)
    yield Case("tensordot", op("tensordot", 2), (floats(2, 3, 4), floats(3, 4, 5)))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(products()))
def test_products(case, check):
    check(case)


# ---- convolutions, pools, sizes --------------------------------------------------------------

EXPLICIT = [[0, 0], [1, 2], [0, 1], [0, 0]]


def convolutions():
    for padding, stride, gap, group in itertools.product(
        ("SAME", "VALID", EXPLICIT), ((1, 1), (2, 3)), (1, 2), (1, 2)
    ):
        if gap > 1 and stride != (1, 1):
            continue
        run = op("nn.conv2d", strides=stride, padding=padding, dilations=gap)
        operands = (floats(2, 9, 8, 4), floats(3, 2, 4 // group, 8))
        yield Case(f"conv2d {padding} {stride} {gap} {group}", run, operands)
    for padding, stride, gap, multiplier in itertools.product(
        ("SAME", "VALID"), (1, 2), (1, 2), (1, 3)
    ):
        if gap > 1 and stride > 1:
            continue
        run = op("nn.depthwise_conv2d", [1, stride, stride, 1], padding, dilations=[gap, gap])
        operands = (floats(2, 9, 8, 4), floats(3, 3, 4, multiplier))
        yield Case(f"depthwise {padding} {stride} {gap} {multiplier}", run, operands)
    for padding, stride in itertools.product(("SAME", "VALID"), (1, 2, 3)):
        name = f"{padding} {stride}"
        operands = (floats(2, 9, 3), floats(3, 3, 5))
        yield Case(f"conv1d {name}", op("nn.conv1d", stride, padding), operands)
        strides = [1, stride, stride, stride, 1]
        operands = (floats(1, 5, 6, 7, 2), floats(3, 2, 3, 2, 4))
        yield Case(f"conv3d {name}", op("nn.conv3d", strides, padding), operands)
        for size in (7, 8, 9):
            side = (size - 1) * stride + 3 if padding == "VALID" else size * stride
            run = op("nn.conv2d_transpose", [2, side, side, 5], stride, padding)
            operands = (floats(2, size, size, 3), floats(3, 3, 5, 3))
            yield Case(f"transpose {name} {size}", run, operands)
    odd = op("nn.conv2d_transpose", [1, 9, 11, 2], 2, "SAME")
    yield Case("transpose odd", odd, (floats(1, 5, 6, 3), floats(3, 3, 2, 3)))


def pools():
    for name, padding, size, stride in itertools.product(
        ("max_pool2d", "avg_pool2d"),
        ("SAME", "VALID"),
        ((2, 2), (3, 2), (3, 3)),
        ((1, 1), (2, 2), (3, 1)),
    ):
        run = op(f"nn.{name}", size, stride, padding)
        yield Case(f"{name} {padding} {size} {stride}", run, (floats(2, 8, 7, 3),))
    for name, padding in itertools.product(("max_pool3d", "avg_pool3d"), ("SAME", "VALID")):
        yield Case(f"{name} {padding}", op(f"nn.{name}", 2, 2, padding), (floats(1, 5, 6, 7, 2),))
    yield Case("lrn", op("nn.lrn", 2, 1.0, 0.5, 0.7), (floats(2, 3, 4, 7),))
    yield Case(
        "batch norm",
        lambda tf, x, *p: tf.compat.v1.nn.fused_batch_norm(x, *p, is_training=False)[0],
        (floats(2, 4, 5, 3), floats(3), floats(3), floats(3), positive(3)),
    )


def sizes():
    for name, corners, centres, size in itertools.product(
        ("ResizeBilinear", "ResizeNearestNeighbor"),
        (False, True),
        (False, True),
        ((8, 10), (3, 4), (7, 5), (4, 15)),
    ):
        if corners and centres:
            continue
        options = {"align_corners": corners, "half_pixel_centers": centres, "size": size}
        run = lambda tf, x, n=name, o=options: getattr(tf.raw_ops, n)(images=x, **o)  # noqa: E731
        yield Case(f"{name} {size} {corners} {centres}", run, (floats(2, 4, 5, 3),), 100)


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(convolutions(), pools(), sizes()))
def test_convolutions_pools_and_sizes(case, check):
    check(case)


# ---- control ---------------------------------------------------------------------------------


def control():
    x = floats(4, 3)

    def loop(tf, x):
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y) + x), (0, x))[1]

    def mapped(tf, x):
        return tf.map_fn(lambda row: tf.reduce_sum(row) * row, x)

    def chosen(tf, x, flag):
        return tf.cond(flag, lambda: tf.sin(x), lambda: x * 2)

    yield Case("while", loop, (x,))
    yield Case("map", mapped, (x,))
    yield Case("scan", lambda tf, x: tf.scan(lambda a, row: a + row, x), (x,))
    yield Case("cond", chosen, (x, np.bool_(True)))
    yield Case("function", lambda tf, x: tf.function(tf.tanh)(x) + 1, (x,))
    yield Case("same twice", lambda tf, x: (x, x), (x,))
    yield Case("constant", lambda tf, x: (x + 1, tf.ones((2, 2))), (x,))


@pytest.mark.parametrize("case", cases(control()))
def test_loops_and_branches(case, check):
    check(case)
