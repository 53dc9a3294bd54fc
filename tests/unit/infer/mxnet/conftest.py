"""Results of MXNet 1.9.1, which runs in a separate environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.importers import load_model

Case = tuple[str, dict[str, Sequence[int]]]
MXNET = Path(sys.prefix, "mxnet", "bin", "python")
ABSENT = "make test installs MXNet 1.9.1 beside, for Python up to 3.11"
TOLERANCE = 2e-5  # of the largest element


@pytest.fixture(scope="module")
def mxnet(request, tmp_path_factory) -> Callable[[str], Path]:
    """Store the cases of the module's `CASES`; return a function for the path of a case."""
    if not MXNET.exists():
        pytest.skip(ABSENT)
    folder = tmp_path_factory.mktemp("mxnet")
    cases: dict[str, Case] = request.module.CASES
    numbers = {name: f"case{number}" for number, name in enumerate(cases)}
    text = json.dumps([[numbers[name], *case] for name, case in cases.items()])
    oracle = Path(__file__).with_name("oracle.py")
    quiet = {**os.environ, "MXNET_SUBGRAPH_VERBOSE": "0"}
    done = subprocess.run(
        [MXNET, oracle, folder], input=text, text=True, capture_output=True, timeout=250, env=quiet
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return lambda name: folder / numbers[name]


SAVE = """
import sys, numpy as np, mxnet as mx
kinds = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64")
numbers = np.arange(6).reshape(2, 3)
mx.nd.save(sys.argv[1], {kind: mx.nd.array(numbers, dtype=kind) for kind in kinds})
"""


@pytest.fixture
def mxnet_saved(tmp_path) -> Path:
    """Return a file in which MXNet has stored arrays (2, 3) of every dtype with 0 to 5."""
    if not MXNET.exists():
        pytest.skip(ABSENT)
    path = tmp_path / "saved.params"
    subprocess.run([MXNET, "-c", SAVE, path], check=True, capture_output=True, timeout=100)
    return path


@pytest.fixture
def same(mxnet) -> Callable[[str], list[str]]:
    """Return a function that imports a case, compares it with MXNet and returns its operators."""

    def compare(name: str) -> list[str]:
        prefix = mxnet(name)
        with np.load(f"{prefix}.npz") as stored:
            feeds = {key[3:]: stored[key] for key in stored if key.startswith("in:")}
            right = {key[4:]: stored[key] for key in stored if key.startswith("out:")}
        shapes = {key: array.shape for key, array in feeds.items()}
        graph = load_model(f"{prefix}-symbol.json", shapes=shapes).graph
        feeds = {key: feeds[key].astype(value.dtype) for key, value in graph.inputs.items()}
        found = plain_session(to_model(graph).SerializeToString(), 1).run(feeds)
        assert list(found) == list(right)
        for key, array in right.items():
            close(found[key], array)
        return [node.op for node in graph.nodes]

    return compare


def close(found: NDArray[np.generic], right: NDArray[np.generic]) -> None:
    assert found.shape == right.shape
    room = TOLERANCE * max(float(np.abs(right).max()), 1e-3)
    np.testing.assert_allclose(found, right, rtol=0, atol=room)
