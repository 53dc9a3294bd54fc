"""Build of host_loops.cc (C++ loops that run on the CPU) and of kernels.cu (for the GPU)."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
LOOPS = HERE / "host_loops.cc"
KERNELS = HERE / "kernels.cu"


class BuildError(RuntimeError):
    """A compiler is missing or failed."""


def run_compiler(command: list[str], name: str) -> None:
    """Run a compiler.

    Args:
        command: Compiler and its options.
        name: Name of the source, for messages.

    Raises:
        BuildError: The compiler is missing or failed.
    """
    if shutil.which(command[0]) is None:
        raise BuildError(f"{command[0]} is not installed, and {name} needs it")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BuildError(f"{command[0]} failed on {name}:\n{ended.stderr}")


def compile_once(source: Path, folder: Path, suffix: str, command: list[str]) -> Path:
    """Compile a source unless this was done before; return the path of the compiled file.

    The name of the file has a digest of the source and of the command.

    Args:
        source: Source file.
        folder: Folder for the built files.
        suffix: Ending of the file's name.
        command: Compiler and its options.
    """
    key = hashlib.sha256(source.read_bytes() + " ".join(command).encode()).hexdigest()[:16]
    target = folder / f"{source.stem}-{key}{suffix}"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    run_compiler([*command, str(source), "-o", str(part)], source.name)
    part.replace(target)
    return target


def build_loops(folder: Path) -> Path:
    """Return the path of the shared library built from host_loops.cc."""
    options = ["-std=c++20", "-O2", "-shared", "-fPIC", "-pthread"]
    return compile_once(LOOPS, folder, ".so", ["g++", *options])


def build_kernels(folder: Path, capability: int) -> Path:
    """Return the path of the cubin file built from kernels.cu.

    Args:
        folder: Folder for the built files.
        capability: Compute capability of the GPU times ten (90 for an H100).
    """
    return compile_once(KERNELS, folder, ".cubin", ["nvcc", "-cubin", f"-arch=sm_{capability}"])
