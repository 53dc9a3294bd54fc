"""Every op that is imported, in many forms, computes what TensorFlow computes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from grids import Case, Numbers, cases

from slipstream.infer.importers.tensorflow.models import import_tensorflow

RANDOM = Numbers()
floats, positive, whole, flags = RANDOM.floats, RANDOM.positive, RANDOM.whole, RANDOM.flags


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture
def check(tf):
    def run(case: Case):
        def function(*inputs):
            return case.function(tf, *inputs)

        specs = [tf.TensorSpec(array.shape, array.dtype) for array in case.inputs]
        traced = tf.function(function, input_signature=specs)
        found, notes = import_tensorflow(traced, case.inputs, {}, case.name)
        assert found.snr_db >= case.least_db
        assert notes == ()
        expected = tf.nest.flatten(function(*map(tf.constant, case.inputs)))
        graph = found.graph
        shapes = [graph.shape(name) for name in graph.outputs]
        assert shapes == [tuple(item.shape) for item in expected]

    return run


# ---- one element -----------------------------------------------------------------------------

MATH = [
    *("abs", "sign", "exp", "expm1", "sin", "cos", "sinh", "cosh", "tanh", "atan", "asinh"),
    *("floor", "ceil", "round", "negative", "square", "sigmoid", "softplus", "erf", "erfc"),
    *("reciprocal", "is_finite", "is_nan", "is_inf", "tan", "rint", "log_sigmoid"),
]
POSITIVE = ["log", "log1p", "sqrt", "rsqrt"]
SMALL = ["asin", "acos", "atanh"]
ACTIVATIONS = [
    *("relu", "relu6", "elu", "selu", "leaky_relu", "softplus", "softsign", "silu", "gelu"),
    *("softmax", "log_softmax", "sigmoid", "tanh", "crelu"),
]
BINARY = [
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "equal", "not_equal"),
    *("less", "less_equal", "greater", "greater_equal", "squared_difference", "floordiv"),
    *("floormod", "divide_no_nan"),
]
WHOLE = ["add", "subtract", "multiply", "maximum", "minimum", "floordiv", "floormod", "less"]


def elements():
    for name in MATH:
        yield Case(name, lambda tf, x, n=name: getattr(tf.math, n)(x), (3 * floats(2, 4, 6),), 100)
    for name in POSITIVE:
        yield Case(name, lambda tf, x, n=name: getattr(tf.math, n)(x), (positive(3, 5),))
    for name in SMALL:
        inputs = (np.tanh(floats(3, 5)),)
        yield Case(name, lambda tf, x, n=name: getattr(tf.math, n)(x), inputs, 100)
    for name in ACTIVATIONS:
        yield Case(name, lambda tf, x, n=name: getattr(tf.nn, n)(x), (2 * floats(2, 3, 6),))
    yield Case("gelu by tanh", lambda tf, x: tf.nn.gelu(x, approximate=True), (floats(9),))
    yield Case("acosh", lambda tf, x: tf.math.acosh(x), (positive(9) + 1,))
    yield Case("softmax of axis 1", lambda tf, x: tf.nn.softmax(x, 1), (floats(2, 3, 4),))
    yield Case("clip", lambda tf, x: tf.clip_by_value(x, -0.5, 0.5), (floats(3, 4),))
    yield Case("l2_normalize", lambda tf, x: tf.math.l2_normalize(x, -1), (floats(3, 4),))
    for power in (-1.0, 0.5, 2.0, 3.0):
        yield Case(f"power {power}", lambda tf, x, p=power: tf.pow(x, p), (positive(3, 4),))


def pairs():
    for name in BINARY:
        run = lambda tf, x, y, n=name: getattr(tf.math, n)(x, y)  # noqa: E731
        yield Case(name, run, (floats(2, 3, 4), floats(2, 3, 4)))
        yield Case(f"{name} broadcast", run, (floats(2, 3, 4), floats(3, 1)))
        fixed = lambda tf, x, n=name: getattr(tf.math, n)(x, 0.7)  # noqa: E731
        yield Case(f"{name} scalar", fixed, (floats(5),))
    for name, dtype in itertools.product(WHOLE, ("int32", "int64")):
        run = lambda tf, x, y, n=name: getattr(tf.math, n)(x, y)  # noqa: E731
        y = whole(4, 5, dtype=dtype, low=1) * RANDOM.random.choice([-1, 1], (4, 5)).astype(dtype)
        yield Case(f"{name} {dtype}", run, (whole(4, 5, dtype=dtype), y))
    for name in ("logical_and", "logical_or", "logical_xor"):
        run = lambda tf, x, y, n=name: getattr(tf.math, n)(x, y)  # noqa: E731
        yield Case(name, run, (flags(3, 4), flags(4)))
    yield Case("not", lambda tf, x: tf.logical_not(x), (flags(3, 4),))
    yield Case("add_n", lambda tf, *xs: tf.add_n(xs), tuple(floats(3, 4) for _ in "abc"))
    yield Case("truncatemod", lambda tf, x, y: tf.truncatemod(x, y), (whole(9), whole(9, low=1)))
    for data_format in ("NHWC", "NCHW"):
        yield Case(
            f"bias {data_format}",
            lambda tf, x, b, d=data_format: tf.nn.bias_add(x, b, d),
            (floats(2, 3, 4, 3), floats(3)),
        )


def conversions():
    kinds = ["float32", "int32", "int64", "uint8", "bool", "float16", "int8"]
    for old, new in itertools.permutations(kinds, 2):
        values = whole(3, 4, low=0, high=9).astype(old)
        yield Case(f"{old} to {new}", lambda tf, x, n=new: tf.cast(x, n), (values,))
    for dtype in ("float32", "int32", "bool", "uint8"):
        operands = (flags(3, 4), whole(3, 4).astype(dtype), whole(3, 4).astype(dtype))
        yield Case(f"where {dtype}", lambda tf, c, x, y: tf.where(c, x, y), operands)
    rows = (flags(3), floats(3, 4), floats(3, 4))
    yield Case("where of rows", lambda tf, c, x, y: tf.compat.v1.where(c, x, y), rows)
    yield Case("where broadcast", lambda tf, c, x: tf.where(c, x, 0.0), (flags(4), floats(3, 4)))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(elements(), pairs(), conversions()))
def test_single_elements(case, check):
    check(case)


# ---- shapes ----------------------------------------------------------------------------------


def shapes():
    x = floats(2, 3, 4)
    for order in itertools.permutations(range(3)):
        yield Case("transpose", lambda tf, x, o=order: tf.transpose(x, o), (x,))
    for shape in ((24,), (4, 6), (2, 1, 3, 4), (1, -1, 1)):
        yield Case("reshape", lambda tf, x, s=shape: tf.reshape(x, s), (x,))
    yield Case("reshape by shape", lambda tf, x: tf.reshape(x, [tf.shape(x)[0], -1]), (x,))
    yield Case("fill", lambda tf, x: x + tf.fill(tf.shape(x), 2.0), (x,))
    yield Case("fill of a value", lambda tf, x: tf.fill([2, 3], x[0, 0, 0]), (x,))
    yield Case("zeros_like", lambda tf, x: tf.concat([x, tf.zeros_like(x)], 0), (x,))
    yield Case("range", lambda tf, x: x + tf.cast(tf.range(tf.shape(x)[2]), tf.float32), (x,))
    yield Case("size", lambda tf, x: x * tf.cast(tf.size(x) + tf.rank(x), tf.float32), (x,))
    indices = (
        *(np.s_[1:], np.s_[::2], np.s_[:, ::-1], np.s_[..., 1], np.s_[:, 1:2], np.s_[-1]),
        *(np.s_[0, :, 3:0:-1], np.s_[:, None, :, 2], np.s_[1:2, 2:, 1::2], np.s_[..., None]),
        *(np.s_[:, -2:, ::-2], np.s_[None, ..., -1, 1:]),
    )
    for index in indices:
        yield Case(f"slice {index}", lambda tf, x, i=index: x[i], (x,))
    yield Case("slice op", lambda tf, x: tf.slice(x, [0, 1, 2], [2, -1, 1]), (x,))
    for axis in range(-1, 3):
        yield Case("concat", lambda tf, *xs, a=axis: tf.concat(xs, a), (x, x))
        yield Case("stack", lambda tf, *xs, a=axis: tf.stack(xs, a), (x, x + 1, x))
        yield Case("unstack", lambda tf, x, a=axis: tf.unstack(x, axis=a), (x,))
        yield Case("split sizes", lambda tf, x, a=axis: tf.split(x, [1, -1], a), (x,))
        yield Case("expand", lambda tf, x, a=axis: tf.expand_dims(x, a), (x,))
        yield Case("reverse", lambda tf, x, a=axis: tf.reverse(x, [a]), (x,))
    yield Case("split", lambda tf, x: tf.split(x, 2, 2), (x,))
    yield Case("squeeze", lambda tf, x: tf.squeeze(x), (floats(1, 3, 1),))
    yield Case("squeeze one", lambda tf, x: tf.squeeze(x, [0]), (floats(1, 3, 1),))
    yield Case("tile", lambda tf, x: tf.tile(x, [2, 1, 3]), (x,))
    yield Case("broadcast_to", lambda tf, x: tf.broadcast_to(x, [5, 2, 3, 4]), (x,))
    yield Case("pad", lambda tf, x: tf.pad(x, [[1, 2], [0, 1], [0, 0]]), (x,))
    yield Case(
        "pad value", lambda tf, x: tf.pad(x, [[1, 2], [0, 1], [0, 0]], "CONSTANT", 3.0), (x,)
    )
    yield Case("pad reflect", lambda tf, x: tf.pad(x, [[0, 1], [2, 1], [1, 3]], "REFLECT"), (x,))
    for lower, upper in ((-1, 0), (0, -1), (1, 1), (0, 0)):
        yield Case("band", lambda tf, x, b=(lower, upper): tf.linalg.band_part(x, *b), (x,))
    yield Case("space_to_depth", lambda tf, x: tf.nn.space_to_depth(x, 2), (floats(1, 4, 6, 3),))
    yield Case("depth_to_space", lambda tf, x: tf.nn.depth_to_space(x, 2), (floats(1, 4, 3, 8),))
    blocks = {"block_shape": [2, 3], "paddings": [[1, 1], [0, 1]]}
    yield Case(
        "space_to_batch", lambda tf, x: tf.space_to_batch(x, **blocks), (floats(2, 4, 5, 3),)
    )
    cuts = {"block_shape": [2, 3], "crops": [[1, 0], [0, 2]]}
    yield Case("batch_to_space", lambda tf, x: tf.batch_to_space(x, **cuts), (floats(12, 4, 5, 3),))


def reductions():
    names = ["sum", "max", "min", "prod", "mean", "std", "variance", "logsumexp"]
    for name, axis, keep in itertools.product(names, [None, 0, -1, [0, 2], [1, 2]], [True, False]):
        yield Case(
            f"{name} {axis}",
            lambda tf, x, n=name, a=axis, k=keep: getattr(tf.math, f"reduce_{n}")(x, a, k),
            (floats(2, 5, 3),),
        )
    for name in ("sum", "prod"):
        run = lambda tf, x, n=name: getattr(tf.math, f"reduce_{n}")(x, []) + 1  # noqa: E731
        yield Case(f"{name} over nothing", run, (floats(2, 3),))
    for name in ("sum", "max", "min", "prod"):
        run = lambda tf, x, n=name: getattr(tf.math, f"reduce_{n}")(x, 1)  # noqa: E731
        yield Case(f"{name} whole", run, (whole(3, 4),))
    for name in ("any", "all"):
        run = lambda tf, x, n=name: getattr(tf.math, f"reduce_{n}")(x, 1)  # noqa: E731
        yield Case(name, run, (flags(3, 4),))
    for name, axis in itertools.product(("argmax", "argmin"), (0, 1, 2)):
        run = lambda tf, x, n=name, a=axis: getattr(tf.math, n)(x, a, tf.int32)  # noqa: E731
        yield Case(f"{name} {axis}", run, (floats(2, 5, 3),))
    for axis, back, exclusive in itertools.product((0, 1), (False, True), (False, True)):
        options = {"axis": axis, "reverse": back, "exclusive": exclusive}
        yield Case("cumsum", lambda tf, x, o=options: tf.cumsum(x, **o), (floats(3, 4),))
    for k in (1, 3):
        yield Case("top_k", lambda tf, x, k=k: tuple(tf.math.top_k(x, k)), (floats(3, 5),))
    yield Case("moments", lambda tf, x: tf.nn.moments(x, [0, 1]), (floats(3, 5),))


def lookups():
    table, places = floats(7, 4), whole(2, 3, low=0, high=4)
    for axis in (0, 1, -1):
        yield Case("gather", lambda tf, x, i, a=axis: tf.gather(x, i, axis=a), (table, places))
    batched = (floats(2, 5, 4), whole(2, 3, low=0, high=5))
    yield Case("gather of rows", lambda tf, x, i: tf.gather(x, i, batch_dims=1), batched)
    yield Case("embedding", lambda tf, x, i: tf.nn.embedding_lookup(x, i), (table, places))
    pairs_ = np.array([[0, 1], [6, 3]], np.int32)
    yield Case("gather_nd", lambda tf, x, i: tf.gather_nd(x, i), (table, pairs_))
    yield Case(
        "scatter update",
        lambda tf, x, i, y: tf.tensor_scatter_nd_update(x, i, y),
        (table, pairs_, floats(2)),
    )
    yield Case(
        "scatter add",
        lambda tf, x, i, y: tf.tensor_scatter_nd_add(x, i, y),
        (table, pairs_, floats(2)),
    )
    for axis in (0, 1, -1):
        yield Case(
            f"one_hot {axis}",
            lambda tf, i, a=axis: tf.one_hot(i, 5, 2.0, -1.0, axis=a),
            (whole(2, 3, low=-2, high=7),),
        )


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(shapes(), reductions(), lookups()))
def test_shapes_reductions_and_lookups(case, check):
    check(case)


# ---- products --------------------------------------------------------------------------------


def products():
    for one, other in itertools.product((False, True), (False, True)):
        options = {"transpose_a": one, "transpose_b": other}
        run = lambda tf, x, y, o=options: tf.matmul(x, y, **o)  # noqa: E731
        yield Case(
            "matmul",
            run,
            (floats(*((4, 3) if one else (3, 4))), floats(*((5, 4) if other else (4, 5)))),
        )
        left, right = ((2, 4, 3) if one else (2, 3, 4)), ((2, 5, 4) if other else (2, 4, 5))
        yield Case("batch matmul", run, (floats(*left), floats(*right)))
    yield Case("matmul broadcast", lambda tf, x, y: x @ y, (floats(2, 1, 3, 4), floats(5, 4, 2)))
    yield Case("matmul whole", lambda tf, x, y: tf.matmul(x, y), (whole(3, 4), whole(4, 2)))
    texts = (
        *("ab,bc->ac", "abc,cde->abde", "aecd,abcd->acbe", "acbe,aecd->abcd", "abcd,cde->abe"),
        *("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ij,jk->ki", "ij,ij->i", "ij,kl->ijkl"),
        *("ii->i", "ij->ji", "ij,jk,kl->il", "abc,cd->abd", "ijk,jil->kl", "ij,kj->k"),
    )
    sizes = dict(
        zip("abcdefghijklmnopq", (2, 3, 4, 5, 3, 2, 3, 4, 2, 3, 4, 5, 2, 3, 4, 2, 3), strict=True)
    )
    for text in texts:
        operands = [floats(*(sizes[c] for c in part)) for part in text.split("->")[0].split(",")]
        yield Case(f"einsum {text}", lambda tf, *xs, t=text: tf.einsum(t, *xs), tuple(operands))
    yield Case(
        "tensordot", lambda tf, x, y: tf.tensordot(x, y, 2), (floats(2, 3, 4), floats(3, 4, 5))
    )


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
        options = {"strides": stride, "padding": padding, "dilations": gap}
        yield Case(
            f"conv2d {padding} {stride} {gap} {group}",
            lambda tf, x, w, o=options: tf.nn.conv2d(x, w, **o),
            (floats(2, 9, 8, 4), floats(3, 2, 4 // group, 8)),
        )
    for padding, stride, gap, multiplier in itertools.product(
        ("SAME", "VALID"), (1, 2), (1, 2), (1, 3)
    ):
        if gap > 1 and stride > 1:
            continue
        options = {"strides": [1, stride, stride, 1], "padding": padding, "dilations": [gap, gap]}
        yield Case(
            f"depthwise {padding} {stride} {gap} {multiplier}",
            lambda tf, x, w, o=options: tf.nn.depthwise_conv2d(x, w, **o),
            (floats(2, 9, 8, 4), floats(3, 3, 4, multiplier)),
        )
    for padding, stride in itertools.product(("SAME", "VALID"), (1, 2, 3)):
        yield Case(
            f"conv1d {padding} {stride}",
            lambda tf, x, w, p=padding, s=stride: tf.nn.conv1d(x, w, s, p),
            (floats(2, 9, 3), floats(3, 3, 5)),
        )
        yield Case(
            f"conv3d {padding} {stride}",
            lambda tf, x, w, p=padding, s=stride: tf.nn.conv3d(x, w, [1, s, s, s, 1], p),
            (floats(1, 5, 6, 7, 2), floats(3, 2, 3, 2, 4)),
        )
        for size in (7, 8, 9):
            whole_ = (size - 1) * stride + 3 if padding == "VALID" else size * stride
            yield Case(
                f"transpose {padding} {stride} {size}",
                lambda tf, x, w, p=padding, s=stride, n=whole_: tf.nn.conv2d_transpose(
                    x, w, [2, n, n, 5], s, p
                ),
                (floats(2, size, size, 3), floats(3, 3, 5, 3)),
            )
    yield Case(
        "transpose odd",
        lambda tf, x, w: tf.nn.conv2d_transpose(x, w, [1, 9, 11, 2], 2, "SAME"),
        (floats(1, 5, 6, 3), floats(3, 3, 2, 3)),
    )


def pools():
    for name, padding, size, stride in itertools.product(
        ("max_pool2d", "avg_pool2d"),
        ("SAME", "VALID"),
        ((2, 2), (3, 2), (3, 3)),
        ((1, 1), (2, 2), (3, 1)),
    ):
        yield Case(
            f"{name} {padding} {size} {stride}",
            lambda tf, x, n=name, a=(size, stride, padding): getattr(tf.nn, n)(x, *a),
            (floats(2, 8, 7, 3),),
        )
    for name, padding in itertools.product(("max_pool3d", "avg_pool3d"), ("SAME", "VALID")):
        yield Case(
            f"{name} {padding}",
            lambda tf, x, n=name, p=padding: getattr(tf.nn, n)(x, 2, 2, p),
            (floats(1, 5, 6, 7, 2),),
        )
    yield Case("lrn", lambda tf, x: tf.nn.lrn(x, 2, 1.0, 0.5, 0.7), (floats(2, 3, 4, 7),))
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
        yield Case(
            f"{name} {size} {corners} {centres}",
            lambda tf, x, n=name, o=options: getattr(tf.raw_ops, n)(images=x, **o),
            (floats(2, 4, 5, 3),),
            100,
        )


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
