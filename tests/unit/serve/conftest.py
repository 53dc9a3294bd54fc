"""What tests of serving begin with."""

from __future__ import annotations

import asyncio

import pytest
from small_models import build as build
from small_models import compiled as compiled
from small_models import net as net
from small_models import random as random

from slipstream.errors import UsageError
from slipstream.infer.engines.protocol import Recipe
from slipstream.infer.machine import this_machine
from slipstream.infer.package.package import Accuracy, Manifest, Tensor


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
    """Return a function that makes a signature of float32 tensors from their shapes by name."""
    from slipstream.serve.signature import Signature

    def make(inputs, outputs, most_rows=8):
        tensors = [
            [Tensor(name=name, dtype="float32", shape=shape) for name, shape in each.items()]
            for each in (inputs, outputs)
        ]
        return Signature(*tensors, most_rows)

    return make


class Sums:
    """Replicas of models whose y is the sum of each row of x; "bad.slip" is no package."""

    def __init__(self, manifest):
        self.manifest, self.fault, self.seconds, self.held = manifest, None, 0.0, None
        self.axis = 1
        self.loaded, self.unloaded, self.alone, self.is_closed = [], [], [], False

    async def load(self, key, path):
        if path.name == "bad.slip":
            raise UsageError(f"{path} is no package")
        self.loaded.append((key, path))
        from slipstream.serve.replicas import LoadedModel

        return LoadedModel(self.manifest, 1, self.seconds)

    async def run(self, key, inputs, is_alone):
        self.alone.append(is_alone)
        await (asyncio.sleep(0) if self.held is None else self.held.wait())
        if self.fault is not None:
            raise self.fault
        return {"y": inputs["x"].sum(axis=self.axis)}, 0.25

    async def unload(self, key):
        self.unloaded.append(key)

    async def close(self):
        self.is_closed = True


@pytest.fixture
def sums(signature):
    """Return replicas of models of float32 x (2, 2) and y (2)."""
    made = signature({"x": (2, 2)}, {"y": (2,)})
    accuracy = Accuracy(snr_db=40.0, top1_loss=None, samples=9, labelled=0, data="9 of mine")
    manifest = Manifest(
        graph="model.onnx", inputs=made.inputs, outputs=made.outputs, threads=1,
        recipe=Recipe(engine="openvino", precision="int8"), machine=this_machine(),
        accuracy=accuracy,
    )  # fmt: skip
    return Sums(manifest)


@pytest.fixture
def repository(sums):
    """Return a function that makes the repository of a command line; requests have up to 4 rows."""
    from slipstream.serve.batcher import BatcherLimits
    from slipstream.serve.repository import Repository, parse_model_specs

    def make(*texts, **limits):
        limits = BatcherLimits(**{"runs": 1, "delay": 0.0, **limits})
        return Repository(parse_model_specs(texts), sums, limits, 4)

    return make
