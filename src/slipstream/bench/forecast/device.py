"""Measurement of this device's kernel rates, from which the times of other kernels are forecast.

The device is the GPU, or the processors of a machine without a GPU. Each kernel runs repeatedly for
a fraction of a second. On processors, the result is the time of the shortest run, so that other
programs have little influence. On a GPU, which slows down when it warms up, the result is the
median time. On GPUs, 16-bit convolutions use the memory format channels last.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from slipstream.bench.forecast import facts as forecast_facts
from slipstream.bench.forecast import host as forecast_host
from slipstream.forecast.calibrate.measured import CalibratedDevice
from slipstream.forecast.calibrate.products import ProductPeak, TimedProduct, peak, share

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# A short and a long inner dimension of matrix products. Even with the short one, the arithmetic
# takes longer than writing the result.
_SUMS = {"cpu": (128, 1024), "cuda": (512, 4096)}
# If the short products of a dtype take this many times as long as those of float32, its long
# products are not timed. On processors without float16 arithmetic they would take minutes.
_MUCH_SLOWER = 4
# Outer dimensions of the products and batch sizes of the convolutions; each takes some
# milliseconds.
_SIDE = {"cpu": 2048, "cuda": 8192}
_IMAGES = {"cpu": 8, "cuda": 64}
_CONVOLUTIONS = (128, 56), (256, 28), (512, 14)  # channels and sides of images, as in ResNets
# The forecast assumes that a batch norm and its gradient read and write this many numbers per
# number of the input.
_NORM_PASSES = 1.5 * (2 + 3)
# numbers in an array, which is larger than all caches
_ELEMENTS = {"cpu": 48 << 20, "cuda": 256 << 20}
_LEAST_RUNS = 3

Tell = Callable[[str], None]

STAGES = 5  # number of lines that `measure` passes to `tell`


def measure(tell: Tell, *, threads: int | None = None, quick: bool = False) -> CalibratedDevice:
    """Run the measurement, which takes about half a minute.

    Args:
        tell: Function that receives the name of the next measurement; it is called `STAGES` times.
        threads: Number of threads of a rank on a machine without a GPU (default None: PyTorch's
            default).
        quick: Whether to use smaller operands and a tenth of the time, for tests (default False).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return _measured(tell, quick)
    finally:
        torch.set_num_threads(before)


def _measured(tell: Tell, quick: bool) -> CalibratedDevice:
    bench = _Bench("cuda" if torch.cuda.is_available() else "cpu", quick)
    tell("products of matrices")
    peaks = bench.products()
    fastest = max(peaks.values(), key=lambda product: product.flops_per_second)
    tell("convolutions")
    windows = {name: bench.window_share(name, product) for name, product in peaks.items()}
    winograd = bench.rate("float32", 3) / bench.rate("float32", 1)
    lowest = next(reversed(peaks)) if bench.is_gpu else "float32"
    depthwise = bench.depthwise(lowest) / peaks["float32"].flops_per_second
    tell("memory")
    memory_rate = bench.triad()
    gather = bench.gather() / memory_rate
    norms = {
        name: min(1.0, bench.batch_norm(name) / memory_rate) for name in peaks if name != "tf32"
    }
    tell("operators")
    host = bench.host()
    tell("transfers")
    return CalibratedDevice(
        kind="gpu" if bench.is_gpu else "cpu",
        title=forecast_facts.title(is_gpu=bench.is_gpu),
        memory_gib=forecast_facts.memory_gib(is_gpu=bench.is_gpu),
        context_mib=forecast_facts.context_mib() if bench.is_gpu else None,
        processors=forecast_facts.processors(is_gpu=bench.is_gpu),
        cache_mib=forecast_facts.cache_mib(is_gpu=bench.is_gpu),
        tflops={name: product.flops_per_second / 1e12 for name, product in peaks.items()},
        half_sum=fastest.half_sum,
        vector_half_sum=peaks["float32"].half_sum,
        windows=windows,
        winograd=max(1.0, winograd),
        depthwise=min(1.0, depthwise),
        memory_gb_per_s=memory_rate / 1e9,
        gather=min(1.0, gather),
        batch_norms=norms,
        forward_us=host.forward * 1e6,
        backward_us=host.backward * 1e6,
        update_us=host.update * 1e6,
        gap_us=None if host.gap is None else host.gap * 1e6,
        host_gb_per_s=bench.copy() / 1e9 if bench.is_gpu else None,
    )


