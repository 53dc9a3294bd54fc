"""Every engine computes what the reference does, from any thread."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines import ENGINES, Recipe, engine_of
from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.engines.standard import compress_weights, onnx_bytes
from slipstream.infer.graph.onnx_file import BFLOAT16, to_model
from slipstream.infer.native.precision import storable
from slipstream.infer.package.small_constants import compress_constants, restore_constants
from slipstream.infer.quantize.observe import observe
from slipstream.infer.rewrites import optimise
from slipstream.infer.samples import synthetic
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.trial import weights_bytes

LEAST_DB = {
    **{"fp32": 90, "tf32": 45, "bf16": 30, "fp16": 45},
    **{"int8": 25, "int8-dynamic": 30, "int8-weights": 30},
}
CASES = [
    (engine.name, precision)
    for engine in ENGINES.values()
    if engine.available() is None
    for precision in engine.precisions()
]


@pytest.fixture(scope="module")
def rewritten_net(net):
    return optimise(net)[0]


@pytest.fixture(scope="module")
def ranges(rewritten_net):
    inputs = [synthetic(rewritten_net, 8)[index].inputs for index in range(8)]
    found = observe(rewritten_net, inputs, storable(rewritten_net))
    return {name: histogram.range("min-max") for name, histogram in found.items()}


@pytest.fixture
def recipe(ranges):
    def make(engine, precision="fp32", **more):
        chosen = ranges if precision == "int8" else {}
        return Recipe(engine=engine, precision=precision, ranges=chosen, **more)

    return make


@pytest.fixture(scope="module")
def right(net):
    session = plain_session(onnx_bytes(net, Recipe(engine="onnxruntime", rewrites=False)), 1)
    samples = [synthetic(net, 6)[index].inputs for index in range(6)]
    return [(inputs, session.run(inputs)) for inputs in samples]


def snr(outputs, expected):
    comparison = Comparison()
    comparison.add(outputs, expected)
    return comparison.snr_db


def test_the_engines_that_tests_need_are_there():
    assert {"onnxruntime", "openvino", "native"} <= {name for name, _ in CASES}


@pytest.mark.parametrize(("engine", "precision"), CASES)
@pytest.mark.parametrize("streams", [1, 2])
def test_results_are_those_of_the_reference(
    engine, precision, streams, rewritten_net, recipe, right
):
    chosen = recipe(engine, precision, streams=streams)
    executable = ENGINES[engine].prepare(rewritten_net, chosen, 2)
    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(executable.run, [inputs for inputs, _ in right] * 4))
    for outputs, (_, expected) in zip(found, right * 4, strict=True):
        assert snr(outputs, expected) > LEAST_DB[precision]
    executable.close()
    executable.close()


def test_large_constants_of_bfloat16_stay_where_they_are(build):
    text = "(float[2000] x) => (float[2000] y) { c = Cast <to=1> (t) y = Add(x, c) }"
    graph = build(text, t=np.arange(2000))
    graph.constants["t"] = graph.constants["t"].astype(BFLOAT16)
    executable = ENGINES["onnxruntime"].prepare(graph, Recipe(engine="onnxruntime"), 1)
    found = executable.run({"x": np.zeros(2000, np.float32)})["y"]
    np.testing.assert_array_equal(found, graph.constants["t"].astype(np.float32))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_openvino_takes_numbers_of_16_bits_for_hints(precision, rewritten_net, recipe, right):
    """Without the instructions, where nobody asks for them, it computes in float32."""
    executable = ENGINES["openvino"].prepare(rewritten_net, recipe("openvino", precision), 1)
    inputs, expected = right[0]
    assert snr(executable.run(inputs), expected) > LEAST_DB[precision]
    executable.close()


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_graph_as_imported_runs_too(engine, net, right):
    executable = ENGINES[engine].prepare(net, Recipe(engine=engine, rewrites=False), 1)
    inputs, expected = right[0]
    assert snr(executable.run(inputs), expected) > LEAST_DB["fp32"]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "native"])
def test_results_belong_to_the_caller(engine, rewritten_net, recipe, right):
    executable = ENGINES[engine].prepare(rewritten_net, recipe(engine), 1)
    first = executable.run(right[0][0])["logits"]
    kept = first.copy()
    executable.run(right[1][0])
    np.testing.assert_array_equal(first, kept)
    first[:] = 0


ROUNDING = [
    *[("openvino", precision, "fp32") for precision in ("bf16", "fp16", "int8", "int8-weights")],
    *[("onnxruntime", precision, "fp32") for precision in ("int8", "int8-dynamic", "int8-weights")],
    ("openvino", "int8", "bf16"),
]


@pytest.mark.parametrize(("engine", "precision", "rest"), ROUNDING)
def test_what_an_engine_rounds_may_be_stored_so(engine, precision, rest, build, random):
    """A package has such numbers instead of float32, and the results are the same."""
    graph, _ = optimise(
        build(
            """(float[2,8,8,8] x) => (float[2,96] y) {
                c = Conv <kernel_shape=[3,3]> (x, k) f = Flatten(c)
                g = Gemm <transB=1> (f, v, b) r = Relu(g) y = MatMul(r, w)
            }""",
            k=random.standard_normal((32, 8, 3, 3)) / 8,
            v=random.standard_normal((64, 1152)) / 32,
            b=random.standard_normal(64),
            w=random.standard_normal((64, 96)) / 8,
        )
    )
    samples = [synthetic(graph, 8)[index].inputs for index in range(8)]
    found = observe(graph, samples, storable(graph)) if precision == "int8" else {}
    ranges = {name: histogram.range("min-max") for name, histogram in found.items()}
    if rest == "bf16":
        ranges.popitem()
    recipe = Recipe(engine=engine, precision=precision, ranges=ranges, rest=rest)
    first = ENGINES[engine].prepare(graph, recipe, 1)
    stored = compress_constants(graph, first.small)
    second = ENGINES[engine].prepare(restore_constants(stored), recipe, 1)
    # Without the instructions OpenVINO computes fp16 in another precision.
    least = 100 if precision in ENGINES[engine].precisions() else LEAST_DB[precision]
    assert snr(second.run(samples[0]), first.run(samples[0])) > least
    size = sum(array.nbytes for array in stored.constants.values())
    assert size < 1.1 * weights_bytes(graph, recipe)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_operators_that_an_engine_has_not_are_named(engine, build):
    graph = build("(float[2] x) => (float[2] y) { y = Relu(x) }")
    graph.nodes[0].op, graph.nodes[0].domain = "Unheard", "of.somebody"
    graph.opsets["of.somebody"] = 1
    with pytest.raises(UnsupportedError, match="Unheard"):
        ENGINES[engine].prepare(graph, Recipe(engine=engine, rewrites=False), 1)


def test_our_kernels_take_rewritten_graphs_only(net):
    with pytest.raises(UnsupportedError, match="rewritten"):
        ENGINES["native"].prepare(net, Recipe(engine="native", rewrites=False), 1)


def test_inductor_says_that_there_is_no_module(net):
    reason = ENGINES["inductor"].available()
    assert reason is not None
    with pytest.raises(UnsupportedError):
        ENGINES["inductor"].prepare(net, Recipe(engine="inductor", rewrites=False), 1)


@pytest.mark.parametrize("name", ["inductor-cuda", "onnxruntime-cuda", "tensorrt"])
def test_a_gpu_that_is_not_there_is_no_engine_and_never_replaced(net, name):
    engine = ENGINES[name]
    if engine.available() is None:
        pytest.skip("there is a GPU, whose engines other tests run")
    assert engine.kind == "cuda"
    assert re.search("GPU|CUDA", engine.available())
    rewritten = optimise(net)[0]
    recipe = Recipe(engine=name, precision=engine.precisions()[0])
    for chosen in (engine, engine_of(name, card=1)):
        with pytest.raises(UnsupportedError, match=r"GPU|CUDA"):
            chosen.prepare(rewritten, recipe, 1)
    with pytest.raises(UnsupportedError, match="not int8-dynamic"):
        engine.prepare(rewritten, Recipe(engine=name, precision="int8-dynamic"), 1)


def test_unknown_engines_are_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match=r"'tensorflow'.*onnxruntime, openvino"):
        engine_of("tensorflow")


def test_a_recipe_is_plain_json(recipe):
    made = recipe("native", "int8", rest="bf16")
    assert Recipe.model_validate_json(made.model_dump_json()) == made


# ---- weights as bytes ----------------------------------------------------------------------------


def test_weights_become_bytes_once_though_two_products_read_them(build, random):
    graph = build(
        "(float[2,64] x) => (float[2,64] y) { a = MatMul(x, w) y = MatMul(a, w) }",
        w=random.standard_normal((64, 64)),
    )
    result = compress_weights(graph)
    assert [node.op for node in result.nodes] == ["DequantizeLinear", "MatMul", "MatMul"]
    assert sorted(str(array.dtype) for array in result.constants.values()) == ["float32", "int8"]
    assert [node.op for node in graph.nodes] == ["MatMul", "MatMul"]


def test_graphs_without_large_weights_have_no_such_form(build):
    graph = build("(float[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(UnsupportedError, match="large"):
        compress_weights(graph)


def test_openvino_reports_nothing_to_anybody():
    program = (
        "import os; os.register_at_fork(before=lambda: print('fork'));"
        "from slipstream.infer.engines import ENGINES; ENGINES['openvino'].precisions();"
        "import sys; print(sys.modules['openvino_telemetry'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None"]


def test_signals_still_come_after_models_of_openvino_have_gone(net, tmp_path):
    """Plugins that did not end in reverse order once left a freed stack for signals."""
    model = tmp_path / "net.onnx"
    model.write_bytes(to_model(net).SerializeToString())
    script = f"""
