"""Seconds that operators take on a device: a roofline with few fitted shares.

A product of matrices reaches a share of the device's peak that falls where tiles leave processors
idle (the last wave) and where its sum is short; all other operators move bytes. What the shares are
was fitted on published measurements (`slipstream.forecast.validate`).

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

Seconds = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]

# Rows and columns of a product that one processor computes at a time.
TILE = 128
# Sums longer than this are cut where there are fewer tiles than processors.
SPLIT = 1024
# Pixels of the windows, 3x3 and 5x5, that Winograd's algorithm is used for.
_WINOGRAD = (9, 25)
# Matrix units want channels last. Where images have them first, what a convolution reads and writes
# is copied before and after; in the backward pass the gradient of the output twice, once for each
# of the two products. ResNet-50 with 128 images on a V100 takes 152 ms so in 16 bits, 111 with
# channels last (github.com/sandeepkumar-skb/pytorch_experiments, torchvision_exp/README.md).
_COPIED = {TrainingPhase.FORWARD: 2.0, TrainingPhase.BACKWARD: 8 / 3}
# Passes over memory of functions that some frameworks write as sums and products, over those of one
# kernel, by their names.
_COMPOSED = {"gelu": 8.0, "dropout": 3.0, "layer_norm": 2.0}
# Norms read what they norm once more, to find its mean.
_PASSES = {OperatorKind.NORM: 1.5}
# TensorFlow and Paddle keep lists of what may run in 16 bits. Powers, means and what is on no list
# may not, nor what lies between them, so these functions move numbers of 32 bits, and each product
# casts: it reads 32 bits and writes 16 beside the 16 that it moves (tensorflow/core/grappler/
# optimizers/auto_mixed_precision_lists.h; paddle/fluid/contrib/mixed_precision/fp16_lists.py).
_KEPT_WIDE = ("gelu", "dropout", "tanh")
_CAST_PASSES = 3.0
# Shares of operators that selective checkpoints compute again: torchtitan keeps what attention and
# every second product give (torchtitan/distributed/activation_checkpoint.py, SelectiveAC).
_AGAIN = {OperatorKind.ATTENTION: 0.0, OperatorKind.PRODUCT: 0.5}
# A product in 8 bits first finds the largest number of both operands, then reads them again and
# writes them: 5 bytes over the 2 that it moves itself, for two of three matrices.
_SCALED_PASSES = 2.5 * 2 / 3
# Convolutions of one channel load for each multiplication, so the units that load are their limit.
# A processor is taken to load for as many lanes as V100 and A100 multiply with, 64, at 1.5 GHz.
# EfficientNets reach 0.4 to 0.6 TFLOP/s in fp32 on V100 as on A100, in 16 bits 0.4 to 1.3 there and
# 0.9 to 1.7 on RTX 3090, whose processors have twice the lanes (README of DeepLearningExamples,
# PyTorch/Classification/ConvNets/efficientnet; pytorch-image-models, results).
_LOADING_TFLOPS = 2 * 64 * 1.5e-3
# Between two kernels of a CUDA graph: 80 of them take 70 us with their own work
# (cuda.juliagpu.org/dev/usage/graphs).
_GRAPH_GAP_US = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of a device's peaks that kernels reach, of one kind of software.

    Args:
        matrix: of the peak of matrix units in 16 bit, 0 to 1.
        tf32: of that in TF32.
        vector: of the peak of vector units in fp32.
        matrix_windows: of what products reach on matrix units, that convolutions do.
        vector_windows: of what products reach in fp32, that convolutions do.
        memory: of the memory's rate.
        odd: of what products reach on matrix units in 16 bits, where rows begin at odd numbers.
        half_sum: length of a sum at which a product reaches half of its share, since each tile
            begins and ends.
        vector_half_sum: that on vector units; None: the same.
        gap_us: between two kernels.
        winograd: FLOPs saved, as a factor, by 3x3 convolutions of stride 1 in fp32.
        depthwise: share of `vector` that convolutions of one channel reach in fp32, where a
            processor has 64 lanes; twice that in 16 bits, and of more channels, as many times.
        gather: share of `memory` that rows of embeddings reach.
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
    """What a framework adds to its kernels.

    Args:
        name: of the framework, as in tables.
        forward_us: of the host, per operator of the forward pass.
        backward_us: of the host, per operator of the backward pass.
        collective_us: of the host, per collective in the forward and backward pass.
        step_ms: of the host, per step.
        update_us: of the host, for each parameter that the optimizer changes.
        memory: seconds of operators that only move bytes, as a factor; below 1 if they are fused.
        compute: seconds of products, as a factor.
        depthwise: seconds of convolutions of one channel, as a factor.
        batch_norm: seconds of batch norms, as a factor; they are taken to read their input twice.
        half_batch_norm: that in 16 bits.
        flash: attention is one kernel that keeps no scores.
        overlap: share of communication that runs beside the backward pass, 0 to 1.
        composed: functions such as GELU are several kernels, one for each sum and product.
        wide: functions between products stay in 32 bits where products are in 16.
        graphs: a step is issued at once, as a CUDA graph.
        sums: devices of a host add their gradients first where hosts serve, and as many hosts
            without devices serve.
        spread: of a rank's seconds from one micro-batch to the next, as a share of their mean; who
            waits for others waits for the last.
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
        """Returns how much longer the last of some ranks takes than one alone, as a factor.

        The largest of n normal numbers is about sqrt(2 ln n) standard deviations above their mean;
        the mean of m numbers has a sqrt(m)-th of the deviation of one.

        Args:
            ranks: that wait for each other.
            apart: micro-batches that each runs before it waits.
        """
        return 1 + self.spread * math.sqrt(2 * math.log(ranks) / apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Columns of numbers about the operators of a device, so that thousands are costed at once.

    Columns up to `backward` have one entry per operator; the columns after it have one entry per
    matrix product.

    Args:
        operators: Operators of a device, in order of execution.
        bytes: Bytes that an operator moves.
        depthwise: FLOPs of a grouped convolution, divided by the channels of a group; else 0.
        copied: Bytes that are copied if a convolution's images are stored channels first.
        composed: Factor on the bytes if the framework composes the function of several kernels.
        product: Whether the operator is a matrix product.
        cheap: Share of the operator that selective checkpointing computes again.
        kept_wide: Whether the function stays in 32 bits in some frameworks.
        gather: Whether the operator looks up rows of an embedding.
        batch_norm: Whether the operator is a batch norm.
        half: Whether the operator computes in 16 bits.
        backward: Whether the operator belongs to the backward pass.
        owner: Index of the operator of a product.
        batch: Number of equal products.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sum.
        window: Pixels of the convolution window.
        fill: Share of the products that is computed.
        windows: Whether the product is a convolution.
        odd: Whether rows begin at odd numbers.
        dtypes: Names of data types.
        linear: Whether the product is one of a linear layer in 16 bits.
    """

    operators: Sequence[Operator]
    bytes: Seconds
    depthwise: Seconds
    copied: Seconds
    composed: Seconds
    product: _Flags
    cheap: Seconds
    kept_wide: _Flags
    gather: _Flags
    batch_norm: _Flags
    half: _Flags
    backward: _Flags
    owner: npt.NDArray[np.int64]
    batch: Seconds
    m: Seconds
    n: Seconds
    k: Seconds
    window: Seconds
    fill: Seconds
    windows: _Flags
    odd: _Flags
    dtypes: npt.NDArray[np.str_]
    linear: _Flags

    @classmethod
    def of(cls, operators: Sequence[Operator]) -> Work:
        """Return the columns of operators, which are in order of execution."""
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
            kept_wide=np.array([any(name in op.name for name in _KEPT_WIDE) for op in operators]),
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
        """Returns the operators of another micro-batch.

        Args:
            other: the same operators with more samples.
            share: of the way to those, 0 to 1 and beyond.
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
    ) -> tuple[Seconds, npt.NDArray[np.bool_]]:
        """Returns the seconds that each operator takes on a device, and whether memory limits it.

        Args:
            device: with its peaks.
            rates: that are reached.
            runtime: of the framework.
            precision: that replaces "float32" of products, as "tf32" where that is on.
            channels_first: of images, which are copied where matrix units convolve them.
            fp8: linear layers in 16 bits multiply in 8.
        """
        moved = self.bytes / (device.memory_gb_per_s * 1e9 * rates.memory)
        moved = np.where(self.gather, moved / rates.gather, moved)
        norm = np.where(self.half, runtime.half_batch_norm, runtime.batch_norm)
        moved = np.where(self.batch_norm, moved * norm, moved)
        if runtime.composed:
            moved *= self.composed
        if runtime.wide:
            moved = np.where(self.kept_wide & self.half, moved * 2, moved)
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
        self, device: Device, rates: Rates, peaks: Seconds, vector: npt.NDArray[np.bool_]
    ) -> Seconds:
        flops = 2 * self.batch * self.m * self.n * self.k * self.fill
        windows = np.where(vector, rates.vector_windows, rates.matrix_windows)
        peaks = np.where(self.windows, peaks * windows, peaks)
        peaks = np.where(self.odd & ~vector, peaks * rates.odd, peaks)
        flops = np.where(np.isin(self.window, _WINOGRAD) & vector, flops / rates.winograd, flops)
        # Long sums are cut where there are few tiles: weight gradients.
        tiles = np.ceil(self.m / TILE) * np.ceil(self.n / TILE) * self.batch
        waves = tiles * np.maximum(1.0, np.floor(self.k / SPLIT)) / device.processors
        full = np.where(waves < 4, waves / np.ceil(waves), 1.0)
        edges = self.m / (np.ceil(self.m / 32) * 32) * self.n / (np.ceil(self.n / 32) * 32)
        half_sum = rates.half_sum
        if rates.vector_half_sum is not None:
            half_sum = np.where(vector, rates.vector_half_sum, half_sum)
        share = full * edges * self.k / (self.k + half_sum)
        return flops / (peaks * np.maximum(share, 1e-3))


