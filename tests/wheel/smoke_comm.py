"""Two processes of an installed wheel agree on a sum, with no framework in the environment."""

import sys
from pathlib import Path

import numpy as np

import slipstream
import slipstream.comm as comm


def main() -> None:
    """Fail unless the wheel, and not the sources, computes the right sum."""
    assert "site-packages" in Path(slipstream.__file__).parts, slipstream.__file__
    comm.init()
    values = np.full(1 << 16, comm.rank() + 1, dtype=np.float32)
    comm.allreduce(values)
    expected = comm.size() * (comm.size() + 1) / 2
    assert (values == expected).all(), f"expected {expected}, got {values[:4]}"
    comm.shutdown()
    assert not {"torch", "tensorflow", "jax"} & set(sys.modules)
    print("allreduce through slipstream.comm works")


if __name__ == "__main__":
    main()
