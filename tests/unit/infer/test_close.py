"""Closed models release their memory, though the closed objects are still there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slipstream.infer.engines import ENGINES

# Each model has one matrix of 40 MB. A closed executable stays in a list, as in a program that
# still has its models. The first model is not counted, because libraries are loaded for it.
SCRIPT = """
import gc, re, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from onnx import parser
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.graph.onnx_file import from_model
from slipstream.infer.rewrites import optimise

SIZE, MODELS = 3200, 4
name, precision = sys.argv[1:]
random = np.random.default_rng(0)

def resident():
    gc.collect()
    kilobytes = re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    return int(kilobytes) * 1024

def graph():
    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[1,%d] x) => (float[1,%d] y) {'
    model = parser.parse_model(text % (SIZE, SIZE) + "a = MatMul(x, w) y = Relu(a) }")
    made = from_model(model)
    made.constants["w"] = random.standard_normal((SIZE, SIZE), np.float32)
    return made

def module():
    import torch

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(SIZE, SIZE)

        def forward(self, x):
            y = self.linear(x)
            torch._dynamo.graph_break()
            return torch.relu(y)

    return Twice()

def prepared():
    if name == "inductor-in-parts":
        recipe = Recipe(engine="inductor", rewrites=False)
        return ENGINES["inductor"].with_module(module()).prepare(graph(), recipe, 2)
    made = optimise(graph())[0]
    ranges = {"x": (-4.0, 4.0), "a": (-300.0, 300.0), "y": (0.0, 300.0)}
    recipe = Recipe(engine=name, precision=precision, ranges=ranges if precision == "int8" else {})
    engine = ENGINES[name]
    chosen = replace(engine, device="cpu") if name == "inductor-cuda" else engine
    return chosen.prepare(made, recipe, 2)

closed, sizes = [], []
for _ in range(MODELS):
    executable = prepared()
    executable.run({"x": np.ones((1, SIZE), np.float32)})
    executable.close()
    closed.append(executable)
    sizes.append(resident())
steps = np.diff(sizes) / (SIZE * SIZE * 4)
print(np.median(steps))  # an allocator keeps some memory once
"""


def growth(engine, precision="fp32"):
    """Return the memory that a closed model keeps, as a part of the size of its weights."""
    command = [sys.executable, "-c", SCRIPT, engine, precision]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # no pool of processes
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


CASES = [
    *(
        pytest.param(name, "fp32", marks=pytest.mark.slow("code of Inductor"))
        for name in ("inductor-in-parts", "inductor-cuda")
    ),
    *(
        (engine.name, precision)
        for engine in ENGINES.values()
        if engine.available() is None
        for precision in engine.precisions()
        # The packers of others keep some memory once, which is as much as weights of 8 bits.
        if precision == "fp32" or (precision.startswith("int8") and engine.name == "native")
    ),
]


@pytest.mark.parametrize(("engine", "precision"), CASES)
def test_a_closed_model_keeps_no_weights(engine, precision):
    assert growth(engine, precision) < (0.2 if engine == "native" else 0.5)