def blend(one: Seconds, two: Seconds, share: float) -> Seconds:
    """Returns numbers that lie between others.

    Args:
        one: numbers.
        two: as many.
        share: of the way from one to two.
    """
    return one + (two - one) * share


def _whole_sizes(one: Seconds, two: Seconds, share: float) -> Seconds:
    return np.maximum(1.0, np.rint(blend(one, two, share)))


def loading_tflops(float32_tflops: float, processors: int) -> float:
    """Returns the 1e12 FLOP/s of a device that loads each number that it multiplies.

    Args:
        float32_tflops: 1e12 FLOP/s of its vector units, which it does not exceed.
        processors: number of its processors.
    """
    return min(float32_tflops, processors * _LOADING_TFLOPS)


def _composed(name: str) -> float:
    return next((passes for part, passes in _COMPOSED.items() if part in name), 1.0)


def _narrow(operator: Operator) -> float:
    """FLOPs of convolutions in groups, less as groups have more channels."""
    return sum(each.flops / max(1, min(each.n, each.m, each.k)) for each in operator.products)


def _peaks(
    dtypes: npt.NDArray[np.str_], device: Device, rates: Rates, precision: str
) -> tuple[Seconds, npt.NDArray[np.bool_]]:
    """FLOP/s that each product may reach, and whether it may take Winograd's algorithm."""
    peaks = np.empty(len(dtypes))
    saved = np.zeros(len(dtypes), dtype=np.bool_)
    for dtype in set(dtypes.tolist()):
        name = precision if dtype == "float32" else dtype
        rate, vector = peak(device, name, rates)
        peaks[dtypes == dtype] = rate
        saved[dtypes == dtype] = vector
    return peaks, saved


