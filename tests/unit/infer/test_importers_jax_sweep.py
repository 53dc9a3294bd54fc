"""Every imported primitive, in many forms, gives JAX's own results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from grids import Case, Families, bound, cases

from slipstream.infer.importers.jax.functions import import_function

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

GRID = Families()
floats, positive, whole, flags = GRID.floats, GRID.positive, GRID.whole, GRID.flags


@pytest.fixture
def check():
    def run(case: Case):
        outputs = jax.tree_util.tree_leaves(jax.eval_shape(case.function, *case.inputs))
        imported = import_function(case.function, case.inputs, case.name)
        case.check(imported, [tuple(leaf.shape) for leaf in outputs])

    return run


def named(*functions):
    return [(function.__name__, function) for function in functions]


# ---- one element -----------------------------------------------------------------------------

UNARY = named(
    *(jnp.abs, jnp.sign, jnp.exp, jnp.exp2, jnp.expm1, jnp.sin, jnp.cos, jnp.tan, jnp.sinh),
    *(jnp.cosh, jnp.tanh, jnp.arctan, jnp.arcsinh, jnp.floor, jnp.ceil, jnp.round, jnp.negative),
    *(jnp.square, jnp.cbrt, jnp.isfinite, jnp.isnan, jnp.isinf, jnp.sinc, lax.erf, lax.erfc),
    *(lax.logistic, lax.round, lax.stop_gradient, jnp.reciprocal, jnp.trunc, jnp.deg2rad),
    jnp.nan_to_num,
)
POSITIVE = named(jnp.log, jnp.log2, jnp.log10, jnp.log1p, jnp.sqrt, lax.rsqrt)
SMALL = named(jnp.arcsin, jnp.arccos, jnp.arctanh)
ACTIVATIONS = named(
    *(jax.nn.relu, jax.nn.relu6, jax.nn.sigmoid, jax.nn.softplus, jax.nn.silu, jax.nn.elu),
    *(jax.nn.leaky_relu, jax.nn.hard_tanh, jax.nn.hard_sigmoid, jax.nn.hard_silu, jax.nn.celu),
    *(jax.nn.selu, jax.nn.gelu, jax.nn.glu, jax.nn.mish, jax.nn.log_sigmoid, jax.nn.soft_sign),
    *(jax.nn.softmax, jax.nn.log_softmax, jax.nn.standardize, jax.nn.logsumexp, jax.nn.squareplus),
)
BINARY = named(
    *(jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.equal),
    *(jnp.not_equal, jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal, jnp.fmod),
    *(jnp.arctan2, jnp.mod, jnp.floor_divide, jnp.logaddexp, jnp.hypot, jnp.logical_and),
)
INTEGER = named(
    *(jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.equal, jnp.less),
    *(jnp.greater_equal, lax.rem),
)
INTEGER_DTYPES = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
LOGIC = named(jnp.logical_and, jnp.logical_or, jnp.logical_xor, jnp.equal, jnp.not_equal)
CASTS = {
    name: getattr(jnp, name, bool)
    for name in ("float32", "int32", "int8", "uint8", "bool", "float16", "bfloat16")
}


def elements():
    yield from GRID.unary([*UNARY, *ACTIVATIONS], lambda: 3 * floats(2, 4, 6), 100)
    yield from GRID.unary(POSITIVE, lambda: positive(3, 5))
    yield from GRID.unary(SMALL, lambda: np.tanh(floats(3, 5)), 100)
    yield Case("gelu-erf", lambda x: jax.nn.gelu(x, approximate=False), (floats(4, 7),))
    yield Case("acosh", jnp.arccosh, (positive(9) + 1,))
    yield from GRID.powers(lambda x, power: x**power, (-2, -1, 0, 1, 2, 3, 4, 7, 0.5, 2.5))
    yield from GRID.binary(BINARY)
    yield from GRID.integer_binary(INTEGER, INTEGER_DTYPES)
    yield from GRID.logic(LOGIC)
    yield Case("not", jnp.logical_not, (flags(3, 4),))
    yield Case("pow", jnp.power, (positive(3, 4), floats(4)))
    yield Case("pow whole", jnp.power, (floats(3, 4), whole(4, low=0)))
    yield from GRID.casts(lambda x, dtype: x.astype(dtype), CASTS)


def choices():
    dtypes = ("float32", "int32", "bool", "uint8", "int8")
    yield from GRID.choices(jnp.where, dtypes)
    for dtype in dtypes:
        operands = [whole(3, 4).astype(dtype) for _ in range(3)]
        yield Case(f"select_n {dtype}", lax.select_n, (whole(3, 4, low=0, high=3), *operands))
    yield Case("clip", lambda x: jnp.clip(x, -0.5, 0.5), (floats(3, 4),))
    yield Case("clip of arrays", jnp.clip, (floats(3, 4), -positive(4), positive(3, 1)))
    yield Case("clamp", lambda x: lax.clamp(-0.2, x, 0.4), (floats(9),))
    yield Case("clip whole", lambda x: jnp.clip(x, -2, 3), (whole(9),))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(elements(), choices()))
def test_single_elements(case, check):
    check(case)


# ---- shapes ----------------------------------------------------------------------------------


ALONG_AXES = [
    ("concatenate", 2, lambda *xs, axis: jnp.concatenate(xs, axis)),
    ("stack", 3, lambda *xs, axis: jnp.stack(xs, axis)),
    ("split", 1, lambda x, axis: jnp.split(x, [1], axis)),
    ("flip", 1, jnp.flip),
    ("roll", 1, lambda x, axis: jnp.roll(x, 2, axis)),
    ("repeat", 1, lambda x, axis: jnp.repeat(x, 3, axis)),
]


def shapes():
    x = floats(2, 3, 4)
    yield from GRID.orders(jnp.transpose, jnp.reshape)
    yield from GRID.slices()
    yield from GRID.along_axes(ALONG_AXES, range(3))
    for axes in itertools.combinations(range(4), 2):
        yield Case("expand", lambda x, axes=axes: jnp.expand_dims(x, axes) + 0, (floats(3, 4),))
        add = lambda x, axes=axes: (jnp.expand_dims(x, axes) + jnp.zeros((3, 3, 3, 3))).ravel()  # noqa: E731
        yield Case("broadcast then reshape", add, (floats(3, 3),))
    yield Case("unstack", lambda x: jnp.unstack(x, axis=1), (x,))
    yield Case("tile", lambda x: jnp.tile(x, (2, 1, 3)), (x,))
    yield Case("broadcast_to", lambda x: jnp.broadcast_to(x, (5, 2, 3, 4)), (x,))
    yield Case("tril", jnp.tril, (floats(5, 5),))
    yield Case("squeeze", jnp.squeeze, (floats(1, 3, 1),))
    yield Case("meshgrid", jnp.meshgrid, (floats(3), floats(4)))
    configs = [(1, 2, 0), (0, 0, 0), (-1, 0, 0), (0, -1, 1), (2, 1, 2), (-1, 3, 1)]
    for one, other in itertools.product(configs, configs):
        yield Case("pad", bound(lax.pad, np.float32(0.5), (one, other)), (floats(4, 5),))
    yield Case("pad of a value", lambda x, y: lax.pad(x, y, [(1, 1, 1)]), (floats(4), floats()))
    for mode in ("edge", "reflect", "symmetric", "wrap", "constant"):
        yield Case(f"pad {mode}", bound(jnp.pad, ((1, 2), (2, 0)), mode), (floats(4, 5),))
    yield Case("iota", lambda x: x + lax.iota(np.float32, 4), (floats(3, 4),))
    yield Case("pad whole", lambda x: jnp.pad(x, 1), (whole(3, 4),))


REDUCTIONS = named(jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean, jnp.var, jnp.std)


def reductions():
    yield from GRID.reductions(REDUCTIONS, REDUCTIONS[:4], named(jnp.any, jnp.all))
    yield from GRID.extremes(named(jnp.argmax, jnp.argmin), (0, 1, 2, None))
    for axis, back in itertools.product((0, 1), (False, True)):
        yield Case("cumsum", bound(lax.cumsum, axis, back), (floats(3, 4),))
        yield Case("cumsum whole", bound(lax.cumsum, axis, back), (whole(3, 4),))
    yield Case("norm", lambda x: jnp.linalg.norm(x, axis=-1), (floats(3, 4),))


def orders():
    for axis in (0, 1, 2):
        x = floats(3, 4, 5)
        yield Case("sort", bound(jnp.sort, axis), (x,))
        yield Case("argsort", bound(jnp.argsort, axis), (x,))
        yield Case("sort down", bound(jnp.sort, axis, descending=True), (x,))
        take = lambda x, axis=axis: jnp.take_along_axis(x, jnp.argsort(x, axis), axis)  # noqa: E731
        yield Case("take_along_axis", take, (x,))
    for k in (1, 3):
        yield Case("top_k", bound(lax.top_k, k), (floats(3, 5),))
    yield Case("sort whole", jnp.sort, (whole(4, 9),))
    yield Case("median", jnp.median, (floats(9),))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(shapes(), reductions(), orders()))
def test_shapes_and_reductions(case, check):
    check(case)


# ---- look-ups --------------------------------------------------------------------------------


def lookups():
    table = floats(7, 4)
    far = whole(2, 3, low=-12, high=12)
    for mode, axis in itertools.product(("fill", "clip", "wrap"), (0, 1)):
        take = bound(jnp.take, axis=axis, mode=mode)
        yield Case(f"take {mode}", take, (table, far))
        yield Case(f"take {mode} fixed", bound(take, far), (table,))
    fill = bound(jnp.take, 0, mode="fill")
    yield Case("take bool", fill, (flags(7, 2), far))
    yield Case("take whole", fill, (whole(7, 2), far))
    x, i, j = floats(4, 5, 6), whole(3, low=-4, high=4), whole(3, low=-4, high=4)
    for run in (
        lambda x, i, j: x[i],
        lambda x, i, j: x[:, i],
        lambda x, i, j: x[..., i],
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[i, :, j],
        lambda x, i, j: x[:, i, j],
        lambda x, i, j: x[i[:, None], j],
        lambda x, i, j: x[i[0]],
        lambda x, i, j: x[i[0], :, j[1]],
        lambda x, i, j: x[i[0], 1:3],
        lambda x, i, j: x[1, i],
        lambda x, i, j: jax.vmap(lambda row, at: row[at])(x[:3], i),
        lambda x, i, j: jax.vmap(lambda row, at: row[:, at], (0, None))(x, i),
        lambda x, i, j: jax.vmap(lambda row, at: lax.dynamic_slice(row, (at, 1), (2, 3)))(x[:3], i),
        lambda x, i, j: jax.vmap(lambda at: lax.dynamic_slice(x, (at, 0, 1), (2, 5, 3)))(i),
        lambda x, i, j: lax.dynamic_slice(x, (i[0], j[0], 1), (2, 3, 6)),
        lambda x, i, j: lax.dynamic_slice(x, (9, -9, 1), (2, 3, 4)),
        lambda x, i, j: lax.dynamic_index_in_dim(x, i[1], 1),
        lambda x, i, j: lax.dynamic_update_slice(x, x[:2, :3], (i[0], j[0], 0)),
        lambda x, i, j: lax.dynamic_update_slice(x, x[:2, :3, :2], (1, j[0], 9)),
        lambda x, i, j: lax.dynamic_update_slice(x, x[:2] * 2, (1, 0, 0)),
        lambda x, i, j: lax.dynamic_update_slice(x, x * 2, (i[0], 0, 0)),
    ):
        yield Case("index", run, (x, i, j))


def updates():
    x, i, j = floats(4, 5, 6), np.array([2, 0, 3], np.int32), np.array([1, 4, -2], np.int32)
    far = np.array([9, 1, -8], np.int32)
    for run in (
        lambda x, i, j, far: x.at[:, 0].set(1.0),
        lambda x, i, j, far: x.at[1:3, ::2].add(2.0),
        lambda x, i, j, far: x.at[i].set(x[1]),
        lambda x, i, j, far: x.at[i, j].set(0.5),
        lambda x, i, j, far: x.at[:, i].add(x[:, 1:4]),
        lambda x, i, j, far: x.at[i, :, j].mul(3.0),
        lambda x, i, j, far: x.at[far].set(7.0),
        lambda x, i, j, far: x.at[far].add(x[1:], mode="drop"),
        lambda x, i, j, far: x.at[far, j].set(7.0, mode="drop"),
        lambda x, i, j, far: x.at[i[0]].set(2.0),
        lambda x, i, j, far: x.at[i[0], :, j[1]].add(1.0),
        lambda x, i, j, far: jax.vmap(lambda row, at: row.at[at].set(0.0))(x[:3], i),
        lambda x, i, j, far: jnp.zeros((4, 6)).at[np.array([0, 2, 2])].add(x[:3, 0]),
    ):
        yield Case("update", run, (x, i, j, far))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(lookups(), updates()))
def test_lookups(case, check):
    check(case)


# ---- products --------------------------------------------------------------------------------


def products():
    """Yield products of random ranks, whose axes are shared, summed over or free at random."""
    random = np.random.default_rng(4)
    for _ in range(60):
        batch, contract, left, right = (int(random.integers(0, size)) for size in (3, 3, 3, 3))
        sizes = random.integers(1, 5, batch + contract).tolist()
        shapes = [[*sizes, *random.integers(1, 5, count).tolist()] for count in (left, right)]
        orders = [random.permutation(len(shape)).tolist() for shape in shapes]
        operands = [
            floats(*(shape[axis] for axis in order))
            for shape, order in zip(shapes, orders, strict=True)
        ]
        shared = [[order.index(axis) for axis in range(batch)] for order in orders]
        summed = [[order.index(axis) for axis in range(batch, len(sizes))] for order in orders]
        numbers = ((summed[0], summed[1]), (shared[0], shared[1]))
        yield Case("dot_general", bound(lax.dot_general, numbers), tuple(operands))
        with_constant = bound(lax.dot_general, operands[1], numbers)
        yield Case("dot_general of a constant", with_constant, (operands[0],))


def other_products():
    yield Case("matmul", jnp.matmul, (floats(2, 1, 3, 4), floats(5, 4, 2)))
    yield Case("matmul whole", jnp.matmul, (whole(3, 4), whole(4, 2)))
    bytes_ = (whole(3, 4, dtype=np.int8), whole(4, 2, dtype=np.int8))
    yield Case("matmul of bytes", bound(jnp.matmul, preferred_element_type=jnp.int32), bytes_)
    yield Case("vdot", jnp.vdot, (floats(6), floats(6)))
    yield Case("outer", jnp.outer, (floats(3), floats(4)))
    texts = ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ij,jk,kl->il", "bii->bi", "bij->ji")
    yield from GRID.einsums(lambda *xs, text: jnp.einsum(text, *xs), texts)
    attend = jax.nn.dot_product_attention
    for name, run in (("attention", attend), ("causal attention", bound(attend, is_causal=True))):
        yield Case(name, run, tuple(floats(2, 5, 4, 8) for _ in "qkv"))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(products(), other_products()))
def test_products(case, check):
    check(case)


# ---- convolutions ----------------------------------------------------------------------------

LAYOUTS = [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NHWC", "OIHW", "NCHW")]
PADDINGS = ["SAME", "VALID", ((1, 2), (0, 1)), ((-1, 1), (2, -1))]


def _arranged(layout, sizes):
    return [sizes[letter] for letter in layout]


def convolutions():
    for layout, padding, stride, dilation, group in itertools.product(
        LAYOUTS, PADDINGS, [(1, 1), (2, 3)], [(1, 1), (2, 1)], [1, 2, 4]
    ):
        x = floats(*_arranged(layout[0], {"N": 2, "C": 4, "H": 9, "W": 8}))
        w = floats(*_arranged(layout[1], {"O": 8, "I": 4 // group, "H": 3, "W": 2}))
        options = {
            "window_strides": stride,
            "padding": padding,
            "rhs_dilation": dilation,
            "feature_group_count": group,
            "dimension_numbers": layout,
        }
        name = f"conv {layout[0]} {padding} {stride} {dilation} {group}"
        yield Case(name, bound(lax.conv_general_dilated, w, **options), (x,))


def transposed():
    for layout, padding, spread, dilation, group in itertools.product(
        LAYOUTS[:2],
        [((0, 0), (0, 0)), ((1, 2), (0, 1)), ((3, 4), (2, 2)), ((-1, 1), (1, -1))],
        [(2, 2), (3, 1)],
        [(1, 1), (2, 1)],
        [1, 2],
    ):
        x = floats(*_arranged(layout[0], {"N": 2, "C": 4, "H": 5, "W": 4}))
        w = floats(*_arranged(layout[1], {"O": 6, "I": 4 // group, "H": 3, "W": 2}))
        options = {
            "window_strides": (1, 1),
            "padding": padding,
            "lhs_dilation": spread,
            "rhs_dilation": dilation,
            "feature_group_count": group,
            "dimension_numbers": layout,
        }
        name = f"spread {padding} {spread} {dilation} {group}"
        yield Case(name, bound(lax.conv_general_dilated, w, **options), (x,))
    for padding, stride in itertools.product(("SAME", "VALID"), ((2, 2), (1, 3))):
        transpose = bound(lax.conv_transpose, stride, padding)
        operands = (floats(1, 5, 4, 3), floats(3, 3, 3, 6))
        yield Case(f"conv_transpose {padding}", transpose, operands)


def other_ranks():
    for padding, stride in itertools.product(("SAME", "VALID"), (1, 2)):
        for layout, x, w in (
            (("NWC", "WIO", "NWC"), floats(2, 9, 3), floats(3, 3, 5)),
            (("NCW", "OIW", "NCW"), floats(2, 3, 9), floats(5, 3, 4)),
            (("NDHWC", "DHWIO", "NDHWC"), floats(1, 5, 6, 4, 3), floats(2, 3, 2, 3, 4)),
        ):
            strides = (stride,) * (x.ndim - 2)
            run = bound(lax.conv_general_dilated, strides, padding, dimension_numbers=layout)
            yield Case(f"conv {layout[0]} {padding} {stride}", run, (x, w))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(convolutions(), transposed(), other_ranks()))
def test_convolutions(case, check):
    check(case)


# ---- windows ---------------------------------------------------------------------------------

KINDS = [(-np.inf, lax.max), (np.inf, lax.min), (0.0, lax.add)]


def windows():
    for (start, reduce), padding, (size, stride), dilation in itertools.product(
        KINDS,
        ["SAME", "VALID", ((0, 0), (1, 0), (0, 2), (0, 0))],
        [((1, 2, 2, 1), (1, 2, 2, 1)), ((1, 3, 2, 1), (1, 1, 2, 1)), ((1, 1, 3, 1), (1, 1, 1, 1))],
        [(1, 1, 1, 1), (1, 2, 1, 1)],
    ):
        options = (start, reduce, size, stride, padding)
        run = bound(lax.reduce_window, *options, window_dilation=dilation)
        name = f"{reduce.__name__} {padding} {size} {stride} {dilation}"
        yield Case(name, run, (floats(2, 7, 8, 3),))
    for (start, reduce), size in itertools.product(
        KINDS, [(1, 1, 2, 2), (2, 2), (1, 3), (2, 1, 2), (1, 2, 2, 2, 1), (1,), (2, 2, 2)]
    ):
        run = bound(lax.reduce_window, start, reduce, size, size, "VALID")
        yield Case(f"{reduce.__name__} {size}", run, (floats(*[4] * len(size)),))


@pytest.mark.sweep
@pytest.mark.parametrize("case", cases(windows()))
def test_windows(case, check):
    check(case)


# ---- functions within functions --------------------------------------------------------------


def control():
    x, at = floats(4, 3), np.int32(2)
    inner = jax.custom_jvp(jnp.sin)
    inner.defjvp(lambda x, t: (jnp.sin(x[0]), t[0]))
    backward = jax.custom_vjp(jnp.cos)
    backward.defvjp(lambda x: (jnp.cos(x), x), lambda x, g: (g,))
    yield Case("jit", jax.jit(lambda x: jax.jit(jnp.tanh)(x) + 1), (x,))
    yield Case("custom_jvp", lambda x: inner(x), (x,))
    yield Case("custom_vjp", lambda x: backward(x), (x,))
    yield Case("remat", jax.checkpoint(lambda x: jnp.tanh(x) * 2), (x,))
    yield Case("scan", lambda x: lax.scan(lambda c, v: (c + v, c * v), x[0], x), (x,))
    back = {"reverse": True}
    yield Case("scan back", lambda x: lax.scan(lambda c, v: (c - v, c), x[0], x, **back), (x,))
    yield Case("scan without rows", lambda x: lax.scan(lambda c, _: (c * 2, c), x, None, 3), (x,))
    yield Case("fori_loop", lambda x: lax.fori_loop(0, 4, lambda i, c: c + i, x), (x,))
    yield Case("map", lambda x: lax.map(jnp.tanh, x), (x,))
    yield Case("cond", lambda x, n: lax.cond(n > 1, jnp.sin, jnp.cos, x), (x, at))
    yield Case("cond known", lambda x: lax.cond(np.bool_(True), jnp.sin, jnp.cos, x), (x,))
    branches = [jnp.sin, jnp.cos, jnp.tanh]
    yield Case("switch", lambda x, n: lax.switch(n, branches, x), (x, at))
    yield Case(
        "while known", lambda x: x + lax.while_loop(lambda n: n < 9, lambda n: n * 2, 1), (x,)
    )
    yield Case("random constant", lambda x: x + jax.random.normal(jax.random.key(3), (3,)), (x,))
    yield Case("same twice", lambda x: (x, x), (x,))
    yield Case("constant", lambda x: (x + 1, jnp.ones((2, 2))), (x,))
    for method in ("nearest", "linear", "cubic", "lanczos3"):
        resize = bound(jax.image.resize, (1, 9, 7, 2), method)
        yield Case(f"resize {method}", resize, (floats(1, 5, 6, 2),))


@pytest.mark.parametrize("case", cases(control()))
def test_functions_within_functions(case, check):
    check(case)
