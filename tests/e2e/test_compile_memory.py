"""Models that are large beside the memory: compiling one takes less than twice its weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

NUM_LAYERS, SIZE = 12, 2048  # 201 MB in float32
WEIGHTS_BYTES = NUM_LAYERS * SIZE * SIZE * 4

pytestmark = pytest.mark.slow("memory of a compilation")

# Prints the bytes of memory that no file has, at most and above those before the model was read.
PROGRAM = """
import sys, threading, time
from pathlib import Path
from slipstream.infer.compiler import compile_model
from slipstream.infer.options import CompileOptions

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

def watch():
    global most
    while True:
        most = max(most, held())
        time.sleep(0.005)

model, large_bytes = sys.argv[1], int(sys.argv[2])
if ":" in model:
    import onnxscript, torch, torch._dynamo, torch.onnx
import onnxruntime, openvino
before = most = held()
threading.Thread(target=watch, daemon=True).start()
options = CompileOptions(seconds=6, most_rounds=5, threads=2, large_bytes=large_bytes)
report = compile_model(model, "big.slip", options)
print(most - before)
print("; ".join(report.notes), file=sys.stderr)
"""

MODULE = f"""
import torch
from torch import nn

def make():
    layers = [nn.Linear({SIZE}, {SIZE}) for _ in range({NUM_LAYERS})]
    return nn.Sequential(*layers), torch.zeros(1, {SIZE})
"""


def compiled(folder: Path, model: str, large_bytes: int = 2**27) -> tuple[int, str]:
    """Compile a model in a process of its own; what it took, and the report's notes."""
    command = [sys.executable, "-c", PROGRAM, model, str(large_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=240)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr


def write_with_external_data(folder: Path) -> str:
    """Write an ONNX model whose weights are a file of their own, as those over 2 GB have to be."""
    random = np.random.default_rng(0)
    initializers, nodes = [], []
    with (folder / "m.data").open("wb") as file:
        for at in range(NUM_LAYERS):
            made = onnx.TensorProto(name=f"w{at}", dims=[SIZE, SIZE], data_type=1, data_location=1)
            for key, value in (("location", "m.data"), ("offset", str(file.tell()))):
                made.external_data.add(key=key, value=value)
            (random.standard_normal((SIZE, SIZE), np.float32) / np.float32(45)).tofile(file)
            initializers.append(made)
            nodes.append(helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"x{at + 1}"]))
    ends = [
        helper.make_tensor_value_info(f"x{at}", onnx.TensorProto.FLOAT, [1, SIZE])
        for at in (0, NUM_LAYERS)
    ]
    graph = helper.make_graph(nodes, "big", ends[:1], ends[1:], initializers)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    return "m.onnx"


def test_weights_beside_an_onnx_model_are_mapped(tmp_path: Path):
    """A user reported that 2.4 GB of weights took 19 GB of memory."""
    taken, notes = compiled(tmp_path, write_with_external_data(tmp_path))
    assert taken < 2 * WEIGHTS_BYTES
    assert "so candidates were tried one at a time: no mixed precision, no parts" in notes


def test_weights_of_a_module_of_pytorch_are_not_copied_on_their_way(tmp_path: Path):
    pytest.importorskip("torch")
    (tmp_path / "big_model.py").write_text(MODULE)
    taken, notes = compiled(tmp_path, "big_model:make")
    assert taken < 2 * WEIGHTS_BYTES
    assert "so candidates were tried one at a time" in notes
