"""JAX functions: whole networks, names, and functions that are refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.importers import load_model
from slipstream.infer.rewrites import optimise

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

FACTORY = """
import jax, numpy

def make():
    weight = numpy.ones((4, 3), "f4")
    return lambda x: jax.nn.relu(x @ weight), jax.ShapeDtypeStruct((2, 4), "float32")

def make_alone():
    return jax.nn.relu
"""


@pytest.fixture
def weights():
    random = np.random.default_rng(2)

    def make(*shape):
        return (random.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)

    return make


@pytest.fixture
def mlp(weights):
    layers = [(weights(16, 32), weights(32)), (weights(32, 32), weights(32)), (weights(32, 4), 0)]

    def apply(x):
        for weight, bias in layers:
            x = jax.nn.gelu(x @ weight + bias, approximate=False)
        return jax.nn.log_softmax(x)

    return apply


@pytest.fixture
def cnn(weights):
    """Return convolutions, batch norm, squeeze-and-excite and pools over images (n, h, w, c)."""
    first, depth, last = weights(3, 3, 3, 16), weights(3, 3, 1, 16), weights(1, 1, 16, 16)
    mean, variance, scale, shift = weights(16), weights(16) ** 2 + 1, weights(16), weights(16)
    squeeze, excite, head = weights(16, 4), weights(4, 16), weights(16, 10)

    def conv(x, w, stride=1, groups=1):
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=dims, feature_group_count=groups
        )

    def normed(x):
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift

    def apply(image):
        x = jax.nn.silu(normed(conv(image, first, 2)))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        y = jax.nn.relu6(normed(conv(x, depth, 1, 16)))
        gate = jax.nn.relu(jnp.mean(y, (1, 2)) @ squeeze) @ excite
        x = x + conv(y * jax.nn.sigmoid(gate)[:, None, None], last)
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        return jax.nn.softmax(x.mean((1, 2)) @ head)

    return apply


@pytest.fixture
def transformer(weights):
    """Return two blocks over token numbers, with learned positions and a causal mask."""
    table, positions, head = weights(50, 32), weights(12, 32), weights(32, 50)
    blocks = [{name: weights(*shape) for name, shape in SHAPES.items()} for _ in range(2)]

    def normed(x, scale):
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-6) * scale

    def block(x, p):
        y = normed(x, p["norm1"])
        q, k, v = ((y @ p[name]).reshape(*y.shape[:2], 4, 8) for name in ("query", "key", "value"))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(8)
        mask = jnp.tril(jnp.ones((y.shape[1], y.shape[1]), bool))
        scores = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(y.shape) @ p["out"]
        return x + jax.nn.gelu(normed(x, p["norm2"]) @ p["up"]) @ p["down"]

    def apply(tokens):
        x = jnp.asarray(table)[tokens] + positions
        for p in blocks:
            x = block(x, p)
        return x @ head

    return jax.jit(apply)


SHAPES = {
    **{"norm1": (32,), "norm2": (32,), "query": (32, 32), "key": (32, 32), "value": (32, 32)},
    **{"out": (32, 32), "up": (32, 64), "down": (64, 32)},
}


def compiled(function, inputs, tmp_path):
    """Return the results of the compiled function and of JAX."""
    path = tmp_path / "model.slip"
    # No bfloat16, whose signal-to-noise ratio is about 50 dB, because this compares the importer.
    options = {"snr_db": 80, "engines": ("native", "onnxruntime")}
    limits = {"seconds": 2, "most_rounds": 5, "threads": 1}
    infer.compile(function, path, infer.CompileOptions(example_inputs=inputs, **options, **limits))
    with infer.load(path) as model:
        found = model(*inputs)
    return found, np.asarray(function(*inputs))


# ---- whole networks ----------------------------------------------------------------------------


@pytest.mark.slow("compiled network of a framework")
def test_a_perceptron_is_compiled(mlp, weights, tmp_path):
    found, expected = compiled(mlp, (weights(3, 16),), tmp_path)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.slow("compiled network of a framework")
def test_a_convolutional_network_is_compiled(cnn, weights, tmp_path):
    found, expected = compiled(cnn, (weights(1, 32, 32, 3),), tmp_path)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.slow("compiled network of a framework")
def test_a_transformer_is_compiled(transformer, tmp_path):
    tokens = np.arange(24, dtype=np.int32).reshape(2, 12)
    found, expected = compiled(transformer, (tokens,), tmp_path)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_activations_and_norms_are_found(mlp, transformer, weights):
    graph, _ = optimise(load_model(mlp, weights(3, 16)).graph)
    ops = [node.op for node in graph.nodes]
    assert ops.count("Gelu") == 3
    assert ops.count("LogSoftmax") == 1
    tokens = np.zeros((2, 12), np.int32)
    graph, _ = optimise(load_model(transformer, tokens).graph)
    ops = [node.op for node in graph.nodes]
    assert ops.count("LayerNormalization") == 4
    assert ops.count("Softmax") + ops.count("Attention") == 2
    assert ops.count("Gelu") == 2


def test_pictures_are_transposed_once(cnn, weights):
    graph, _ = optimise(load_model(cnn, weights(1, 32, 32, 3)).graph)
    ops = [node.op for node in graph.nodes]
    assert ops.count("Transpose") == 1
    assert "BatchNormalization" not in ops
    assert ops.count("Silu") == 1


# ---- arguments and names -----------------------------------------------------------------------


def test_arguments_and_trees_give_names():
    def function(image, batch, *rest):
        return {"sum": image + batch["left"], "more": (rest[0], batch["right"][0])}

    x = np.ones((2, 3), np.float32)
    graph = load_model(function, (x, {"left": x, "right": [x]}, x)).graph
    assert list(graph.inputs) == ["image", "batch_left", "batch_right_0", "rest"]
    assert graph.outputs == ["more_0", "more_1", "sum"]


def test_examples_by_argument_and_as_shapes():
    shape = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    imported = load_model(lambda x, y: x - y, {"y": shape, "x": shape})
    assert list(imported.graph.inputs) == ["x", "y"]
    assert imported.graph.outputs == ["output"]
    assert "dB" in imported.notes[0]


def test_factories(tmp_path, monkeypatch):
    (tmp_path / "a_jax_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    assert load_model("a_jax_factory:make").graph.shape("output") == (2, 3)
    with pytest.raises(UsageError, match="needs an example of its inputs"):
        load_model("a_jax_factory:make_alone")


def test_halves_are_computed_in_float32():
    imported = load_model(lambda x: jnp.tanh(x @ x), jnp.ones((4, 4), jnp.bfloat16) / 3)
    assert imported.graph.inputs["x"].dtype == np.float32


# ---- what is refused ---------------------------------------------------------------------------


def test_primitives_without_counterpart_are_all_named():
    def function(x):
        return jnp.fft.fft(x).real + lax.lgamma(x) + lax.lgamma(x + 1), lax.digamma(x)

    with pytest.raises(UsageError, match=r"digamma \(1\), fft \(1\), lgamma \(2\), real \(1\)"):
        load_model(function, np.ones((4, 4), np.float32))


def test_loops_of_no_known_length_and_long_ones_are_refused():
    def loop(x):
        return lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x)

    with pytest.raises(UsageError, match=r"while \(1\)"):
        load_model(loop, np.ones(3, np.float32))

    def long(x):
        return lax.scan(lambda c, _: (jnp.sin(c) + 1, None), x, None, 9000)[0]

    with pytest.raises(UsageError, match="scan of 9000 rounds: 18000 equations"):
        load_model(long, np.ones(3, np.float32))


def test_random_numbers_of_an_input_are_refused():
    def function(x, seed):
        return x + jax.random.normal(jax.random.PRNGKey(seed), x.shape)

    with pytest.raises(UsageError, match="random_bits"):
        load_model(function, (np.ones(3, np.float32), np.int32(1)))


def test_what_jax_cannot_trace_is_refused():
    with pytest.raises(UsageError, match="JAX cannot trace it"):
        load_model(lambda x: float(x.sum()), np.ones(3, np.float32))


def test_importing_slipstream_imports_no_framework():
    program = (
        "import sys; import slipstream.infer.importers;"
        "print([name for name in ('jax', 'tensorflow', 'torch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
