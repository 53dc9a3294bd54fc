"""Times what kernels of the device at hand reach: the numbers that forecasts of it rest on.

A GPU where there is one, else the processors of this machine. Each kernel has a share of a second;
its best time counts, so that what others do on the machine counts little.
"""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from slipstream.bench.result import environment_line
from slipstream.forecast.calibrate.measured import MeasuredDevice
from slipstream.forecast.calibrate.products import Peak, TimedProduct, peak, share
from slipstream.forecast.trace import trace
from slipstream.forecast.workload import Phase

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# Sides of products and images of a batch: some milliseconds on each kind of device.
_SUMS = 128, 1024
# A dtype whose short products take so many times those of float32 has no long ones timed: of
# float16 on processors that do not multiply it, they take minutes.
_MUCH_SLOWER = 4
_SIDE = {"cpu": 2048, "cuda": 8192}
_IMAGES = {"cpu": 8, "cuda": 64}
# More than caches hold.
_ELEMENTS = {"cpu": 48 << 20, "cuda": 256 << 20}
# So narrow that the device has next to nothing to do.
_WIDTH, _LAYERS = 8, 60
_MIB, _GIB = 1 << 20, 1 << 30
_LEAST_RUNS = 3

Tell = Callable[[str], None]

# What `measure` tells, one after the other.
STAGES = 5


