"""Where the bodies of REST are kept."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.serve.protocol.bodies import aligned


@pytest.mark.parametrize(
    ("said", "length"), [("", 0), ("x", 0), ("0", 0), ("37", 37), ("200", 200)]
)
@pytest.mark.parametrize("size", [0, 1, 300, 100_000])
def test_the_first_tensor_begins_at_a_cache_line(size: int, said: str, length: int) -> None:
    bodies = [np.frombuffer(aligned(size, said), np.uint8) for _ in range(4)]
    assert [body.size for body in bodies] == [size] * 4
    assert {(body.ctypes.data + length) % 64 for body in bodies if size} <= {0}
