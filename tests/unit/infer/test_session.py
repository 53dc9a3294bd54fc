"""Compiled models: called in every way, from every thread, with inputs that are checked."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from slipstream import infer
from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.compiler import compile_model
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.options import CompileOptions
from slipstream.infer.package.package import Check, read, write


@pytest.fixture
def model(compiled):
    with infer.load(compiled) as loaded:
        yield loaded


@pytest.fixture
def image(random):
    return random.standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def pair(build, tmp_path_factory):
    """Yield a model of two inputs and two outputs."""
    graph = build(
        """(float[2,3] a, int64[2,3] b) => (float[2,3] sum, float[2,3] product) {
            c = Cast <to=1> (b) sum = Add(a, c) product = Mul(a, c)
        }"""
    )
    path = tmp_path_factory.mktemp("pair") / "pair.slip"
    data = to_model(graph).SerializeToString()
    compile_model(data, path, CompileOptions(seconds=1, threads=1, engines=("onnxruntime",)))
    with infer.load(path) as loaded:
        yield loaded


class Tensor:
    """An array of another library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_one_output_is_an_array(model, image):
    logits = model(image)
    assert (logits.shape, logits.dtype) == ((1, 5), np.float32)


def test_every_way_to_call_gives_the_same(model, image):
    expected = model(image)
    for found in (
        model({"image": image}),
        model(image=image),
        model(image[0]),
        model(np.asfortranarray(image)),
        model(Tensor(image)),
        model.submit(image).result(),
        *model.batch([image, (image,), {"image": image}]),
    ):
        np.testing.assert_array_equal(found, expected)


def test_several_outputs_have_names(pair):
    a, b = np.full((2, 3), 2, np.float32), np.full((2, 3), 3)
    for found in (pair(a, b), pair({"a": a, "b": b}), pair(a, b=b), *pair.batch([(a, b)])):
        assert list(found) == ["sum", "product"]
        np.testing.assert_array_equal(found["sum"], np.full((2, 3), 5))
        np.testing.assert_array_equal(found["product"], np.full((2, 3), 6))


def test_threads_do_not_disturb_each_other(model, random):
    images = random.standard_normal((40, 1, 3, 8, 8)).astype(np.float32)
    expected = [model(image) for image in images]
    with ThreadPoolExecutor(8) as callers:
        for found, right in zip(callers.map(model, images), expected, strict=True):
            np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "input 'image' is missing"),
        (({"picture": 0},), "input 'image' is missing, there is no input 'picture'"),
        ((np.zeros((1, 3, 8, 8)),), r"is float64, and has to be float32.*astype\('float32'\)"),
        ((np.zeros((2, 3, 8, 8), "f4"),), r"shape \(2, 3, 8, 8\), and has to have \(1, 3, 8, 8\)"),
        ((np.zeros((8, 8), "f4"),), r"shape \(8, 8\)"),
        (([1.0, 2.0],), "is a builtins.list; give a NumPy array, or one with __dlpack__"),
        ((None,), "NoneType"),
        ((1, 2), "2 inputs are given; the model has image"),
    ],
)
def test_inputs_that_are_wrong_are_said_to_be(model, inputs, message):
    with pytest.raises(UsageError, match=message):
        model(*inputs)
    with pytest.raises(UsageError, match=message):
        model.submit(*inputs)


def test_a_value_that_the_model_cannot_take_is_said_to_be(build, tmp_path):
    graph = build(
        """(int64[1] row) => (float[1,2] y)
        <float[3,2] table = {1, 1, 1, 1, 1, 1}> { y = Gather <axis=0> (table, row) }"""
    )
    data = to_model(graph).SerializeToString()
    with pytest.raises(UsageError, match=r"cannot be run on this input.*99"):
        compile_model(
            data, tmp_path / "no.slip", CompileOptions(seconds=1, data=[{"row": np.array([99])}])
        )
    compile_model(data, tmp_path / "m.slip", CompileOptions(seconds=1, engines=("onnxruntime",)))
    with infer.load(tmp_path / "m.slip") as model:
        with pytest.raises(UsageError, match=r"cannot be run on this input.*99"):
            model(np.array([99]))
        np.testing.assert_array_equal(model(np.array([2])), [[1, 1]])


def test_an_input_is_not_given_twice(model, image):
    with pytest.raises(UsageError, match="given twice"):
        model(image, image=image)


def test_a_closed_model_keeps_no_graph(compiled, image):
    model = infer.load(compiled)
    model(image)
    graph = weakref.ref(model._package.graph)
    model.close()
    gc.collect()
    assert graph() is None
    assert model.report.candidates
    assert model.manifest.outputs


