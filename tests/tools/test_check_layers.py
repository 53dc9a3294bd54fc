"""The arrows of the C++ layers, on small trees made for the purpose."""

from pathlib import Path

import check_layers
import pytest


def tree_with(root: Path, path: str, include: str) -> list[str]:
    """Return the violations in a tree with one source that has one include."""
    source = root / path
    source.parent.mkdir(parents=True)
    source.write_text(f'#include "{include}"\n')
    return check_layers.violations(root)


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("core/collective/ring.cc", "transport/tcp/connection.h"),
        ("core/collective/ring.cc", "engine/engine.h"),
        ("core/transport/tcp/port.cc", "transport/shm/ring.h"),
        ("core/transport/transport.h", "transport/fake/fake_network.h"),
        ("core/base/memory.cc", "reduce/reduce.h"),
        ("core/engine/driver.cc", "transport/tcp/connection.h"),
        ("core/engine/operation.cc", "device/device.h"),
        ("core/engine/operation.cc", "device/staging.h"),
        ("core/transport/tcp/stream.cc", "device/device.h"),
        ("core/transport/tcp/stream.cc", "gate/gated_ring.h"),
        ("core/gate/gated_ring.cc", "device/device.h"),
        ("core/device/staging.cc", "device/cuda/cuda_device.h"),
        ("core/device/cuda/cuda_device.cc", "device/fake/fake_device.h"),
        ("core/device/staging.cc", "engine/engine.h"),
        ("core/base/memory.cc", "hwy/highway.h"),
        ("core/surprise/file.cc", "base/clock.h"),
        ("core/include/slipstream/runtime.h", "engine/engine.h"),
        ("bindings/engine_py.cc", "engine/engine.h"),
        ("kernels/program.cc", "base/clock.h"),
        ("kernels/program.cc", "slipstream/error.h"),
        ("bindings/kernels/module.cc", "slipstream/error.h"),
    ],
)
def test_include_against_the_arrows_is_reported(tmp_path: Path, path: str, include: str) -> None:
    found = tree_with(tmp_path, path, include)

    assert len(found) == 1
    assert path in found[0]


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("core/collective/ring.cc", "transport/transport.h"),
        ("core/transport/tcp/port.cc", "transport/frame.h"),
        ("core/runtime.cc", "transport/tcp/connection.h"),
        ("core/engine/operation.cc", "gate/gated_ring.h"),
        ("core/device/staging.cc", "gate/gated_ring.h"),
        ("core/device/cuda/cuda_device.cc", "gate/engine_thread.h"),
        ("core/reduce/reduce.cc", "hwy/highway.h"),
        ("core/test/ring_test.cc", "transport/fake/fake_network.h"),
        ("core/base/memory.cc", "slipstream/error.h"),
        ("bindings/engine_py.cc", "slipstream/runtime.h"),
        ("bindings/module.cc", "buffer_py.h"),
        ("kernels/program.cc", "workers.h"),
        ("kernels/convolution.cc", "hwy/highway.h"),
        ("kernels/test/program_test.cc", "gtest/gtest.h"),
        ("bindings/kernels/module.cc", "steps.h"),
    ],
)
def test_include_along_the_arrows_passes(tmp_path: Path, path: str, include: str) -> None:
    assert tree_with(tmp_path, path, include) == []
