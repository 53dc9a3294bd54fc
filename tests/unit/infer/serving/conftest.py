"""What tests of serving begin with."""

from __future__ import annotations

import pytest

from slipstream.infer.package import Tensor


@pytest.fixture(scope="session")
def signature():
    """Makes a signature of float32 tensors from their shapes by name."""
    from slipstream.infer.serving.signature import Signature

    def make(inputs, outputs, most_rows=8):
        tensors = [
            [Tensor(name=name, dtype="float32", shape=shape) for name, shape in each.items()]
            for each in (inputs, outputs)
        ]
        return Signature(*tensors, most_rows)

    return make
