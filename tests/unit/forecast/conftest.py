"""Fixtures: a model with many parameters and few operators, and a row of a published table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstream.forecast.validate.row import TableRow

# It has as many parameters as GPT-2 XL, in a third of the blocks.
WIDE_GPT = {
    "model_type": "gpt2", "n_embd": 2816, "n_layer": 16, "n_head": 22, "vocab_size": 50257,
    "n_positions": 1024,
}  # fmt: skip


@pytest.fixture(scope="session")
def wide_gpt(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a config.json of 1.7 billion parameters, which is traced in a second."""
    path = tmp_path_factory.mktemp("wide") / "config.json"
    path.write_text(json.dumps(WIDE_GPT))
    return str(path)


@pytest.fixture
def row_of() -> Callable[..., TableRow]:
    """Return a function that makes a row of a published table from changes to some columns."""

    def make(**columns: str) -> TableRow:
        usual = TableRow(
            line=2, source="Dell", model="ResNet-50 v1.5", gpu="V100-SXM2-16GB", gpus_per_node="8",
            network_gbps="100", framework="PyTorch", batch_per_gpu="64", num_gpus="32",
            images_per_sec_or_speedup="100", unit="images/sec", address="https://example.org",
        )  # fmt: skip
        return replace(usual, **columns)

    return make
