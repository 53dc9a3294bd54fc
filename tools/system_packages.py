"""Install or list the system packages that are needed to build and test Slipstream.

The script runs before any virtual environment exists, so it uses only the standard library. Each
package has a probe: a function that looks for a program, library or file of the package. Thanks to
the probes, the check works on any distribution.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A Debian package, its purpose, and a function that returns whether it is present."""

    name: str
    purpose: str
    present: Callable[[], bool]
    required: bool = True


def program(name: str) -> Callable[[], bool]:
    """Return a probe for an executable in PATH or /usr/sbin."""
    return lambda: shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") is not None


def library(name: str) -> Callable[[], bool]:
    """Return a probe for a library, by its pkg-config name."""

    def present() -> bool:
        tool = shutil.which("pkg-config")
        return tool is not None and subprocess.call([tool, "--exists", name]) == 0

    return present


def file(path: str | Path) -> Callable[[], bool]:
    """Return a probe for an existing file."""
    return Path(path).exists


def python_package(suffix: str) -> str:
    """Return the Debian package name for the running Python, such as python3.11-venv."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}-{suffix}"


GROUPS: dict[str, tuple[Package, ...]] = {
    "build": (
        Package("g++", "compiles the engine (11 or newer)", program("g++")),
        Package(
            "ccache",
            "compiles the common sources of package, tests and wheel once",
            program("ccache"),
            required=False,
        ),
        Package("pkg-config", "finds libraries", program("pkg-config")),
        Package("libhwy-dev", "vectorised reductions", library("libhwy")),
        Package("libssl-dev", "proof of the job key, TLS", library("openssl")),
        Package(
            python_package("dev"),
            "builds the Python module",
            file(Path(sysconfig.get_path("include")) / "Python.h"),
        ),
        Package(python_package("venv"), "makes .venv", lambda: find_spec("ensurepip") is not None),
    ),
    "test": (
        Package("libgtest-dev", "C++ tests", library("gtest")),
        Package("openssh-server", "tests of run -H", program("sshd"), required=False),
        Package("openssh-client", "tests of run -H", program("ssh"), required=False),
        Package("iproute2", "tests between network namespaces", program("ip"), required=False),
        Package("iputils-ping", "tests of the lab", program("ping"), required=False),
        Package("openmpi-bin", "tests, benchmarks", program("mpirun.openmpi"), required=False),
        Package("libopenmpi-dev", "benchmarks", program("mpicc.openmpi"), required=False),
        Package("mpich", "tests under mpiexec", program("mpiexec.mpich"), required=False),
        Package("chromium", "tests of HTML reports", program("chromium"), required=False),
        Package("tmux", "tests of clusters", program("tmux"), required=False),
        Package("rsync", "tests of clusters", program("rsync"), required=False),
        Package("podman", "tests of containers", program("podman"), required=False),
        Package("runc", "tests of containers", program("runc"), required=False),
        Package("faketime", "tests of clocks that differ", program("faketime"), required=False),
        Package("slurm-wlm", "tests under srun", program("slurmctld"), required=False),
        Package("munge", "tests under srun", program("munged"), required=False),
        Package(
            "pocketsphinx-testdata",
            "speech for tests of speech models",
            file("/usr/share/pocketsphinx/test/data/librivox"),
            required=False,
        ),
    ),
    "fuzz": (
        Package("clang-19", "fuzzers of wire parsers", program("clang++-19"), required=False),
        Package(
            "libclang-rt-19-dev",
            "libFuzzer and its sanitizers",
            file("/usr/lib/llvm-19/lib/clang/19/lib/linux"),
            required=False,
        ),
    ),
    "bench": (
        Package("libbenchmark-dev", "benchmarks of the engine's parts", library("benchmark")),
    ),
    "demo": (
        Package(
            "dataset-fashion-mnist",
            "the demo's images (otherwise it downloads them)",
            file("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"),
            required=False,
        ),
    ),
}


def missing_packages(groups: list[str]) -> list[Package]:
    """Return those packages of the named groups of `GROUPS` whose probes find nothing."""
    return [package for name in groups for package in GROUPS[name] if not package.present()]


def install(packages: list[Package]) -> None:
    """Install packages with apt-get; if an optional package does not exist, install the others."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.call(["apt-get", "update", "-q"], env=environment)
    required = [package.name for package in packages if package.required]
    optional = [package.name for package in packages if not package.required]
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
    if required:
        subprocess.call([*command, *required], env=environment)
    if optional and subprocess.call([*command, *optional], env=environment) != 0:
        for name in optional:
            subprocess.call([*command, name], env=environment)


def report(packages: list[Package]) -> None:
    """Print the missing packages, their purposes, and the command that installs them."""
    print("missing system packages (Debian and Ubuntu names):", file=sys.stderr)
    for package in packages:
        need = "required" if package.required else "optional"
        print(f"  {package.name:24} {need}: {package.purpose}", file=sys.stderr)
    names = " ".join(package.name for package in packages)
    print(f"install them with: sudo apt-get install {names}", file=sys.stderr)


def main() -> int:
    """Install or list missing packages; return 0 if all required packages are present."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="+", choices=sorted(GROUPS))
    groups = parser.parse_args().groups
    missing = missing_packages(groups)
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        install(missing)
        missing = missing_packages(groups)
    if missing:
        report(missing)
    return 1 if any(package.required for package in missing) else 0


if __name__ == "__main__":
    sys.exit(main())
