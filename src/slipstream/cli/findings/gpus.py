"""Checks of the GPUs: which GPUs this host has, and whether collectives can use them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from slipstream.cli.findings.finding import Finding, State
from slipstream.errors import SlipstreamError
from slipstream.settings.cuda import cuda_connections
from slipstream.units import GIB

DRIVER = "libcuda.so.1"
DRIVER_VERSION = Path("/sys/module/nvidia/version")
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU of this host.

    Args:
        name: Name of the GPU's model.
        memory_bytes: Size of the GPU's memory in bytes.
        trouble: Reason why collectives cannot use the GPU; empty if they can.
    """

    name: str
    memory_bytes: int
    trouble: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpus:
    """The GPUs of this host, and their driver.

    Args:
        gpus: GPUs of this host, in the order of their CUDA ordinals.
        driver: Version of the GPU driver; empty if unknown.
        cuda: CUDA version that the driver supports; empty if unknown.
        trouble: Reason why the driver cannot be used; empty if it can.
    """

    gpus: tuple[Gpu, ...]
    driver: str = ""
    cuda: str = ""
    trouble: str = ""

    @classmethod
    def found(cls, library: str = DRIVER) -> Gpus:
        """Return the GPUs that the driver finds, after a trial of each GPU.

        Without a driver, return the GPUs that nvidia-smi lists, which collectives cannot use.

        Args:
            library: File name of the CUDA driver's library, for dlopen() (default libcuda.so.1).
        """
        try:
            from slipstream import _core  # imported here, because the doctor must work without it

            listed = _core.list_gpus(library)
        except (SlipstreamError, ImportError) as error:
            return cls(gpus=_listed_by_nvidia_smi(), driver=_driver_version(), trouble=str(error))
        major, minor = divmod(listed.cuda_version // 10, 100)
        gpus = (
            Gpu(name=gpu.name, memory_bytes=gpu.memory_bytes, trouble=_trial(ordinal, library))
            for ordinal, gpu in enumerate(listed.gpus)
        )
        return cls(gpus=tuple(gpus), driver=_driver_version(), cuda=f"{major}.{minor}")


def gpu_findings(found: Gpus, environ: Mapping[str, str]) -> list[Finding]:
    """Return the findings about the GPUs; without GPUs, one finding says so."""
    if not found.gpus:
        reason = found.trouble if found.driver else f"there is no CUDA driver ({DRIVER})"
        return [_gpu("GPU", "absent", f"none: {reason}")]
    if found.trouble:
        return [*_unusable(found), _nccl()]
    driver = f"{found.driver or 'version not known'}, for CUDA up to {found.cuda}"
    lines = [_line(ordinal, gpu) for ordinal, gpu in enumerate(found.gpus)]
    return [_gpu("driver", "ok", driver), *lines, _connections(environ), _nccl()]


def _trial(ordinal: int, library: str) -> str:
    from slipstream import _core

    try:
        _core.try_gpu(ordinal, library)
    except SlipstreamError as error:
        return str(error)
    return ""


def _driver_version() -> str:
    return DRIVER_VERSION.read_text().strip() if DRIVER_VERSION.is_file() else ""


def _listed_by_nvidia_smi() -> tuple[Gpu, ...]:
    if shutil.which(NVIDIA_SMI[0]) is None:
        return ()
    done = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, check=False)
    rows = re.findall(r"^(.+), (\d+)$", done.stdout, re.MULTILINE) if done.returncode == 0 else []
    return tuple(Gpu(name=name, memory_bytes=int(mebibytes) << 20) for name, mebibytes in rows)


def _line(ordinal: int, gpu: Gpu) -> Finding:
    text = f"{gpu.name}, {gpu.memory_bytes / GIB:.1f} GiB"
    if gpu.trouble:
        return _gpu(f"GPU {ordinal}", "wrong", f"{text}: {gpu.trouble}", "use tensors of the CPU")
    works = "streams wait for words of pinned host memory"
    return _gpu(f"GPU {ordinal}", "ok", f"{text}; {works}")


def _unusable(found: Gpus) -> list[Finding]:
    names = ", ".join(gpu.name for gpu in found.gpus)
    text = f"nvidia-smi lists {names}, but collectives cannot use them: {found.trouble}"
    remedy = f"give this container {DRIVER}, for instance with `docker run --gpus all`"
    return [_gpu("GPU", "wrong", text, remedy)]


def _connections(environ: Mapping[str, str]) -> Finding:
    name, value = "connections", cuda_connections(environ)
    if value is None:
        return _gpu(name, "ok", "CUDA_DEVICE_MAX_CONNECTIONS is not set")
    text = f"CUDA_DEVICE_MAX_CONNECTIONS={value}"
    if value.strip() != "1":
        return _gpu(name, "ok", text)
    remedy = "unset CUDA_DEVICE_MAX_CONNECTIONS, so that copies need not wait for one another"
    return _gpu(name, "wrong", f"{text}: all streams share one queue", remedy)


def _nccl() -> Finding:
    for package in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"):
        try:
            return _gpu("NCCL", "ok", f"{version(package)} ({package})")
        except PackageNotFoundError:
            continue
    return _gpu("NCCL", "absent", "no package of it is installed; PyTorch may contain it")


def _gpu(name: str, state: State, text: str, remedy: str = "") -> Finding:
    return Finding(topic="GPUs", name=name, state=state, text=text, remedy=remedy)
