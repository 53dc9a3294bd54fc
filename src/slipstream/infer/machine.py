"""What is measured on: a machine and the versions of what runs on it."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from importlib.metadata import PackageNotFoundError, version

from pydantic import BaseModel, ConfigDict, Field

from slipstream.processor import processor_name

LARGE_BYTES = 2**30  # of a model's constants, from which no more copies are made than have to be
PACKAGES = ("slipstream", "numpy", "onnx", "onnxruntime", "openvino", "torch")


class Machine(BaseModel):
    """A machine as measurements name it.

    Args:
        processor: its model, as the system calls it.
        cores: that this process may use.
        system: kernel and architecture.
        versions: of Python and packages that measurements depend on.
    """

    model_config = ConfigDict(frozen=True)

    processor: str
    cores: int
    system: str
    versions: dict[str, str] = Field(default_factory=dict)


def this_machine() -> Machine:
    """The machine that this runs on."""
    versions = {name: found for name in PACKAGES if (found := _version(name)) is not None}
    return Machine(
        processor=processor_name(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"python": platform.python_version(), **versions},
    )


def usable_cores() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def give_memory_back() -> None:
    """Give memory that was freed back to the system: glibc keeps what is smaller than 32 MiB, and
    so the weights of a whole model."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
