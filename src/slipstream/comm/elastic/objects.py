"""Python objects on their way from one rank to all others.

The objects are pickled. Only ranks that have proved the job key are members of a group.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from slipstream.comm import worlds


def broadcast_object(value: Any) -> Any:
    """Return rank 0's object on all ranks, which call the function together; blocks.

    Args:
        value: Object that pickle can copy; only rank 0's counts.
    """
    group = worlds.world()
    is_root = group.rank == 0
    data: Any = np.frombuffer(pickle.dumps(value) if is_root else b"", np.uint8)
    size = np.array([data.size], np.int64)
    group.broadcast(size, 0, name="object size")
    content: Any = data.copy() if is_root else np.empty(int(size[0]), np.uint8)
    group.broadcast(content, 0, name="object")
    return value if is_root else pickle.loads(content.tobytes())
