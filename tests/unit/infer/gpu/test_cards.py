"""Devices that users name, and what is said if they are not there."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import infer
from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.engines import ENGINES, Recipe, kind_of, overlapped_runs_of
from slipstream.infer.engines.gpu.cards import (
    DeviceChoice,
    device_title,
    missing_cuda,
    parse_device,
)
from slipstream.infer.engines.protocol import Part
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.options import CompileOptions
from slipstream.infer.run.session import load_executable, sharing_of

without_card = pytest.mark.skipif(missing_cuda() is None, reason="there is a GPU")


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("auto", DeviceChoice()),
        ("cpu", DeviceChoice("cpu")),
        (" cuda ", DeviceChoice("cuda")),
    ],
)
def test_devices_have_names(text, choice):
    assert parse_device(text) == choice
    assert str(choice) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:0,cuda:1", "cuda:\u0663"]
)
def test_other_names_are_refused(text):
    with pytest.raises(UsageError, match="allowed: cpu, auto, cuda, or cuda:0"):
        parse_device(text)
    with pytest.raises(UsageError, match="allowed: cpu, auto, cuda"):
        CompileOptions(device=text)


@pytest.mark.slow("compilation for another device")
@without_card
def test_a_compilation_for_a_gpu_that_is_not_there_ends_at_once(net, tmp_path):
    data = to_model(net).SerializeToString()
    path = tmp_path / "model.slip"
    for device in ("cuda", "cuda:3"):
        with pytest.raises(UnsupportedError, match=rf"the device is {device}: .*; or use --device"):
            infer.compile(data, path, CompileOptions(device=device, seconds=1))
    assert not path.exists()


@pytest.mark.slow("compilation for another device")
def test_engines_of_other_devices_are_not_tried(net, tmp_path):
    data = to_model(net).SerializeToString()
    engines = ("onnxruntime", "inductor-cuda", "tensorrt")
    options = CompileOptions(device="cpu", engines=engines, seconds=1, threads=1)
    report = infer.compile(data, tmp_path / "model.slip", options)
    reasons = {item.engine: item.reason for item in report.candidates if item.state == "untried"}
    assert {"inductor-cuda", "tensorrt"} <= reasons.keys()
    assert reasons["tensorrt"] == "it computes on cuda, and the device is cpu"


def test_a_package_runs_on_the_kind_of_device_that_it_was_compiled_for(compiled):
    with pytest.raises(UsageError, match=r"runs on cpu .*compile the model with --device cuda"):
        infer.load(compiled, device="cuda")
    with infer.load(compiled, device="cpu") as model:
        assert model.manifest.recipe.engine in ENGINES


@without_card
def test_a_package_for_gpus_names_its_engine_where_there_is_none(compiled, tmp_path):
    from slipstream.infer.package.package import Package, read, write

    package = read(compiled)
    recipe = package.manifest.recipe.model_copy(update={"engine": "inductor-cuda"})
    manifest = package.manifest.model_copy(update={"recipe": recipe})
    path = tmp_path / "gpu.slip"
    write(path, Package(manifest, package.make_graph, package.report, package.check))
    for device in ("auto", "cuda", "cuda:1"):
        with pytest.raises(UnsupportedError, match=r"gpu.slip needs the engine inductor-cuda: "):
            infer.load(path, device=device)


def split(*engines):
    parts = tuple(Part(end=name, recipe=Recipe(engine=name)) for name in engines)
    return Recipe(engine="split", parts=parts)


@pytest.mark.parametrize(
    ("engines", "kind", "runs"),
    [
        (("native", "openvino"), "cpu", 0),
        (("native", "inductor-cuda"), "cuda", 0),
        (("inductor-cuda", "tensorrt"), "cuda", 3),
    ],
)
def test_a_model_in_parts_needs_a_gpu_if_one_of_its_parts_does(engines, kind, runs):
    assert kind_of(split(*engines)) == kind
    assert overlapped_runs_of(split(*engines)) == runs


@without_card
def test_a_package_in_parts_for_gpus_is_no_package_for_the_cpu(compiled, tmp_path):
    from slipstream.infer.package.package import Package, read, write

    package = read(compiled)
    update = {"recipe": split("onnxruntime", "inductor-cuda")}
    manifest = package.manifest.model_copy(update=update)
    path = tmp_path / "parts.slip"
    write(path, Package(manifest, package.make_graph, package.report, package.check))
    with pytest.raises(UnsupportedError, match=r"parts.slip needs the engine inductor-cuda: "):
        infer.load(path, device="cuda")
    with pytest.raises(UsageError, match="runs on cuda by the engine split"):
        infer.load(path, device="cpu")


def test_calls_that_overlap_share_one_executable(compiled):
    loaded = load_executable(compiled)
    alone = sharing_of(loaded, 1)
    assert (alone.executable, alone.runs) == (loaded.executable, 1)
    known = sharing_of(loaded, 2, runs=2)
    try:
        assert known.runs == 2
    finally:
        loaded.executable.close()
        if known.executable is not loaded.executable:
            known.executable.close()
    overlapped = {name: engine.overlapped_runs for name, engine in ENGINES.items()}
    assert {name for name, runs in overlapped.items() if runs} == {
        name for name, engine in ENGINES.items() if engine.kind == "cuda"
    }


def test_buffers_of_engines_on_cores_begin_at_cache_lines(compiled):
    loaded = load_executable(compiled)
    buffer = loaded.executable.buffer(np.dtype(np.float32), (1, 3, 8, 8))
    assert buffer.ctypes.data % 64 == 0
    assert (buffer.shape, buffer.dtype) == ((1, 3, 8, 8), np.float32)
    loaded.executable.close()


def test_devices_have_titles():
    assert device_title("cpu", None) == "cpu"
    assert device_title("cuda", 99) == "cuda:99"
