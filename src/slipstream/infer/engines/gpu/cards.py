"""The GPUs of this machine, and the devices that users name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.engines.modules import missing, missing_gpu

PYTORCH = "pip install torch"
ALLOWED = "cpu, auto, cuda, or cuda:0 and so on"

# Number of calls that keep a GPU busy: the inputs of one are copied to it, one computes, and the
# results of one are copied back.
OVERLAPPED_RUNS = 3


@dataclass(frozen=True)
class DeviceChoice:
    """The devices on which a model may run.

    Args:
        kind: "cpu", "cuda", or "auto" (the default) for both.
        card: Number of the GPU in PyTorch; None (the default) if the user named none.
    """

    kind: Literal["cpu", "cuda", "auto"] = "auto"
    card: int | None = None

    def __str__(self) -> str:
        return self.kind if self.card is None else f"{self.kind}:{self.card}"


def parse_device(text: str) -> DeviceChoice:
    """Return the devices that a text names.

    Raises:
        UsageError: the text names no device, or this machine has no GPU of this number.
    """
    match = re.fullmatch(r"(cpu|auto|cuda)(?::([0-9]+))?", text.strip())
    if match is None or (match[2] and match[1] != "cuda"):
        raise UsageError(f"the device is {text!r}; allowed: {ALLOWED}")
    kind: Literal["cpu", "cuda", "auto"] = match[1]  # pyright: ignore[reportAssignmentType]
    card = int(match[2]) if match[2] else None
    if card is not None and missing_cuda() is None and card >= len(card_names()):
        raise UsageError(f"there is no {text}: the GPUs are {_numbered(card_names())}")
    return DeviceChoice(kind, card)


def missing_cuda() -> str | None:
    """Return None if PyTorch can use a GPU here, else the reason and a remedy."""
    reason = missing_gpu() or missing("torch", PYTORCH)
    if reason is not None:
        return reason
    import torch

    if torch.cuda.is_available():
        return None
    return "this PyTorch has no CUDA, or the driver is too old for it; see pytorch.org"


@cache
def card_names() -> tuple[str, ...]:
    """Return the names of the GPUs that PyTorch can use, in the order of their numbers."""
    if missing_cuda() is not None:
        return ()
    import torch

    return tuple(torch.cuda.get_device_name(card) for card in range(torch.cuda.device_count()))


def device_title(kind: str, card: int | None) -> str:
    """Return the words for the device of a loaded model: "cpu", or the number and name of a GPU."""
    if kind == "cpu":
        return "cpu"
    names, number = card_names(), card or 0
    return f"cuda:{number} ({names[number]})" if number < len(names) else f"cuda:{number}"


def require_card(device: str = "cuda") -> None:
    """Raise UnsupportedError if no GPU can be used; it names the device that the user asked for."""
    reason = missing_cuda()
    if reason is not None:
        raise UnsupportedError(f"the device is {device}: {reason}; or use --device cpu")


def _numbered(names: tuple[str, ...]) -> str:
    return ", ".join(f"cuda:{number} ({name})" for number, name in enumerate(names))
