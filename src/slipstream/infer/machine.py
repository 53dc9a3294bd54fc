"""Description of the machine that runs measurements, and of the versions of its packages."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from importlib.metadata import PackageNotFoundError, version

from pydantic import BaseModel, ConfigDict, Field

from slipstream.processor import processor_name

# Total size in bytes of a model's constants from which copies of them are avoided. Chosen by hand,
# not measured.
LARGE_BYTES = 2**30
PACKAGES = ("slipstream", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "openvino", "torch")


class Machine(BaseModel):
    """The machine on which a measurement was made.

    Args:
        processor: Model of the processor, as the system names it.
        cores: Number of cores that the measured process may use.
        system: Name and release of the operating system's kernel, and the processor architecture.
        gpus: Names of the GPUs that PyTorch can use (default: empty; there is none).
        versions: Versions of Python and of the packages that measurements depend on.
    """

    model_config = ConfigDict(frozen=True)

    processor: str
    cores: int
    system: str
    gpus: tuple[str, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)


def this_machine() -> Machine:
    """Return the machine that runs this process."""
    from slipstream.infer.engines.gpu.cards import card_names  # engines use this module

    versions = {name: text for name in PACKAGES if (text := _version(name)) is not None}
    return Machine(
        gpus=card_names(),
        processor=processor_name(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions={"python": platform.python_version(), **versions},
    )


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def give_memory_back() -> None:
    """Return freed memory to the operating system.

    Without this call, glibc keeps freed blocks of less than 32 MiB for reuse. Together, these
    blocks can be as large as all weights of a model.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
