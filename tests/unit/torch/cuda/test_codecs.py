"""The codecs of tensors: their checks, and PyTorch's kernels beside the reference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpu_check.codecs import bits as sweep  # noqa: E402

from slipstream.codecs import CODECS, LOSSY  # noqa: E402
from slipstream.errors import UsageError  # noqa: E402
from slipstream.torch.cuda import codecs  # noqa: E402
from slipstream.torch.cuda.layouts import LAYOUTS  # noqa: E402

CPU = torch.device("cpu")
SOURCES = Path(codecs.__file__).parents[3]


def zeros(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a tensor of zeros."""
    return torch.zeros(count, dtype=dtype)


def test_layouts_are_the_engines() -> None:
    assert LAYOUTS.keys() <= set(LOSSY)  # a codec may lack kernels for tensors
    for name, layout in LAYOUTS.items():
        traits = CODECS[name]
        assert layout.block == traits.block
        assert layout.header_bytes == traits.header_bytes
        assert layout.element_bytes == traits.element_bytes


@pytest.mark.parametrize(
    ("codec", "count", "num_bytes"),
    [
        ("fp16", 0, 0),
        ("fp16", 1, 6),
        ("fp16", 2049, 4106),
        ("bf16", 5, 10),
        ("int8", 128, 132),
        ("int8", 129, 137),
    ],
)
def test_encoded_bytes(codec: str, count: int, num_bytes: int) -> None:
    assert codecs.encoded_bytes(codec, count) == num_bytes


@pytest.mark.parametrize("counts", ["1,2,3,127,128,129", "2047,2048,2049,4097"])
def test_bits_of_pytorchs_kernels_are_the_references(counts: str) -> None:
    start, *rows = sweep.measure(["torch", "cpu", counts])
    assert start == {"kernels": "torch", "version": torch.__version__}
    assert {row["codec"] for row in rows} == set(LAYOUTS)
    assert all(row["wrong"] == 0 and row["cases"] for row in rows)


def test_a_wrong_bit_is_found() -> None:
    class Broken:
        """Kernels that lose the sign of a zero."""

        @staticmethod
        def encode(layout: Any, tensor: Any, out: Any, residual: Any = None) -> None:
            sweep.load_kernels("torch").encode(layout, tensor + 0.0, out, residual)

        @staticmethod
        def decode(layout: Any, data: Any, out: Any) -> None:
            sweep.load_kernels("torch").decode(layout, data, out)

    place = sweep.Place("cpu", memory="device", offset=0)
    found = sweep.wrong_results(Broken, "bf16", "zeros", 100, place)
    assert found == ["encoded", "decoded", "encoded sum"]


@pytest.mark.parametrize("codec", LAYOUTS)
def test_what_arrives_and_what_was_lost_are_the_values(codec: str) -> None:
    values = torch.randn(50, 60)
    data = torch.empty(codecs.encoded_bytes(codec, 3000), dtype=torch.uint8)
    residual, arrived = torch.zeros_like(values), torch.empty_like(values)
    codecs.encode(codec, values, data, residual)
    codecs.decode(codec, data, arrived)
    assert residual.abs().max() > 0
    torch.testing.assert_close(arrived + residual, values, rtol=2e-7, atol=2e-7)


def test_nothing_is_encoded_to_nothing() -> None:
    codecs.encode("fp16", zeros(0), zeros(0, torch.uint8))
    codecs.decode("fp16", zeros(0, torch.uint8), zeros(0))


def test_all_kernels_can_be_prepared() -> None:
    for codec in LAYOUTS:
        codecs.prepare(codec, CPU)


@pytest.mark.parametrize(
    ("codec", "tensor", "out", "message"),
    [
        ("fp8", zeros(4), zeros(8, torch.uint8), "codec is 'fp8'; allowed: fp16, bf16, int8$"),
        ("bf16", zeros(4).double(), zeros(8, torch.uint8), "tensor is torch.float64 and contig"),
        ("bf16", zeros(8)[::2], zeros(8, torch.uint8), "torch.float32 and not contiguous; pass"),
        ("bf16", zeros(4), zeros(9, torch.uint8), r"of shape \(9,\); 4 values in bf16 take 8 "),
        ("bf16", zeros(4), zeros(8, torch.int8), r"out is torch.int8 .* take 8 .* torch.uint8"),
        ("bf16", zeros(4), zeros(9, torch.uint8)[1:], "out begins 1 bytes after a multiple of 4"),
    ],
)
def test_wrong_tensors_are_refused(
    codec: str, tensor: torch.Tensor, out: torch.Tensor, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        codecs.encode(codec, tensor, out)


def test_a_residual_has_a_loss_for_each_value() -> None:
    with pytest.raises(UsageError, match="residual has 3 elements on cpu, tensor 4 on cpu"):
        codecs.encode("bf16", zeros(4), zeros(8, torch.uint8), zeros(3))


def test_decoding_checks_the_same() -> None:
    with pytest.raises(UsageError, match=r"data is torch.uint8 of shape \(7,\)"):
        codecs.decode("bf16", zeros(7, torch.uint8), zeros(4))
    with pytest.raises(UsageError, match=r"out is torch\.int32"):
        codecs.decode("bf16", zeros(8, torch.uint8), zeros(4, torch.int32))


@pytest.mark.slow("codecs of a GPU")
def test_neither_triton_nor_the_engine_is_needed() -> None:
    script = """
import sys
sys.modules["triton"] = None
import torch
from slipstream.torch.cuda import codecs
codecs.prepare("int8", torch.device("cpu"))
assert "slipstream._core" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=SOURCES, check=True)