def measure(tell: Tell, *, threads: int | None = None, quick: bool = False) -> MeasuredDevice:
    """Measures; blocks for about half a minute.

    Args:
        tell: is told what is measured next, `STAGES` times.
        threads: that a rank on processors computes with; None: as many as PyTorch takes.
        quick: for tests: smaller operands, and a tenth of the time.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return _measured(tell, quick)
    finally:
        torch.set_num_threads(before)


def _measured(tell: Tell, quick: bool) -> MeasuredDevice:
    bench = _Bench("cuda" if torch.cuda.is_available() else "cpu", quick)
    tell("products of matrices")
    peaks = bench.products()
    fastest = max(peaks.values(), key=lambda each: each.flops_per_second)
    tell("convolutions")
    windows = {name: share(bench.convolution(name, 1), reached) for name, reached in peaks.items()}
    slow, fast = (bench.convolution("float32", window) for window in (1, 3))
    winograd = fast.flops / fast.seconds / (slow.flops / slow.seconds)
    depthwise = bench.depthwise() / peaks["float32"].flops_per_second
    tell("memory")
    moved = bench.triad()
    gather = bench.gather() / moved
    tell("operators")
    forward, backward = bench.operators()
    tell("transfers")
    return MeasuredDevice(
        kind="gpu" if bench.is_gpu else "cpu",
        title=bench.title(),
        memory_gib=bench.memory_gib(),
        processors=bench.processors(),
        cache_mib=bench.cache_mib(),
        tflops={name: each.flops_per_second / 1e12 for name, each in peaks.items()},
        half_sum=fastest.half_sum,
        windows=windows,
        winograd=max(1.0, winograd),
        depthwise=min(1.0, depthwise),
        memory_gb_per_s=moved / 1e9,
        gather=min(1.0, gather),
        forward_us=forward * 1e6,
        backward_us=backward * 1e6,
        host_gb_per_s=bench.copy() / 1e9 if bench.is_gpu else None,
    )


class _Bench:
    """Kernels on one device.

    Args:
        device: "cpu" or "cuda".
        quick: smaller operands, and less time for each.
    """

    def __init__(self, device: str, quick: bool) -> None:
        self.is_gpu = device == "cuda"
        self._device = torch.device(device)
        self._seconds = 0.1 if quick else 1.0
        self._side = _SIDE[device] // (4 if quick else 1)
        self._images = _IMAGES[device] // (4 if quick else 1)
        self._elements = _ELEMENTS[device] // (16 if quick else 1)

    def products(self) -> dict[str, Peak]:
        """Returns what products reach by dtype; without those that are slower than float32."""
        found: dict[str, Peak] = {}
        slowest = math.inf
        for name in DTYPES:
            if name == "tf32" and not self.is_gpu:
                continue
            short = self._product(name, _SUMS[0])
            if short.seconds > slowest:
                continue
            slowest = _MUCH_SLOWER * short.seconds if not found else slowest
            reached = peak(short, self._product(name, _SUMS[1]))
            if not found or reached.flops_per_second > found["float32"].flops_per_second:
                found[name] = reached
        return found

    def _product(self, name: str, k: int) -> TimedProduct:
        left = self._random(self._side, k, dtype=name)
        right = self._random(k, self._side, dtype=name)
        with _tf32(name == "tf32"):
            seconds = self._best(lambda: torch.mm(left, right))
        return TimedProduct(self._side, self._side, k, seconds)

    def convolution(self, name: str, window: int) -> TimedProduct:
        """Times a convolution of 256 channels and 28 x 28 pixels."""
        pixels = self._random(self._images, 256, 28, 28, dtype=name)
        weight = self._random(256, 256, window, window, dtype=name)
        with _tf32(name == "tf32"):
            seconds = self._best(lambda: functional.conv2d(pixels, weight, padding=window // 2))
        return TimedProduct(self._images * 28**2, 256, 256 * window**2, seconds)

    def depthwise(self) -> float:
        """Returns the FLOP/s of a convolution of one channel per group."""
        pixels = self._random(self._images, 256, 28, 28)
        weight = self._random(256, 1, 3, 3)
        seconds = self._best(lambda: functional.conv2d(pixels, weight, padding=1, groups=256))
        return 2 * self._images * 28**2 * 256 * 9 / seconds

    def triad(self) -> float:
        """Returns bytes per second, read and written, of a sum of two arrays."""
        left, right, out = (self._random(self._elements) for _ in range(3))
        return 12 * self._elements / self._best(lambda: torch.add(left, right, alpha=2.0, out=out))

    def gather(self) -> float:
        """Returns bytes per second, read and written, of rows of a table."""
        width, rows = 256, self._elements // 256
        table = self._random(rows, width)
        chosen = torch.randint(rows, (rows // 8,), device=self._device)
        seconds = self._best(lambda: functional.embedding(chosen, table))
        return 8 * len(chosen) * width / seconds

    def operators(self) -> tuple[float, float]:
        """Returns the host's seconds per operator of the forward and of the backward pass, with
        operators counted as the forecast traces them."""
        traced = trace(_chain, lambda: [torch.ones(8, _WIDTH)], name="chain", samples=8).operators
        before = sum(each.phase is Phase.FORWARD for each in traced)
        module = _chain().to(self._device)
        inputs = torch.ones(8, _WIDTH, device=self._device)
        forward = self._best(lambda: module(inputs), waits=False)
        both = self._best(lambda: module(inputs).sum().backward(), waits=False)
        return forward / before, max(both - forward, 0.0) / (len(traced) - before)

    def copy(self) -> float:
        """Returns bytes per second from the host's memory to the device's."""
        source = torch.empty(self._elements, pin_memory=True)
        target = torch.empty(self._elements, device=self._device)
        return 4 * self._elements / self._best(lambda: target.copy_(source, non_blocking=True))

    def title(self) -> str:
        """Returns what the device calls itself, and the software."""
        if self.is_gpu:
            return f"{torch.cuda.get_device_name()}; torch {torch.__version__}"
        return environment_line()

    def memory_gib(self) -> float:
        """Returns the device's memory."""
        if self.is_gpu:
            return torch.cuda.get_device_properties(0).total_memory / _GIB
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB

    def processors(self) -> int:
        """Returns the processors that tiles of a product are shared among."""
        if self.is_gpu:
            return int(torch.cuda.get_device_properties(0).multi_processor_count)
        return torch.get_num_threads()

    def cache_mib(self) -> float:
        """Returns the last level's cache."""
        if self.is_gpu:
            return torch.cuda.get_device_properties(0).L2_cache_size / _MIB
        found = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
        sizes = [path.read_text().strip() for path in found]
        return max((float(size[:-1]) / 1024 for size in sizes if size.endswith("K")), default=1.0)

    def _random(self, *shape: int, dtype: str = "float32") -> torch.Tensor:
        return torch.randn(*shape, device=self._device).to(DTYPES[dtype])

    def _best(self, kernel: Callable[[], object], *, waits: bool = True) -> float:
        """Returns the shortest seconds of a kernel, after one call that does not count.

        Args:
            kernel: to time.
            waits: for the device; else the time of the host alone counts.
        """
        kernel()
        times: list[float] = []
        end = time.perf_counter() + self._seconds
        while len(times) < _LEAST_RUNS or time.perf_counter() < end:
            self._wait()
            start = time.perf_counter()
            kernel()
            if waits:
                self._wait()
            times.append(time.perf_counter() - start)
        self._wait()
        return min(times)

    def _wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()


def _chain() -> torch.nn.Module:
    """A model of many small operators."""
    layers = [
        torch.nn.Sequential(
            torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU(), torch.nn.LayerNorm(_WIDTH)
        )
        for _ in range(_LAYERS)
    ]
    return torch.nn.Sequential(*layers)


@contextmanager
def _tf32(allowed: bool) -> Generator[None]:
    """Lets products of float32 be of TF32, or not."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