def peak(device: Device, dtype: str, rates: Rates) -> tuple[float, bool]:
    """Returns the FLOP/s that long products reach, and whether vector units compute them.

    Args:
        device: with its peaks; a dtype that it has not is computed in float32.
        dtype: "float32", "tf32", "float16", "bfloat16" or "float8".
        rates: that are reached.
    """
    known = device.tflops.get(dtype)
    vector = device.tflops["float32"]
    is_fast = (known or 0.0) >= 3 * vector
    if known is None or dtype == "float32" or not (is_fast or "bfloat16" in device.tflops):
        return (known or vector) * 1e12 * rates.vector, True
    if not is_fast:
        # GeForce's matrix units want no more than its vector units do, and are fed as well.
        return known * 1e12 * rates.vector, False
    return known * 1e12 * (rates.tf32 if dtype == "tf32" else rates.matrix), False


def elapsed(seconds: Seconds, issue: Seconds) -> Seconds:
    """Returns when each operator ends on a device that a host feeds: it starts when it was issued
    and the one before has ended.

    Args:
        seconds: of each operator on the device.
        issue: seconds of the host for each operator.
    """
    issued = np.cumsum(issue)
    before = np.cumsum(seconds) - seconds
    return np.maximum.accumulate(issued - before) + before + seconds
