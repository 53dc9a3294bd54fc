"""The engines for GPUs, on the CPU as their device: everything but the calls of CUDA runs."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.engines.compiled_module import CompiledModule
from slipstream.infer.engines.gpu.inductor import product_settings
from slipstream.infer.engines.gpu.onnxruntime import TENSORRT, OnnxRuntimeOnGpu, tensorrt_folder
from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.engines.standard import onnx_bytes, standard_graph
from slipstream.infer.native.precision import storable
from slipstream.infer.quantize.observe import observe
from slipstream.infer.rewrites import optimise
from slipstream.infer.samples import synthetic

LEAST_DB = {"fp32": 90, "bf16": 30, "fp16": 45, "int8": 15}
INDUCTOR = replace(ENGINES["inductor-cuda"], device="cpu")
ONNXRUNTIME = OnnxRuntimeOnGpu(
    name="onnxruntime-cuda",
    providers=("CPUExecutionProvider",),
    settings={"fp32": {}, "fp16": {}, "int8": {}},
    device="cpu",
)


@pytest.fixture(scope="module")
def rewritten(net):
    return optimise(net)[0]


@pytest.fixture(scope="module")
def right(net):
    session = plain_session(onnx_bytes(net, Recipe(engine="onnxruntime", rewrites=False)), 1)
    samples = [synthetic(net, 6)[index].inputs for index in range(6)]
    return [(inputs, session.run(inputs)) for inputs in samples]


@pytest.fixture(scope="module")
def ranges(rewritten):
    inputs = [synthetic(rewritten, 8)[index].inputs for index in range(8)]
    found = observe(rewritten, inputs, storable(rewritten))
    return {name: histogram.range("min-max") for name, histogram in found.items()}


def snr(outputs, expected):
    comparison = Comparison()
    comparison.add(outputs, expected)
    return comparison.snr_db


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own modules
@pytest.mark.parametrize(
    ("engine", "precision"),
    [
        pytest.param(INDUCTOR, "bf16", marks=pytest.mark.slow("code of Inductor")),
        *[(ONNXRUNTIME, name) for name in ("fp32", "fp16", "int8")],
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_results_are_those_of_the_reference_from_any_thread(
    engine, precision, rewritten, right, ranges
):
    recipe = Recipe(
        engine=engine.name, precision=precision, ranges=ranges if precision == "int8" else {}
    )
    executable = engine.prepare(rewritten, recipe, 1)
    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(executable.run, [inputs for inputs, _ in right] * 4))
    for outputs, (_, expected) in zip(found, right * 4, strict=True):
        assert outputs.keys() == expected.keys()
        assert snr(outputs, expected) > LEAST_DB[precision]
    found[0]["logits"][:] = 0  # arrays are the caller's
    executable.close()
    executable.close()
    with pytest.raises(UsageError, match="closed"):
        executable.run(right[0][0])


def test_inputs_in_the_buffers_of_an_executable_are_read_in_place(rewritten, right):
    executable = ONNXRUNTIME.prepare(rewritten, Recipe(engine="onnxruntime-cuda"), 1)
    inputs, expected = right[0]
    buffer = executable.buffer(np.dtype(np.float32), inputs["image"].shape)
    np.copyto(buffer, inputs["image"])
    address = buffer.ctypes.data
    assert executable._buffers[address].data_ptr() == address
    view = buffer[:]
    del buffer
    assert snr(executable.run({"image": view}), expected) > LEAST_DB["fp32"]
    del view
    gc.collect()
    assert not executable._buffers


def test_settings_of_pytorch_are_as_before_though_an_engine_failed():
    def settings():
        return (
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32,
            torch.is_grad_enabled(),
        )

    before, inside = settings(), []
    for numbers in ("tf32", "ieee"):
        with suppress(UnsupportedError), product_settings(numbers, autotunes=False):
            inside.append(settings())
            raise UnsupportedError("it cannot be compiled")
        assert settings() == before
    assert inside == [("high", True, True, False), ("highest", True, False, False)]


def test_a_result_of_unknown_size_is_refused(build):
    graph = build("(float[4] x) => (int64[1,N] y) { y = NonZero(x) }")
    for engine, words in ((ONNXRUNTIME, "size of y"), (INDUCTOR, "no NonZero")):
        with pytest.raises(UnsupportedError, match=words):
            engine.prepare(graph, Recipe(engine=engine.name), 1)


def test_bytes_for_tensorrt_are_signed_and_have_no_zero_points(rewritten, ranges):
    recipe = Recipe(engine="tensorrt", precision="int8", ranges=ranges)
    graph = standard_graph(rewritten, recipe, signed=True)
    quantised = [node for node in graph.nodes if node.op == "QuantizeLinear"]
    assert len(quantised) == len({node.inputs[0] for node in quantised}) > 0
    for node in quantised:
        zero = graph.constants[node.inputs[2]]
        assert (zero.dtype, zero) == (np.int8, 0)
        low, high = ranges[node.inputs[0]]
        scale = graph.constants[node.inputs[1]]
        assert scale * 127 == pytest.approx(max(abs(low), abs(high)))


def test_engines_of_tensorrt_are_kept_by_model_and_card():
    folders = {tensorrt_folder(model, card) for model in (b"a", b"b") for card in ("H100", "H200")}
    assert len(folders) == 4
    assert tensorrt_folder(b"a", "H100") in folders


def test_what_rounds_less_than_float32_is_not_called_so():
    """TensorRT computes float32 as TF32 on recent GPUs, so it offers no fp32."""
    assert "fp32" not in TENSORRT.precisions()
    assert {"tf32", "fp16", "int8"} <= set(TENSORRT.precisions())


@pytest.mark.slow("code of Inductor")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own modules
def test_every_module_of_a_class_is_compiled():
    """PyTorch ran the ninth one uncompiled, because modules of a class shared a limit."""
    import torch._dynamo

    modules = [torch.nn.Sequential(torch.nn.Linear(4, 4)).eval() for _ in range(2)]
    x = torch.ones(1, 4)
    limits = torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True)
    with limits, product_settings("ieee", autotunes=False):
        for module in modules:
            compiled = CompiledModule(module)
            torch.testing.assert_close(compiled(x), module(x))
            compiled.close()
            compiled.close()
            with pytest.raises(UsageError, match="closed"):
                compiled(x)