class _Bench:
    """Time measurements of kernels on one device.

    Args:
        device: Type of the device, "cpu" or "cuda".
        quick: Whether to use smaller operands and to run kernels for less time.
    """

    def __init__(self, device: str, quick: bool) -> None:
        self.is_gpu = device == "cuda"
        self._device = torch.device(device)
        self._seconds = 0.05 if quick else 0.5
        self._side = _SIDE[device] // (4 if quick else 1)
        self._images = _IMAGES[device] // (4 if quick else 1)
        self._elements = _ELEMENTS[device] // (16 if quick else 1)
        self._sums = _SUMS[device]

    def products(self) -> dict[str, ProductPeak]:
        """Return the rate of matrix products in float32, and in each dtype that is faster."""
        peaks: dict[str, ProductPeak] = {}
        slowest = math.inf
        for name in DTYPES:
            if name == "tf32" and not self.is_gpu:
                continue
            short = self._product(name, self._sums[0])
            if short.seconds > slowest:
                continue
            slowest = _MUCH_SLOWER * short.seconds if not peaks else slowest
            product = peak(short, self._product(name, self._sums[1]))
            if not peaks or product.flops_per_second > peaks["float32"].flops_per_second:
                peaks[name] = product
        return peaks

    def _product(self, name: str, k: int) -> TimedProduct:
        left = self._random(self._side, k, dtype=name)
        right = self._random(k, self._side, dtype=name)
        with tf32(name == "tf32"):
            seconds = self._seconds_of(lambda: torch.mm(left, right))
        return TimedProduct(self._side, self._side, k, seconds)

    def window_share(self, name: str, product: ProductPeak) -> float:
        """Return the rate of convolutions relative to the rate of plain matrix products.

        Args:
            name: Name of a dtype.
            product: Rate of plain matrix products.
        """
        # With windows of 1 x 1, memory would limit the rate of a GPU's matrix units.
        window = 3 if self.is_gpu and name != "float32" else 1
        return statistics.geometric_mean(
            share(convolution, product) for convolution in self._convolutions(name, window)
        )

    def rate(self, name: str, window: int) -> float:
        """Return the FLOP/s of convolutions.

        Args:
            name: Name of a dtype.
            window: Height and width of the convolution's kernel in pixels.
        """
        return statistics.geometric_mean(
            product.flops / product.seconds for product in self._convolutions(name, window)
        )

    def _convolutions(self, name: str, window: int) -> list[TimedProduct]:
        """Time convolutions; return each as a matrix product that takes the mean time of a pass."""
        products: list[TimedProduct] = []
        for channels, side in _CONVOLUTIONS:
            pixels = self._image(name, self._images, channels, side, side)
            weight = self._image(name, channels, channels, window, window)
            convolve = partial(functional.conv2d, padding=window // 2)
            with tf32(name == "tf32"):
                seconds = self._seconds_of_both(convolve, pixels, weight) / 3
            rows, k = self._images * side**2, channels * window**2
            products.append(TimedProduct(rows, channels, k, seconds))
        return products

    def depthwise(self, name: str) -> float:
        """Return the FLOP/s of a depthwise convolution and its gradients.

        Args:
            name: Name of a dtype.
        """
        pixels = self._image(name, self._images, 256, 28, 28)
        weight = self._image(name, 256, 1, 3, 3)
        convolve = partial(functional.conv2d, padding=1, groups=256)
        return 6 * pixels.numel() * 9 / self._seconds_of_both(convolve, pixels, weight)

    def triad(self) -> float:
        """Return the memory rate of a weighted sum of two arrays, in bytes per second."""
        left, right, out = (self._random(self._elements) for _ in range(3))
        return (
            12
            * self._elements
            / self._seconds_of(lambda: torch.add(left, right, alpha=2.0, out=out))
        )

    def batch_norm(self, name: str) -> float:
        """Return the memory rate of a batch norm and its gradient, in bytes per second.

        Args:
            name: Name of the input's dtype; weights are in float32.
        """
        pixels = self._image(name, self._images, 256, 56, 56)
        norm = torch.nn.BatchNorm2d(256, device=self._device)
        seconds = self._seconds_of_both(partial(_normed, norm), pixels, norm.weight)
        return _NORM_PASSES * pixels.numel() * pixels.element_size() / seconds

    def gather(self) -> float:
        """Return the memory rate of a lookup of rows in a table, in bytes per second."""
        width, rows = 256, self._elements // 256
        table = self._random(rows, width)
        chosen = torch.randint(rows, (rows // 8,), device=self._device)
        seconds = self._seconds_of(lambda: functional.embedding(chosen, table))
        return 8 * len(chosen) * width / seconds

    def host(self) -> forecast_host.HostSeconds:
        """Return the seconds that the host needs per operator and per updated parameter."""
        return forecast_host.measure(self._device, self._seconds_of)

    def copy(self) -> float:
        """Return the bytes per second of copies from the host's memory to the device's."""
        source = torch.empty(self._elements, pin_memory=True)
        target = torch.empty(self._elements, device=self._device)
        return (
            4 * self._elements / self._seconds_of(lambda: target.copy_(source, non_blocking=True))
        )

    def _random(self, *shape: int, dtype: str = "float32") -> torch.Tensor:
        return torch.randn(*shape, device=self._device).to(DTYPES[dtype])

    def _image(self, name: str, *shape: int) -> torch.Tensor:
        """Return random numbers in the memory format that convolutions of a dtype use."""
        pixels = self._random(*shape, dtype=name)
        is_last = self.is_gpu and DTYPES[name] is not torch.float32
        return pixels.contiguous(memory_format=torch.channels_last) if is_last else pixels

    def _seconds_of_both(
        self, run: Callable[..., torch.Tensor], data: torch.Tensor, weight: torch.Tensor
    ) -> float:
        """Return the total seconds of an operator, its data gradient and its weight gradient."""
        leaves = data.requires_grad_(), weight.requires_grad_()
        gradient = torch.ones_like(run(*leaves))
        return self._seconds_of(lambda: torch.autograd.grad(run(*leaves), leaves, gradient))

    def _seconds_of(self, kernel: Callable[[], object], *, waits: bool = True) -> float:
        """Return the seconds of a kernel; a first call is not timed.

        Args:
            kernel: Function that issues the timed kernel.
            waits: Whether the measured time ends when the device is done (default True); otherwise
                it ends when the host has issued the kernel.
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
        return statistics.median(times) if self.is_gpu else min(times)

    def _wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()


def _normed(norm: torch.nn.Module, pixels: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return norm(pixels)


@contextmanager
def tf32(allowed: bool) -> Generator[None]:
    """Allow or forbid TF32 for products of float32 inside the `with` block.

    Args:
        allowed: Whether products may use TF32.
    """
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
