"""Codecs of float32 tensors: Triton kernels on a GPU, plain PyTorch elsewhere or without Triton.

All kernels write the same bytes as the engine's codecs, for all lengths and all inputs: infinities,
NaN, denormals and zeros of both signs. A tensor may be cut at multiples of a codec's block without
a change of the bytes. So a CPU can decode what a GPU has encoded, and the other way round.

The functions enqueue work on the current stream of the tensor's device and never wait for it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from typing import Protocol, cast

import torch

from slipstream.errors import UsageError
from slipstream.torch.cuda import torch_codecs
from slipstream.torch.cuda.layouts import LAYOUTS, CodecLayout

_log = logging.getLogger(__name__)

_ALIGNMENT = 4  # bytes; scales have 4 bytes, and blocks are multiples of 4 bytes
_TRITON = "slipstream.torch.cuda.triton_codecs"


class CodecKernels(Protocol):
    """The interface of a module with the kernels of all codecs."""

    def encode(
        self,
        layout: CodecLayout,
        tensor: torch.Tensor,
        out: torch.Tensor,
        residual: torch.Tensor | None = None,
    ) -> None:
        """Encode a tensor."""
        ...

    def decode(self, layout: CodecLayout, data: torch.Tensor, out: torch.Tensor) -> None:
        """Decode bytes."""
        ...


def encode(
    codec: str, tensor: torch.Tensor, out: torch.Tensor, residual: torch.Tensor | None = None
) -> None:
    """Encode a tensor, with error feedback if there is a residual.

    With Triton this is one kernel, which writes directly to `out`.

    Args:
        codec: Name of the codec: fp16, bf16 or int8.
        tensor: Contiguous float32 values of any shape.
        out: Contiguous uint8 tensor of `encoded_bytes` elements, aligned to 4 bytes, on the
            tensor's device or in pinned host memory. The bytes are valid once the stream has run
            the kernel that encodes them.
        residual: Contiguous float32 tensor with the rounding errors of earlier calls, one for each
            value. They are added to the values, and replaced by the errors of this call; the error
            of a value that is not finite stays unchanged. Default: None, no error feedback.

    Raises:
        UsageError: The codec is unknown, or a tensor has another type, size or alignment.
    """
    layout = _layout(codec)
    _check_values("tensor", tensor)
    _check_bytes("out", out, layout, tensor.numel())
    if residual is not None:
        _check_values("residual", residual)
        if residual.numel() != tensor.numel() or residual.device != tensor.device:
            raise UsageError(
                f"residual has {residual.numel()} elements on {residual.device}, tensor "
                f"{tensor.numel()} on {tensor.device}; they must be the same"
            )
    if tensor.numel() == 0:
        return
    with torch.cuda.device_of(tensor):
        kernels_for(tensor.device).encode(layout, tensor, out, residual)


def decode(codec: str, data: torch.Tensor, out: torch.Tensor) -> None:
    """Decode bytes that `encode` or the engine wrote.

    Args:
        codec: Name of the codec: fp16, bf16 or int8.
        data: Contiguous uint8 tensor of `encoded_bytes` elements, aligned to 4 bytes, on the device
            of `out` or in pinned host memory. The bytes must not change until the stream has run
            the kernel that decodes them.
        out: Contiguous float32 tensor for the values, of any shape.

    Raises:
        UsageError: The codec is unknown, or a tensor has another type, size or alignment.
    """
    layout = _layout(codec)
    _check_values("out", out)
    _check_bytes("data", data, layout, out.numel())
    if out.numel() == 0:
        return
    with torch.cuda.device_of(out):
        kernels_for(out.device).decode(layout, data, out)


def encoded_bytes(codec: str, count: int) -> int:
    """Return the size in bytes of `count` encoded values.

    Raises:
        UsageError: The codec is unknown.
    """
    return _layout(codec).encoded_bytes(count)


def prepare(codec: str, device: torch.device) -> None:
    """Compile and load all kernels of a codec.

    Without `prepare`, the first call of a kernel compiles the kernel, which takes seconds. In
    addition, a GPU loads no kernel while one of its streams waits for the host.

    Raises:
        UsageError: The codec is unknown.
    """
    count = 2 * _layout(codec).block + 1
    num_bytes = encoded_bytes(codec, count)
    for offset in (0, 1):
        values = torch.zeros(offset + count, device=device)[offset:]
        data = torch.zeros(4 * offset + num_bytes, dtype=torch.uint8, device=device)[4 * offset :]
        encode(codec, values, data)
        encode(codec, values, data, torch.zeros_like(values))
        decode(codec, data, values)


@functools.cache
def kernels_for(device: torch.device) -> CodecKernels:
    """Return the kernels for tensors of a device.

    The first call for a GPU runs one of Triton's kernels. If this fails, because Triton is missing,
    does not support the GPU or finds no C compiler, PyTorch's kernels are used.
    """
    plain = cast(CodecKernels, torch_codecs)
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return plain
    try:
        kernels = cast(CodecKernels, importlib.import_module(_TRITON))
        kernels.encode(
            LAYOUTS["bf16"],
            torch.zeros(1, device=device),
            torch.zeros(2, dtype=torch.uint8, device=device),
        )
    except Exception as error:  # noqa: BLE001  whatever a compiler and its tools raise
        _log.warning("Triton's kernels do not run on %s, PyTorch's do: %s", device, error)
        return plain
    return kernels


def _layout(codec: str) -> CodecLayout:
    if codec not in LAYOUTS:
        raise UsageError(f"codec is {codec!r}; allowed: {', '.join(LAYOUTS)}")
    return LAYOUTS[codec]


def _check_values(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype != torch.float32 or not tensor.is_contiguous():
        contiguous = "contiguous" if tensor.is_contiguous() else "not contiguous"
        raise UsageError(f"{name} is {tensor.dtype} and {contiguous}; pass contiguous float32")


def _check_bytes(name: str, tensor: torch.Tensor, layout: CodecLayout, count: int) -> None:
    expected = layout.encoded_bytes(count)
    if tensor.dtype != torch.uint8 or not tensor.is_contiguous() or tensor.numel() != expected:
        raise UsageError(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}; {count} values in "
            f"{layout.name} take {expected} contiguous elements of torch.uint8"
        )
    if tensor.data_ptr() % _ALIGNMENT:
        raise UsageError(
            f"{name} begins {tensor.data_ptr() % _ALIGNMENT} bytes after a multiple of "
            f"{_ALIGNMENT}; cut buffers at multiples of {_ALIGNMENT} bytes"
        )
