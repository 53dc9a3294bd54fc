"""TensorFlow's models: files, names, whole Keras networks, and models that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.importers import load_model
from slipstream.infer.rewrites import optimise

FACTORY = """
def make():
    import keras
    image = keras.Input((8, 8, 3), name="image")
    return keras.Model(image, keras.layers.Conv2D(4, 3, name="features")(image))
"""
# Keras uses NumPy's old way to make arrays when it saves variables.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NETWORKS = ["MobileNetV3Small", "EfficientNetB0", "ResNet50", "Xception"]


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def keras(tf):
    import keras

    keras.utils.set_random_seed(4)
    return keras


@pytest.fixture
def net(keras):
    """Return a small convolutional network with two named outputs."""
    image = keras.Input((16, 16, 3), name="image")
    x = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="swish")(image)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.DepthwiseConv2D(3, padding="same")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    label = keras.layers.Dense(5, activation="softmax", name="label")(x)
    return keras.Model(image, [label, keras.layers.Dense(2, name="place")(x)])


def results(graph, image):
    """Run a graph on ONNX Runtime and return its results."""
    from slipstream.infer.engines.onnxruntime import plain_session
    from slipstream.infer.graph.onnx_file import to_model

    return plain_session(to_model(graph).SerializeToString(), 1).run({"image": image})


# ---- files and names ---------------------------------------------------------------------------


@pytest.mark.slow("compiled network of a framework")
def test_models_and_their_files_are_the_same(net, tmp_path):
    image = np.random.default_rng(0).standard_normal((1, 16, 16, 3)).astype(np.float32)
    net.save(tmp_path / "net.keras")
    net.export(tmp_path / "saved", verbose=False)
    expected = [np.asarray(item) for item in net(image)]
    for source in (net, tmp_path / "net.keras", str(tmp_path / "saved")):
        imported = load_model(source)
        assert imported.graph.inputs["image"].fixed == (1, 16, 16, 3)
        assert "dB" in imported.notes[0]
        assert "batch size of 'image' is open" in imported.notes[1]
        found = results(imported.graph, image)
        for item, right in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(item, right, atol=1e-5)
    assert list(load_model(net).graph.outputs) == ["label", "place"]


def test_files_of_hdf5(keras, tmp_path):
    model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(3, name="y")])
    model.save_weights(tmp_path / "only.weights.h5")
    with pytest.raises(UsageError, match=r"only\.weights\.h5: TensorFlow cannot read it"):
        load_model(tmp_path / "only.weights.h5")
    with pytest.raises(UsageError, match=r"no\.h5: TensorFlow cannot read it"):
        load_model(tmp_path / "no.h5")


def test_a_batch_and_open_sizes_are_chosen(keras):
    image = keras.Input((None, None, 3), name="image")
    model = keras.Model(image, keras.layers.Conv2D(4, 3, padding="same", name="y")(image))
    assert load_model(model, shapes={"image": (2, 9, 7, 3)}).graph.shape("y") == (2, 9, 7, 4)
    example = np.ones((3, 5, 5, 3), np.float32)
    assert load_model(model, example).graph.shape("y") == (3, 5, 5, 4)
    with pytest.raises(UsageError, match="--shape image="):
        load_model(model)
    with pytest.raises(UsageError, match="there is no input picture; it has image"):
        load_model(model, {"picture": example})


def test_factories(tmp_path, monkeypatch, keras):
    (tmp_path / "a_keras_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    assert load_model("a_keras_factory:make").graph.shape("features") == (1, 6, 6, 4)


def test_functions_with_and_without_signature(tf):
    signed = tf.function(
        lambda x, y: {"sum": x + y, "rest": x - y},
        input_signature=[tf.TensorSpec([2, 3], name="x"), tf.TensorSpec([3], name="y")],
    )
    graph = load_model(signed).graph
    assert list(graph.inputs) == ["x", "y"]
    assert sorted(graph.outputs) == ["rest", "sum"]
    x = np.ones((2, 3), np.float32)
    graph = load_model(tf.function(lambda first, second: first @ second), (x, x.T)).graph
    assert list(graph.inputs) == ["first", "second"]
    assert graph.outputs == ["output"]
    with pytest.raises(UsageError, match="the shapes of its inputs are unknown"):
        load_model(tf.function(lambda x: x))


def test_models_that_are_classes(keras):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.Dense(3)
            self.drop = keras.layers.Dropout(0.5)

        def call(self, x, training=None):
            return self.drop(self.layer(x), training=training)

    graph = load_model(Net(), np.ones((2, 4), np.float32)).graph
    assert list(graph.inputs) == ["x"]
    assert graph.shape("output") == (2, 3)


def test_folders_with_other_signatures(tf, tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([2, 3], name="x")])
        def double(self, x):
            return {"y": x * 2}

    module = Module()
    function = module.double.get_concrete_function()
    tf.saved_model.save(module, str(tmp_path / "one"), signatures={"double": function})
    assert load_model(tmp_path / "one").graph.shape("y") == (2, 3)
    both = {"first": function, "second": function}
    tf.saved_model.save(module, str(tmp_path / "two"), signatures=both)
    with pytest.raises(UsageError, match="its signatures are first, second"):
        load_model(tmp_path / "two")


# ---- whole networks ----------------------------------------------------------------------------


@pytest.mark.slow("network of Keras")
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_keras_keep_one_transpose(name, keras):
    model = getattr(keras.applications, name)(weights=None, input_shape=(96, 96, 3))
    random = np.random.default_rng(1)
    for weight in model.weights:
        if "variance" in weight.path:
            weight.assign(random.uniform(0.5, 1.5, weight.shape))
        elif "mean" in weight.path or "beta" in weight.path:
            weight.assign(0.1 * random.standard_normal(weight.shape))
    graph, _ = optimise(load_model(model).graph)
    ops = [node.op for node in graph.nodes]
    assert ops.count("Transpose") == 1
    assert not {"BatchNormalization", "Sigmoid"} & set(ops)


def test_a_network_is_compiled(net, tmp_path):
    image = np.random.default_rng(2).standard_normal((1, 16, 16, 3)).astype(np.float32)
    path = tmp_path / "model.slip"
    # No bfloat16, whose signal-to-noise ratio is 52 dB, because this compares the importer.
    options = {"snr_db": 80, "engines": ("native", "onnxruntime")}
    infer.compile(net, path, infer.CompileOptions(seconds=2, most_rounds=5, threads=1, **options))
    with infer.load(path) as model:
        outputs = model(image)
    assert list(outputs) == ["label", "place"]
    for found, right in zip(outputs.values(), net(image), strict=True):
        np.testing.assert_allclose(found, np.asarray(right), atol=1e-5)


def test_a_transformer(keras):
    tokens = keras.Input((12,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(50, 32)(tokens)
    for _ in range(2):
        y = keras.layers.MultiHeadAttention(4, 8)(x, x, use_causal_mask=True)
        x = keras.layers.LayerNormalization()(x + y)
        y = keras.layers.Dense(32)(keras.layers.Dense(64, activation="gelu")(x))
        x = keras.layers.LayerNormalization()(x + y)
    imported = load_model(keras.Model(tokens, x), np.arange(12, dtype=np.int32)[None])
    graph, _ = optimise(imported.graph)
    ops = [node.op for node in graph.nodes]
    assert ops.count("Gelu") == 2
    assert ops.count("Softmax") + ops.count("Attention") == 2


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_recurrent_layers_are_unrolled(kind, keras):
    rows = keras.Input((7, 5), name="rows")
    layer = getattr(keras.layers, kind)
    x = layer(6, return_sequences=True, go_backwards=True)(rows)
    graph = load_model(keras.Model(rows, keras.layers.Bidirectional(layer(4))(x))).graph
    assert [graph.shape(name) for name in graph.outputs] == [(1, 8)]


# ---- what is refused ---------------------------------------------------------------------------


def test_ops_without_counterpart_are_all_named(tf):
    def function(x):
        y = tf.math.lgamma(x) + tf.math.lgamma(x + 1)
        return tf.math.digamma(y), tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64)))

    message = r"Cast of complex64 \(1\), Digamma \(1\), FFT \(1\), Lgamma \(2\), Real \(1\)"
    with pytest.raises(UsageError, match=message):
        load_model(tf.function(function), np.ones((4, 4), np.float32))


def test_loops_of_no_known_length_are_refused(tf):
    def function(x):
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: [y * 2], [x])[0]

    with pytest.raises(UsageError, match=r"While of a length that is computed \(1\)"):
        load_model(tf.function(function), np.ones(3, np.float32))


def test_random_numbers_are_refused(tf):
    function = tf.function(lambda x: x + tf.random.normal([3]))
    with pytest.raises(UsageError, match=r"RandomStandardNormal \(1\)"):
        load_model(function, np.ones(3, np.float32))
