"""A model that is large in parameters and small in operators, and a row of a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from slipstream.forecast.validate.row import TableRow

# GPT-2 XL has as many parameters, in three times as many blocks.
WIDE_GPT = {
    "model_type": "gpt2", "n_embd": 2816, "n_layer": 16, "n_head": 22, "vocab_size": 50257,
    "n_positions": 1024,
}  # fmt: skip


@pytest.fixture(scope="session")
def wide_gpt(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The config.json of a GPT-2 of 1.7 billion parameters, which is traced in a second."""
    path = tmp_path_factory.mktemp("wide") / "config.json"
    path.write_text(json.dumps(WIDE_GPT))
    return str(path)


@pytest.fixture
def row_of() -> Callable[..., TableRow]:
    """Makes a row of a published table with some of its columns changed."""

    def make(**columns: str) -> TableRow:
        usual = TableRow(
            line=2, source="Dell", model="ResNet-50 v1.5", gpu="V100-SXM2-16GB", gpus_per_node="8",
            network_gbps="100", framework="PyTorch", batch_per_gpu="64", num_gpus="32",
            images_per_sec_or_speedup="100", unit="images/sec", address="https://example.org",
        )  # fmt: skip
        return replace(usual, **columns)

    return make