import gc, signal, sys
from slipstream.infer.graph import onnx_file
from slipstream.infer.engines import Recipe, engine_of

graph = onnx_file.read({str(model)!r})
recipe = Recipe(engine="openvino", rewrites=False)
made = [engine_of("openvino").prepare(graph, recipe, 1) for _ in range(3)]
while made:
    made.pop(0).close()
    gc.collect()
filled = [bytearray(10**6) for _ in range(200)]
signal.signal(signal.SIGUSR1, lambda *_: print("it came"))
signal.raise_signal(signal.SIGUSR1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "it came\n"), done.stderr


@pytest.mark.parametrize(("engine", "precision"), CASES)
def test_inputs_may_be_read_only_and_begin_anywhere(
    engine, precision, rewritten_net, recipe, right
):
    """The tensors of a message are like this, because they follow a head of any length."""
    executable = ENGINES[engine].prepare(rewritten_net, recipe(engine, precision), 1)
    inputs, expected = right[0]
    given = {
        name: np.frombuffer(b"x" + each.tobytes(), np.uint8, offset=1)
        .view(each.dtype)
        .reshape(each.shape)
        for name, each in inputs.items()
    }
    assert not any(each.flags.writeable for each in given.values())
    assert snr(executable.run(given), expected) > LEAST_DB[precision]
    executable.close()


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "native"])
def test_an_output_may_be_a_constant_or_an_input(build, random, engine):
    """Our kernels looked for what nobody had computed."""
    graph = build(
        "(float[1,4] x) => (float[1,4] y, float[2] known) { y = MatMul(x, w) }",
        w=random.standard_normal((4, 4)),
        known=np.float32([3, 5]),
    )
    x = random.standard_normal((1, 4)).astype(np.float32)
    rewritten, _ = optimise(graph)
    executable = ENGINES[engine].prepare(rewritten, Recipe(engine=engine), 1)
    try:
        first, second = executable.run({"x": x}), executable.run({"x": x})
    finally:
        executable.close()
    first["known"][0] = 9  # arrays are the caller's
    assert second["known"].tolist() == [3, 5]
    np.testing.assert_allclose(second["y"], x @ graph.constants["w"], rtol=1e-5)


@pytest.mark.parametrize("node", ["Relu(x)", "Softmax(x)", "HardSigmoid(x)"])
@pytest.mark.parametrize(("engine", "is_right"), [("native", True), ("openvino", False)])
def test_an_engine_that_makes_numbers_of_nan_is_refused_on_samples_with_nan(
    build, node, engine, is_right
):
    graph = build(f"(float[1,4,16] x) => (float[1,4,16] y) {{ y = {node} }}")
    values = np.random.default_rng(0).standard_normal((1, 4, 16)).astype(np.float32)
    values[0, 1, 4:8] = np.nan
    right = plain_session(onnx_bytes(graph, Recipe(engine="onnxruntime")), 1).run({"x": values})
    chosen = Recipe(engine=engine)
    comparison = Comparison()
    comparison.add(ENGINES[engine].prepare(graph, chosen, 1).run({"x": values}), right)
    assert comparison.is_finite_alike == is_right
    assert ("NaN" in Objective().objection(chosen, comparison)) != is_right
