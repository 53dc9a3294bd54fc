"""Choices and parsers that the commands of `slipstream forecast` share."""

from __future__ import annotations

import re
from enum import Enum

from slipstream.errors import UsageError

COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


class PrecisionChoice(str, Enum):
    """Data types of matrix products."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"


class OptimizerChoice(str, Enum):
    """Optimizers."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"


class CodecChoice(str, Enum):
    """Compression of gradients between hosts."""

    NONE = "none"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    ANY = "any"


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the sizes in a text such as `3,224,224`; raise UsageError for anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"the shape is {text!r}; allowed: sizes such as 3,224,224") from error


def parse_alone(text: str) -> tuple[float, int]:
    """Return samples per second and micro-batch from `410@64`; raise UsageError otherwise."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)@(\d+)", text.strip())
    if found is None:
        raise UsageError(
            f"alone is {text!r}; allowed: samples per second @ micro-batch, such as 410@64"
        )
    return float(found[1]), int(found[2])


def parse_count(text: str) -> float:
    """Return the number in `1.5T`, `15e12` or `300,000`; raise UsageError for anything else."""
    found = re.fullmatch(r"(\d[\d,]*(?:\.\d+)?(?:e\d+)?)\s*([kmbgt]?)", text.strip(), re.IGNORECASE)
    if found is None:
        raise UsageError(f"the number of tokens is {text!r}; allowed: numbers such as 1.5T, 15e12")
    return float(found[1].replace(",", "")) * COUNTS[found[2].lower()]


def parse_dollars(text: str) -> float:
    """Return the number in `500`, `$500` or `1,500`; raise UsageError for anything else."""
    found = re.fullmatch(r"\$?\s*(\d[\d,]*(?:\.\d+)?)", text.strip())
    if found is None:
        raise UsageError(f"the budget is {text!r}; allowed: dollars such as 500")
    return float(found[1].replace(",", ""))
