"""A model that is large in parameters and small in operators."""

from __future__ import annotations

import json

import pytest

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
