"""What tests of serving begin with."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.infer.package import Tensor


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves to the next timer when there is nothing else to do.

    So seconds pass at once, and each run of a test sees the same times.
    """

    def __init__(self) -> None:
        self._now = 1000.0
        super().__init__()
        self._wait, self._selector.select = self._selector.select, self._step

    def time(self) -> float:
        return self._now

    def _step(self, timeout):
        self._now += timeout or 0.0
        return self._wait(0)


@pytest.fixture
def run_stepped():
    """Run a coroutine function with the loop that it runs on, whose clock only timers move."""

    def run(main):
        loop = SteppedLoop()
        try:
            loop.run_until_complete(main(loop))
        finally:
            loop.close()

    return run


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
