"""Duration of operators on a device: a roofline model with a few calibrated parameters.

A matrix product reaches a share of the device's peak. The share decreases if the last wave of tiles
leaves processors (streaming multiprocessors) idle, and if the summed dimension is short. All
operators except matrix products are limited by memory bandwidth. The shares of the peak were
calibrated on published measurements (`slipstream.forecast.validate`).

Source: Williams, Waterman, Patterson 2009, "Roofline", doi 10.1145/1498765.1498785; NVIDIA, "Matrix
multiplication background user's guide" for tiles and waves; Lavin, Gray 2016, arXiv 1509.09308, for
the multiplications that Winograd's convolutions save.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.forecast.hardware import Device
from slipstream.forecast.work.workload import Operator, OperatorKind, TrainingPhase

FloatArray = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]

# Rows and columns of the tile that one processor computes, as in NVIDIA's guide (see above).
TILE = 128
# Number of summed elements from which a product is split into several sums, so that more processors
# have work. With 512, 1024 and 2048 the mean error on the published measurements is 10.8, 10.7 and
# 10.5 % if no parameter is fitted anew, and without splits it is 21.4 %.
SPLIT = 1024
# Window sizes in pixels, 3x3 and 5x5, for which Winograd's algorithm is used.
_WINOGRAD = (9, 25)
# Copied bytes, as a multiple of the bytes that a convolution moves, if images are stored channels
# first; matrix units need channels last. The input and the output are copied. In the backward pass
# the gradient of the output is copied twice, once for each of the two products. ResNet-50 with 128
# images on a V100 in 16 bits takes 152 ms with channels first and 111 ms with channels last
# (github.com/sandeepkumar-skb/pytorch_experiments, torchvision_exp/README.md).
_COPIED = {TrainingPhase.FORWARD: 2.0, TrainingPhase.BACKWARD: 8 / 3}
# Memory passes of functions that some frameworks compose of several kernels, relative to one fused
# kernel, by name of the function. In BERT for TensorFlow (google-research/bert, modeling.py) GELU
# is a power, four products, two sums and a tanh; dropout draws numbers, compares and multiplies;
# layer norm computes moments and then its result.
_COMPOSED = {"gelu": 8.0, "dropout": 3.0, "layer_norm": 2.0}
# Factor on the bytes of norms. They compute the mean first, so they read their input twice and
# write once, which is three passes instead of two. With 1.0, 1.5 and 2.0 the mean error on the
# published measurements is 11.3, 10.7 and 10.7 % if no parameter is fitted anew.
_PASSES = {OperatorKind.NORM: 1.5}
# TensorFlow and Paddle list the operators that may run in 16 bits. Powers, means and unlisted
# operators stay in 32 bits, and so do operators between them; the functions below therefore move
# 32-bit values. Each product also needs a cast, which reads 32 bits and writes 16 bits per value in
# addition to the 16 bits that the product moves
# (tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h;
# paddle/fluid/contrib/mixed_precision/fp16_lists.py).
_STAYS_WIDE = ("gelu", "dropout", "tanh")
_CAST_PASSES = 3.0
# Shares of operators that selective checkpointing recomputes: torchtitan stores the outputs of
# attention and of every second product (torchtitan/distributed/activation_checkpoint.py,
# SelectiveAC).
_AGAIN = {OperatorKind.ATTENTION: 0.0, OperatorKind.PRODUCT: 0.5}
# Additional memory traffic of an 8-bit product, as a multiple of the bytes that the product moves
# in 16 bits. It reads both operands to find their maximum, then reads them again and writes them in
# 8 bits: 5 bytes per element of 2 bytes, for two of the three matrices.
_SCALED_PASSES = 2.5 * 2 / 3
# TFLOP/s per processor of depthwise convolutions, which load an operand for each multiplication and
# are limited by these loads. A processor is assumed to load for 64 lanes, as in V100 and A100, at
# 1.5 GHz. In fp32, EfficientNets reach 0.4 to 0.6 TFLOP/s on both V100 and A100. In 16 bits they
# reach 0.4 to 1.3 on these, and 0.9 to 1.7 on RTX 3090, whose processors have twice the lanes
# (README of DeepLearningExamples, PyTorch/Classification/ConvNets/efficientnet;
# pytorch-image-models, results).
_LOADING_TFLOPS = 2 * 64 * 1.5e-3
# Microseconds between two kernels of a CUDA graph: 80 kernels take 70 us, including their work
# (cuda.juliagpu.org/dev/usage/graphs).
_GRAPH_GAP_US = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of a device's peak rates that kernels reach.

    Args:
        matrix: Share of the 16-bit peak of matrix units, 0 to 1 (default 0.61).
        tf32: Share of the TF32 peak of matrix units, 0 to 1 (default 0.75).
        vector: Share of the fp32 peak of vector units, 0 to 1 (default 0.73).
        matrix_windows: Rate of convolutions on matrix units, relative to matrix products (default
            0.9).
        vector_windows: Rate of convolutions on vector units, relative to matrix products (default
            0.9).
        memory: Share of the memory bandwidth, 0 to 1 (default 0.80).
        odd: Rate of products on matrix units if one of the matrices has rows of odd length,
            relative to products in which all rows have even length (default 0.2).
        half_sum: Length of the summed dimension at which a product reaches half of the rate of long
            sums (default 150). Short sums are slower because each tile spends time at its start and
            end.
        vector_half_sum: Value of `half_sum` for vector units (default None: the value of
            `half_sum`).
        gap_us: Time between two kernels in microseconds (default 5).
        winograd: Factor by which Winograd's algorithm reduces the FLOPs of fp32 convolutions of
            stride 1 (default 1.8).
        depthwise: Share of `vector` that convolutions with one channel per group reach in fp32, if
            a processor has 64 lanes (default 0.08). The share is twice as high in 16 bits. With c
            channels per group, the share is c times as high.
        gather: Share of `memory` that embedding lookups reach (default 0.5).
    """

    matrix: float = 0.61
    tf32: float = 0.75
    vector: float = 0.73
    matrix_windows: float = 0.9
    vector_windows: float = 0.9
    memory: float = 0.80
    odd: float = 0.2
    half_sum: float = 150.0
    vector_half_sum: float | None = None
    gap_us: float = 5.0
    winograd: float = 1.8
    depthwise: float = 0.08
    gather: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Overheads of a framework in addition to its kernels.

    Args:
        name: Name of the framework (default "pytorch").
        forward_us: Host time per operator of the forward pass in microseconds (default 20).
        backward_us: Host time per operator of the backward pass in microseconds (default 15).
        collective_us: Host time per collective within a forward or backward pass in microseconds
            (default 20).
        step_ms: Host time per step in milliseconds (default 1).
        update_us: Host time per parameter that the optimizer updates in microseconds (default 0).
        memory: Factor on the time of memory-bound operators; below 1 if the framework fuses
            operators (default 1).
        compute: Factor on the time of matrix products (default 1).
        depthwise: Factor on the time of depthwise convolutions (default 1).
        batch_norm: Factor on the time of batch norms, which read their input twice (default 1).
        half_batch_norm: Value of `batch_norm` for batch norms in 16 bits (default 1).
        flash: Whether attention is one fused kernel that stores no scores (default True).
        overlap: Share of the communication that overlaps with the backward pass, 0 to 1 (default
            0.9).
        composed: Whether functions such as GELU run as several kernels (default False).
        wide: Whether functions such as GELU compute in 32 bits when products compute in 16 bits
            (default False).
        graphs: Whether the host launches a step as one CUDA graph (default False).
        sums: Whether gradients are exchanged as in BytePS: the devices of a host sum their
            gradients and send the sum to parameter servers (default False). There are as many
            parameter servers as hosts with devices, and each server has a host of its own.
        spread: Standard deviation of a rank's time per micro-batch, as a share of the mean time
            (default 0.02). Ranks wait for the slowest rank.
    """

    name: str = "pytorch"
    forward_us: float = 20.0
    backward_us: float = 15.0
    collective_us: float = 20.0
    step_ms: float = 1.0
    update_us: float = 0.0
    memory: float = 1.0
    compute: float = 1.0
    depthwise: float = 1.0
    batch_norm: float = 1.0
    half_batch_norm: float = 1.0
    flash: bool = True
    overlap: float = 0.9
    composed: bool = False
    wide: bool = False
    graphs: bool = False
    sums: bool = False
    spread: float = 0.02

    def slowest(self, ranks: int, apart: int = 1) -> float:
        """Return the expected time of the slowest rank, relative to the mean time of all ranks.

        The largest of n normal variables is about sqrt(2 ln n) standard deviations above the mean
        of all n. The mean of m variables has a standard deviation that is sqrt(m) times smaller.

        Args:
            ranks: Number of ranks that wait for each other.
            apart: Number of micro-batches that each rank runs between two waits (default 1).
        """
        return 1 + self.spread * math.sqrt(2 * math.log(ranks) / apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Operators of a device as NumPy columns: one array for each property of the operators.

    All times are computed at once. Columns up to `backward` have one entry per operator; columns
    from `owner` on have one entry per matrix product.

    Args:
        operators: Operators of a device, in order of execution.
        bytes: Bytes that an operator moves.
        depthwise: FLOPs of a depthwise convolution, divided by the number of channels per group; 0
            if the operator is not a depthwise convolution.
        copied: Bytes that are copied if a convolution's images are stored channels first.
        composed: Factor on `bytes` if the framework runs a function such as GELU as several
            kernels.
        product: Whether the operator is a matrix product.
        cheap: Share of the operator's time that selective checkpointing repeats, 0 to 1.
        stays_wide: Whether some frameworks compute the operator in 32 bits even if products use 16
            bits.
        gather: Whether the operator looks up rows of an embedding.
        batch_norm: Whether the operator is a batch norm.
        half: Whether the operator computes in 16 bits.
        backward: Whether the operator belongs to the backward pass.
        owner: Index of the operator to which the product belongs.
        batch: Number of products of this size that one batched product computes.
        m: Number of rows of the result.
        n: Number of columns of the result.
        k: Length of the summed dimension.
        window: Number of pixels of the convolution window.
        fill: Share of the product that is computed; 0.5 for causal attention.
        windows: Whether the product is a convolution.
        odd: Whether rows of an operand or of the result have an odd length.
        dtypes: Name of the product's data type.
        linear: Whether the product belongs to a linear layer and is in 16 bits.
    """

    operators: Sequence[Operator]
    bytes: FloatArray
    depthwise: FloatArray
    copied: FloatArray
    composed: FloatArray
    product: _Flags
    cheap: FloatArray
    stays_wide: _Flags
    gather: _Flags
    batch_norm: _Flags
    half: _Flags
    backward: _Flags
    owner: npt.NDArray[np.int64]
    batch: FloatArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    window: FloatArray
    fill: FloatArray
    windows: _Flags
    odd: _Flags
    dtypes: npt.NDArray[np.str_]
    linear: _Flags

    @classmethod
    def of(cls, operators: Sequence[Operator]) -> Work:
        """Return the columns of operators that are listed in order of execution."""
        kinds = [op.kind for op in operators]
        narrow = [_narrow(op) if op.kind is OperatorKind.DEPTHWISE else 0.0 for op in operators]
        copied = [
            op.bytes_moved * _COPIED[op.phase] if op.kind is OperatorKind.CONVOLUTION else 0.0
            for op in operators
        ]
        product = np.array([kind is OperatorKind.PRODUCT for kind in kinds])
        half = np.array([op.dtype in ("float16", "bfloat16") for op in operators])
        rows = [
            (index, p.batch, p.m, p.n, p.k, p.window, p.fill,
             op.kind is OperatorKind.CONVOLUTION, p.odd, op.dtype)
            for index, op in enumerate(operators)
            if op.kind is not OperatorKind.DEPTHWISE
            for p in op.products
        ]  # fmt: skip
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * 10
        owner = np.array(columns[0], dtype=np.int64)
        batch, m, n, k, window, fill = (
            np.array(column, dtype=np.float64) for column in columns[1:7]
        )
        return cls(
            operators=operators,
            bytes=np.array([op.bytes_moved * _PASSES.get(op.kind, 1.0) for op in operators]),
            depthwise=np.array(narrow),
            copied=np.array(copied),
            composed=np.array([_composed(op.name) for op in operators]),
            product=product,
            cheap=np.array([_AGAIN.get(kind, 1.0) for kind in kinds]),
            stays_wide=np.array([any(name in op.name for name in _STAYS_WIDE) for op in operators]),
            gather=np.array([kind is OperatorKind.GATHER for kind in kinds]),
            batch_norm=np.array(["batch_norm" in op.name for op in operators]),
            half=half,
            backward=np.array([op.phase is TrainingPhase.BACKWARD for op in operators]),
            owner=owner,
            batch=batch,
            m=m,
            n=n,
            k=k,
            window=window,
            fill=fill,
            windows=np.array(columns[7], dtype=np.bool_),
            odd=np.array(columns[8], dtype=np.bool_),
            dtypes=np.array(columns[9], dtype=np.str_),
            linear=product[owner] & half[owner] & (batch == 1),
        )

    def between(self, other: Work, share: float) -> Work:
        """Return the columns at another micro-batch size, by linear interpolation.

        Args:
            other: Columns of the same operators at a larger micro-batch size.
            share: Position between the micro-batch sizes of these columns (0) and of `other` (1); a
                position above 1 extrapolates.
        """
        return replace(
            self,
            bytes=blend(self.bytes, other.bytes, share),
            copied=blend(self.copied, other.copied, share),
            depthwise=blend(self.depthwise, other.depthwise, share),
            batch=_whole_sizes(self.batch, other.batch, share),
            m=_whole_sizes(self.m, other.m, share),
            n=_whole_sizes(self.n, other.n, share),
            k=_whole_sizes(self.k, other.k, share),
        )

    def seconds(
        self,
        device: Device,
        rates: Rates,
        runtime: Runtime,
        precision: str,
        *,
        channels_first: bool = False,
        fp8: bool = False,
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return the seconds of each operator on a device, and whether memory bandwidth limits it.

        Args:
            device: Device with its peak rates.
            rates: Calibrated rates.
            runtime: Overheads of the framework.
            precision: Data type in which products of float32 values are computed, such as "tf32".
            channels_first: Whether images are stored channels first, so that matrix units need
                copies (default False).
            fp8: Whether 16-bit linear layers multiply in 8 bits (default False).
        """
        moved = self.bytes / (device.memory_gb_per_s * 1e9 * rates.memory)
        moved = np.where(self.gather, moved / rates.gather, moved)
        norm = np.where(self.half, runtime.half_batch_norm, runtime.batch_norm)
        moved = np.where(self.batch_norm, moved * norm, moved)
        if runtime.composed:
            moved *= self.composed
        if runtime.wide:
            moved = np.where(self.stays_wide & self.half, moved * 2, moved)
        loading = loading_tflops(device.tflops["float32"], device.processors) * 1e12
        products = self.depthwise / (loading * rates.vector * rates.depthwise)
        products *= np.where(self.half, runtime.depthwise / 2, runtime.depthwise)
        dtypes = np.where(self.linear, "float8", self.dtypes) if fp8 else self.dtypes
        peaks, vector = _peaks(dtypes, device, rates, precision)
        np.add.at(products, self.owner, self._products(device, rates, peaks, vector))
        limited = moved >= products
        factor = np.where(limited, runtime.memory, runtime.compute)
        gap = min(_GRAPH_GAP_US, rates.gap_us) if runtime.graphs else rates.gap_us
        seconds = np.maximum(products, moved) * factor + gap * 1e-6
        passes = _SCALED_PASSES * fp8 + _CAST_PASSES * runtime.wide
        cast = np.where(self.product & self.half, self.bytes * passes, 0.0)
        seconds += cast / (device.memory_gb_per_s * 1e9 * rates.memory) * runtime.memory
        if channels_first:
            copied = np.zeros(len(self.bytes))
            copied[self.owner[~vector]] = self.copied[self.owner[~vector]]
            seconds += copied / (device.memory_gb_per_s * 1e9 * rates.memory)
        return seconds, limited

    def _products(
        self, device: Device, rates: Rates, peaks: FloatArray, vector: npt.NDArray[np.bool_]
    ) -> FloatArray:
        flops = 2 * self.batch * self.m * self.n * self.k * self.fill
        windows = np.where(vector, rates.vector_windows, rates.matrix_windows)
        peaks = np.where(self.windows, peaks * windows, peaks)
        peaks = np.where(self.odd & ~vector, peaks * rates.odd, peaks)
        flops = np.where(np.isin(self.window, _WINOGRAD) & vector, flops / rates.winograd, flops)
        # Long sums, such as weight gradients, are split if there are few tiles.
        tiles = np.ceil(self.m / TILE) * np.ceil(self.n / TILE) * self.batch
        waves = tiles * np.maximum(1.0, np.floor(self.k / SPLIT)) / device.processors
        full = np.where(waves < 4, waves / np.ceil(waves), 1.0)
        edges = self.m / (np.ceil(self.m / 32) * 32) * self.n / (np.ceil(self.n / 32) * 32)
        half_sum = rates.half_sum
        if rates.vector_half_sum is not None:
            half_sum = np.where(vector, rates.vector_half_sum, half_sum)
        share = full * edges * self.k / (self.k + half_sum)
        return flops / (peaks * np.maximum(share, 1e-3))


def blend(one: FloatArray, two: FloatArray, share: float) -> FloatArray:
    """Interpolate linearly between two arrays, element by element.

    Args:
        one: Result if `share` is 0.
        two: Result if `share` is 1.
        share: Weight of `two`; the weight of `one` is 1 - `share`. A share below 0 or above 1
            extrapolates.
    """
    return one + (two - one) * share


def _whole_sizes(one: FloatArray, two: FloatArray, share: float) -> FloatArray:
    return np.maximum(1.0, np.rint(blend(one, two, share)))


def loading_tflops(float32_tflops: float, processors: int) -> float:
    """Return the TFLOP/s of depthwise convolutions, which load an operand per multiplication.

    Args:
        float32_tflops: Peak of the vector units in TFLOP/s, an upper bound of the result.
        processors: Number of processors (streaming multiprocessors).
    """
    return min(float32_tflops, processors * _LOADING_TFLOPS)


def _composed(name: str) -> float:
    return next((passes for part, passes in _COMPOSED.items() if part in name), 1.0)


def _narrow(operator: Operator) -> float:
    """Return the FLOPs of grouped convolutions, divided by the number of channels per group."""
    return sum(
        product.flops / max(1, min(product.n, product.m, product.k))
        for product in operator.products
    )


def _peaks(
    dtypes: npt.NDArray[np.str_], device: Device, rates: Rates, precision: str
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the reachable FLOP/s of each product, and whether vector units compute it."""
    peaks = np.empty(len(dtypes))
    saved = np.zeros(len(dtypes), dtype=np.bool_)
    for dtype in set(dtypes.tolist()):
        name = precision if dtype == "float32" else dtype
        rate, vector = peak(device, name, rates)
        peaks[dtypes == dtype] = rate
        saved[dtypes == dtype] = vector
    return peaks, saved


def peak(device: Device, dtype: str, rates: Rates) -> tuple[float, bool]:
    """Return the FLOP/s that large products reach, and whether vector units compute them.

    Args:
        device: Device with its peak rates; products in a data type that the device does not support
            run in float32.
        dtype: Data type: "float32", "tf32", "float16", "bfloat16" or "float8".
        rates: Calibrated rates.
    """
    tflops = device.tflops.get(dtype)
    vector = device.tflops["float32"]
    is_fast = (tflops or 0.0) >= 3 * vector
    if tflops is None or dtype == "float32" or not (is_fast or "bfloat16" in device.tflops):
        return (tflops or vector) * 1e12 * rates.vector, True
    if not is_fast:
        # The matrix units of GeForce are not faster than its vector units, so they reach the same
        # share.
        return tflops * 1e12 * rates.vector, False
    return tflops * 1e12 * (rates.tf32 if dtype == "tf32" else rates.matrix), False


def elapsed(seconds: FloatArray, issue: FloatArray) -> FloatArray:
    """Return the end time in seconds of each operator on a device whose kernels the host launches.

    An operator starts after its launch and after the end of the previous operator.

    Args:
        seconds: Duration of each operator on the device in seconds.
        issue: Time in seconds that the host takes to launch each operator.
    """
    issued = np.cumsum(issue)
    before = np.cumsum(seconds) - seconds
    return np.maximum.accumulate(issued - before) + before + seconds
