"""Calls of a model on the device: copies in, computation and copies out, in three streams."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import ranks
import teststream
import torch

from slipstream.infer.engines.gpu.accelerator import Accelerator
from slipstream.infer.engines.gpu.staged import DeviceCall, StagedExecutable

COUNT = 200
SIZE = 1000


def squares(accelerator: Accelerator) -> DeviceCall:
    """Return a model whose computation is a function that a stream calls."""
    x = accelerator.empty(np.dtype(np.float32), (SIZE,))
    y = accelerator.empty(np.dtype(np.float32), (SIZE,))
    source, target = teststream.kernel_view(x), teststream.kernel_view(y)

    def launch() -> None:
        teststream.launch(lambda: torch.mul(source, source, out=target))

    return DeviceCall(inputs={"x": x}, outputs={"y": y}, launch=launch)


def check_zeros(accelerator: Accelerator) -> None:
    """Read zeros in another stream at once: token numbers that are not there yet would be wrong."""
    teststream.sleep(0.02)  # in the stream that fills the tensor
    zeros = accelerator.zeros(np.dtype(np.int64), (SIZE,))
    stream = accelerator.stream()
    with accelerator.on(stream):
        found = zeros.to("cpu")
    assert found.eq(0).all(), found


def main() -> None:
    """Run calls from several threads, half of them from buffers, and compare all results."""
    ranks.start(longest_delay=300e-6)
    accelerator = Accelerator(ranks.DEVICE)
    check_zeros(accelerator)
    stream = accelerator.stream()
    executable = StagedExecutable(accelerator, squares(accelerator), stream)
    buffers = threading.local()

    def call(number: int) -> None:
        inputs = np.full(SIZE, number, np.float32)
        if number % 2:
            if not hasattr(buffers, "x"):
                buffers.x = executable.buffer(np.dtype(np.float32), (SIZE,))
                assert torch.from_numpy(buffers.x).is_pinned(ranks.DEVICE)
            buffers.x[:] = inputs
            inputs = buffers.x
        outputs = executable.run({"x": inputs})
        inputs[:] = -1  # the caller may change its inputs once the call has returned
        time.sleep(number % 3 * 1e-4)
        assert (outputs["y"] == number * number).all(), (number, outputs["y"])

    with ThreadPoolExecutor(5) as callers:
        list(callers.map(call, range(COUNT)))
    executable.close()
    ranks.finish()


if __name__ == "__main__":
    main()
