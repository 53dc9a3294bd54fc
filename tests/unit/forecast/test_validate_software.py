"""Software of rows, and the numbers in which it multiplies where they do not say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstream.forecast.hardware import load
from slipstream.forecast.validate.row import TableRow
from slipstream.forecast.validate.software import Software, software

RowOf = Callable[..., TableRow]


def _software(row: TableRow, gpu: str = "V100", *, to_target: bool = False) -> Software:
    return software(row, load().device(gpu), to_target=to_target)


@pytest.mark.parametrize(
    ("source", "model", "framework", "runtime"),
    [
        ("torchtitan", "Llama3-8B", "torchtitan", "fsdp"),
        ("torchtitan", "Llama3-8B", "torchtitan float8", "fsdp-compile"),
        ("llm-foundry", "MPT-7b", "FSDP fp8", "fsdp"),
        ("llm-foundry", "MPT-7b", "FSDP torch.compile", "fsdp-compile"),
        ("Dell", "BERT-Large", "TensorFlow 1.15", "tensorflow1"),
        ("NVIDIA DeepLearningExamples", "BERT-Large", "TensorFlow 1.15", "xla"),
        ("NVIDIA DeepLearningExamples", "BERT-Large", "NGC TF2", "xla"),
        ("NVIDIA DeepLearningExamples", "ResNet-50", "NGC TF2", "ngc-tensorflow2"),
        ("Dell", "Wide&Deep XLA=yes", "NGC TF2", "xla"),
        ("Dell", "Wide&Deep XLA=no", "NGC TF2", "ngc-tensorflow2"),
        ("Dell", "ResNet-50", "NGC OneFlow", "oneflow"),
        ("Dell", "ResNet-50", "Megatron + NGC PyTorch", "megatron"),
        ("Dell", "ResNet-50", "Caffe", "caffe"),
        ("Dell", "ResNet-50", "tf 1.0", "tensorflow1"),
    ],
)
def test_runtimes_are_told_apart(
    row_of: RowOf, source: str, model: str, framework: str, runtime: str
):
    found = _software(row_of(source=source, model=model, framework=framework))
    assert (found.runtime, "runtime" in found.assumed) == (runtime, False)


@pytest.mark.parametrize(
    ("words", "precision", "fp8"),
    [
        ("fp8", "bf16", True),
        ("float8", "bf16", True),
        ("bfloat16", "bf16", False),
        ("TF32", "tf32", False),
        ("AMP", "fp16", False),
        ("mixed precision", "fp16", False),
        ("float32", "fp32", False),
    ],
)
def test_stated_precisions(row_of: RowOf, words: str, precision: str, fp8: bool):
    found = _software(row_of(model=f"ResNet-50 {words}"))
    assert (found.precision, found.fp8, found.assumed) == (precision, fp8, ())


@pytest.mark.parametrize(
    ("model", "framework", "gpu", "to_target", "precision"),
    [
        ("ResNet-50", "PyTorch", "V100", False, "fp32"),
        ("ResNet-50", "PyTorch", "V100", True, "fp16"),
        ("ResNet-50", "PyTorch", "P100", True, "fp32"),
        ("ResNet-50", "PyTorch", "Xeon-8124M-2S", True, "fp32"),
        ("ResNet-50", "tensorpack 0.8", "V100", True, "fp32"),
        ("ResNet-50", "TensorFlow 1.8", "V100", True, "fp32"),
        ("ResNet-50", "TensorFlow 1.9", "V100", True, "fp16"),
        ("ResNet-50", "TensorFlow 1.14", "V100", True, "fp16"),
        ("Llama2-7B", "PyTorch", "V100", False, "bf16"),
        ("MPT-7b", "PyTorch", "A100", False, "bf16"),
        ("ResNet-50", "FSDP", "A100", False, "bf16"),
    ],
)
def test_usual_precisions(
    row_of: RowOf, model: str, framework: str, gpu: str, to_target: bool, precision: str
):
    found = _software(row_of(model=model, framework=framework), gpu, to_target=to_target)
    assert (found.precision, found.assumed) == (precision, ("precision",))


def test_real_data_are_read_meanwhile(row_of: RowOf):
    assert _software(row_of(framework="PyTorch real data")).real_data
    assert not _software(row_of(framework="PyTorch synthetic data")).real_data
