"""Checks of the frameworks and the launchers; frameworks are not imported."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from importlib.metadata import (
    PackageNotFoundError,
    entry_points,
    packages_distributions,
    version,
)
from pathlib import Path

from slipstream.cli.findings.finding import Finding, State

FRAMEWORKS = ("torch", "numpy", "tensorflow", "jax", "mxnet")
_CUDA_OF_TORCH = re.compile(r"^cuda\b[^=]*= *'([^']+)'", re.MULTILINE)


def framework_findings(*, has_gpus: bool) -> list[Finding]:
    """Return the findings about the frameworks.

    Args:
        has_gpus: Whether this host has GPUs that a framework could use.
    """
    return [_torch(has_gpus), *(_framework(name) for name in FRAMEWORKS[1:])]


def launcher_findings() -> list[Finding]:
    """Return the findings about programs that start ranks."""
    return [_ssh(), _torchrun(), _program("mpirun", "openmpi-bin"), _program("srun", "slurm")]


def cuda_of_torch() -> str | None:
    """Return the CUDA version with which PyTorch was built, or None."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    built = Path(found.origin).with_name("version.py")
    match = _CUDA_OF_TORCH.search(built.read_text()) if built.is_file() else None
    return match[1] if match else None


def _torch(has_gpus: bool) -> Finding:
    finding = _framework("torch", "pip install 'torch>=2.6'")
    if finding.state != "ok":
        return finding
    cuda = cuda_of_torch()
    build = f"CUDA {cuda}" if cuda else "without CUDA"
    text = f"{finding.text}, {build}, {_torch_backend()}"
    if has_gpus and cuda is None:
        text = f"{text}; it cannot use the GPUs of this host"
        return _in_frameworks("torch", "wrong", text, "install a build for CUDA (pytorch.org)")
    return _in_frameworks("torch", "ok", text)


def _framework(name: str, remedy: str = "") -> Finding:
    if importlib.util.find_spec(name) is None:
        return _in_frameworks(name, "absent", "not installed", remedy)
    return _in_frameworks(name, "ok", _version_of(name))


def _in_frameworks(name: str, state: State, text: str, remedy: str = "") -> Finding:
    return Finding(topic="Frameworks", name=name, state=state, text=text, remedy=remedy)


def _version_of(module: str) -> str:
    """Return the version of the package that installs a module.

    The package may have another name: tensorflow-cpu installs the module tensorflow.
    """
    try:
        return version(module)
    except PackageNotFoundError:
        installed_by = packages_distributions().get(module)
        return version(installed_by[0]) if installed_by else "of unknown version"


def _torch_backend() -> str:
    names = [point.name for point in entry_points(group="torch.backends")]
    if "slipstream" in names:
        return 'backend "slipstream" registers itself'
    return 'backend "slipstream" only after import slipstream.torch'


def _ssh() -> Finding:
    program = _program("ssh", "openssh-client")
    if program.state != "ok":
        return program
    version_line = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    text = f"{version_line.split(',')[0].strip()}, {program.text}"
    return Finding(topic=program.topic, name=program.name, state="ok", text=text)


def _torchrun() -> Finding:
    beside = Path(sys.executable).with_name("torchrun")
    path = str(beside) if beside.exists() else shutil.which("torchrun")
    state: State = "ok" if path else "absent"
    return Finding(topic="Launchers", name="torchrun", state=state, text=path or "comes with torch")


def _program(name: str, package: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        remedy = f"apt install {package}" if package != "slurm" else ""
        text = "not found" if remedy else "not found; it comes with a Slurm cluster"
        return Finding(topic="Launchers", name=name, state="absent", text=text, remedy=remedy)
    return Finding(topic="Launchers", name=name, state="ok", text=path)