def test_closed_models_say_so(compiled, image):
    model = infer.load(compiled)
    model.close()
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model(image)


def test_it_knows_what_it_is(model):
    assert "image float32 (1, 3, 8, 8) by onnxruntime in fp32" in repr(model)
    assert model.report.chosen.engine == "onnxruntime"


def test_threads_are_one_or_more(compiled):
    with pytest.raises(UsageError, match="threads is 0"):
        infer.load(compiled, threads=0)
    infer.load(compiled, threads=2).close()


def test_rounds_of_a_search_are_five_or_more(net, tmp_path):
    with pytest.raises(UsageError, match="most_rounds is 4; allowed: 5 and more"):
        infer.compile(
            to_model(net).SerializeToString(), tmp_path / "m.slip", CompileOptions(most_rounds=4)
        )


def test_results_that_are_others_here_are_noticed(compiled, tmp_path):
    package = read(compiled)
    wrong = {name: -array for name, array in package.check.outputs.items()}
    write(tmp_path / "wrong.slip", replace(package, check=Check(package.check.inputs, wrong)))
    with pytest.raises(UnsupportedError, match="not those at compile time"):
        infer.load(tmp_path / "wrong.slip")
    infer.load(tmp_path / "wrong.slip", check=False).close()


@pytest.mark.parametrize(("snr_db", "loads"), [(14.5, False), (15.5, True)])
def test_results_may_differ_by_less_than_15_db(compiled, tmp_path, snr_db, loads):
    package = read(compiled)
    ratio = 10 ** (snr_db / 20)  # of stored results to how far those here are from them
    stored = {
        name: array * np.float32(ratio / (ratio - 1))
        for name, array in package.check.outputs.items()
    }
    write(tmp_path / "near.slip", replace(package, check=Check(package.check.inputs, stored)))
    if loads:
        infer.load(tmp_path / "near.slip").close()
    else:
        with pytest.raises(UnsupportedError, match="at least 15 dB"):
            infer.load(tmp_path / "near.slip")


@pytest.mark.slow("weights of a package")
@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_weights_are_stored_once_in_the_precision_that_was_chosen(build, tmp_path, random, engine):
    """A user reported a package with float32 weights beside those that OpenVINO had compiled."""
    graph = build(
        """(float[1,512] x) => (float[1,512] y) {
            a = MatMul(x, w) r = Relu(a) y = MatMul(r, v)
        }""",
        w=random.standard_normal((512, 512)).astype(np.float32) / 16,
        v=random.standard_normal((512, 512)).astype(np.float32) / 16,
    )
    path = tmp_path / "once.slip"
    rows = list(random.standard_normal((32, 1, 512)).astype(np.float32))
    goal = {"engines": (engine,), "target": "memory", "seconds": 5, "most_rounds": 5}
    compile_model(to_model(graph).SerializeToString(), path, CompileOptions(data=rows, **goal))
    with infer.load(path) as model:
        assert model.manifest.recipe.precision in ("int8", "int8-dynamic", "int8-weights")
    assert path.stat().st_size < 1.1 * 2 * 512 * 512


def test_an_engine_that_is_not_known_is_named(compiled, tmp_path):
    with zipfile.ZipFile(compiled) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    manifest["recipe"]["engine"] = "turbo"
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(tmp_path / "turbo.slip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(UsageError, match="no engine is called 'turbo'"):
        infer.load(tmp_path / "turbo.slip")


def test_importing_slipstream_brings_no_engine():
    code = (
        "import sys, slipstream, slipstream.infer, slipstream.cli;"
        "print([m for m in ('onnx', 'onnxruntime', 'openvino', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_with_a_scalar_input(build, tmp_path):
    """The sample rate of a speech model is a scalar, whose shape must stay the same."""
    graph = build(
        """(float[1,4] x, int64 rate) => (float[1,4] y, int64 z) {
            f = Cast <to=1> (rate) y = Mul(x, f) z = Neg(rate)
        }"""
    )
    item = {"x": np.ones((1, 4), np.float32), "rate": np.array(3)}
    path = tmp_path / "model.slip"
    infer.compile(
        to_model(graph).SerializeToString(), path, CompileOptions(data=[item] * 9, seconds=1)
    )
    with infer.load(path) as model:
        assert [each.shape for each in model.manifest.inputs] == [(1, 4), ()]
        found = model(x=item["x"], rate=np.array(5))
        assert (found["y"].tolist(), found["z"].tolist()) == ([[5.0] * 4], -5)
