"""The software of a published measurement, and the precision of its arithmetic.

A runtime is a variant of a framework that has its own overhead. The runtimes "pytorch",
"tensorflow1", "tensorflow2", "mxnet" and "paddle" also exist with the prefix "ngc-", for NVIDIA's
builds, which read input on the GPU. Further runtimes are "xla" (TensorFlow with its compiler),
"horovod" (TensorFlow 1 with Horovod as of 2017), "paddle-dali" (Paddle with NVIDIA DALI),
"oneflow", "megatron" (Megatron-DeepSpeed), "fsdp" (PyTorch that shards parameters), "fsdp-compile"
(FSDP with `torch.compile`), "byteps", "hugectr", "mindspore", "caffe", "caffe2" and "torch7".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from slipstream.forecast.hardware import Device
from slipstream.forecast.validate.row import TableRow

Precision = Literal["fp32", "tf32", "fp16", "bf16"]

# Patterns of frameworks; the first match decides. "DALI" and "NGC" are checked separately.
_RUNTIMES = (
    ("megatron|deepspeed", "megatron"),
    ("fsdp|torchtitan", "fsdp"),
    ("oneflow", "oneflow"),
    ("byteps", "byteps"),
    ("hugectr", "hugectr"),
    ("mindspore", "mindspore"),
    ("paddle", "paddle"),
    ("mxnet", "mxnet"),
    ("caffe2", "caffe2"),
    ("caffe", "caffe"),
    ("torch *[+] *ddl", "torch7"),
    ("tensorflow *v?2|tf2", "tensorflow2"),
    ("tensorflow *v?1|tf1", "tensorflow1"),
    ("horovod", "horovod"),
    (r"tensorflow|tensorpack|\btf\b", "tensorflow1"),
    ("pytorch|fastai|torch", "pytorch"),
)
_BUILT_BY_NVIDIA = ("pytorch", "tensorflow1", "tensorflow2", "mxnet", "paddle")

_PRECISIONS: tuple[tuple[str, Precision], ...] = (
    (r"fp8|float8|bf16|bfloat16", "bf16"),
    (r"\btf32\b", "tf32"),
    (r"\bamp\b|fp16|float16|mixed", "fp16"),
    (r"fp32|float32", "fp32"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """The software that ran a measured training.

    Args:
        runtime: Name of a runtime, as listed at the top of this module.
        precision: Precision of matrix products; a 16-bit precision means mixed precision.
        fp8: Whether linear layers multiply in 8 bits; all other products use `precision`.
        real_data: Whether the row states that training data were read and decoded during training.
        assumed: Names of the values above that the row does not state and that were assumed.
    """

    runtime: str
    precision: Precision
    fp8: bool
    real_data: bool
    assumed: tuple[str, ...]


def software(row: TableRow, device: Device, *, to_target: bool) -> Software:
    """Return the software that ran a measured training.

    Args:
        row: Published measurement, as a row of text.
        device: Device that ran the training.
        to_target: Whether the row states the time to reach an accuracy; such trainings usually
            compute in 16 bits.
    """
    runtime, assumed = _runtime(row)
    precision = _stated_precision(row)
    if precision is None:
        precision = _usual_precision(row, device, to_target=to_target)
        assumed += ("precision",)
    return Software(
        runtime=runtime,
        precision=precision,
        fp8=bool(re.search("fp8|float8", row.words)),
        real_data="real data" in row.words,
        assumed=assumed,
    )


def _runtime(row: TableRow) -> tuple[str, tuple[str, ...]]:
    text = row.framework.lower()
    # NVIDIA's BERT scripts for TensorFlow compile by default (use_xla in
    # NVIDIA/DeepLearningExamples, {TensorFlow,TensorFlow2}/LanguageModeling/BERT/scripts,
    # run_squad.sh and configs).
    compiled = "deeplearningexamples" in row.source.lower() and re.search(
        r"bert.*\btf[12]\b|bert.*tensorflow", f"{row.model} {text}".lower()
    )
    if "xla=yes" in row.words or "xla" in text or compiled:
        return "xla", ()
    runtime = next((name for pattern, name in _RUNTIMES if re.search(pattern, text)), None)
    if runtime is None:
        return "pytorch", ("runtime",)
    # torchtitan multiplies in 8 bits only if it compiles the model.
    words = "compile|fp8|float8" if "torchtitan" in f"{row.source} {text}".lower() else "compile"
    if runtime == "fsdp" and re.search(words, row.words):
        return "fsdp-compile", ()
    if runtime == "paddle" and "dali" in text:
        return "paddle-dali", ()
    if runtime in _BUILT_BY_NVIDIA and "ngc" in text:
        return f"ngc-{runtime}", ()
    return runtime, ()


def _stated_precision(row: TableRow) -> Precision | None:
    return next(
        (precision for pattern, precision in _PRECISIONS if re.search(pattern, row.words)), None
    )


def _usual_precision(row: TableRow, device: Device, *, to_target: bool) -> Precision:
    if re.search("llama|mpt-|fsdp|torchtitan", row.words):
        return "bf16"
    # TensorFlow before 1.9 and tensorpack's ImageNet example train in fp32.
    early = re.search(r"tensorpack|tensorflow *v?1\.[0-8]\b", row.words)
    has_units = (
        device.kind == "gpu" and device.tflops.get("float16", 0) > 4 * device.tflops["float32"]
    )
    return "fp16" if to_target and has_units and not early else "fp32"
