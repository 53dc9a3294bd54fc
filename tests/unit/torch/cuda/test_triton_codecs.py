"""Triton's kernels without a GPU: interpreted beside the reference, and compiled for one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed, so its kernels are not tried here")

from slipstream.torch.cuda.layouts import LAYOUTS, CodecLayout

ROOT = Path(__file__).parents[4]


@pytest.mark.slow("codecs of a GPU")
def test_interpreted_kernels_have_the_references_bits(tmp_path: Path) -> None:
    case = ["codecs", str(tmp_path), "triton", "cpu", "2177"]
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tools.gpu_check.case", *case],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    _, *rows = map(json.loads, ended.stdout.splitlines())
    assert {row["codec"] for row in rows} == set(LAYOUTS)
    assert all(row["wrong"] == 0 and row["cases"] for row in rows)


def compiled(layout: CodecLayout, kernel: str) -> str:
    """Return a kernel's code for an H100 as text."""
    from triton import compiler
    from triton.backends.compiler import GPUTarget

    from slipstream.torch.cuda import triton_codecs

    numbers = {"count": "i32", "num_tiles": "i32"}
    if kernel == "encode":
        function = triton_codecs.ENCODE[True]
        signature = {"values": "*fp32", "residuals": "*fp32", "to": "*u8", **numbers}
    else:
        function = triton_codecs.DECODE[True]
        signature = {"data": "*u8", "values": "*fp32", **numbers}
    constants = triton_codecs.constants_of(layout)
    if kernel == "encode":
        constants["FEEDBACK"] = True
    pointers = [i for i, kind in enumerate(signature.values()) if kind.startswith("*")]
    source = compiler.ASTSource(
        function,
        signature=signature | dict.fromkeys(constants, "constexpr"),
        constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i in pointers},
    )
    target = GPUTarget("cuda", 90, 32)
    return compiler.compile(source, target=target, options=triton_codecs.OPTIONS).asm["ptx"]


@pytest.mark.parametrize("kernel", ["encode", "decode"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_compiled_kernels_round_each_operation_and_keep_denormals(
    layout: CodecLayout, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    code = compiled(layout, kernel)
    assert not re.search(r"\bfma\b|\bmad\.\w*\.?f32|\.ftz|\bdiv\.(full|approx)", code)
    assert re.search(r"st\.global\.v4\.b32", code)
