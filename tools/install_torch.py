"""Install a CPU build of PyTorch in a Python environment that has no suitable PyTorch.

A build with CUDA takes gigabytes, and Slipstream's build and `make test` do not need CUDA.
Therefore pip also searches PyTorch's index of CPU builds (set TORCH_INDEX for another index, or to
an empty string for none). If the index of CPU builds cannot be reached, or if pip's default sources
have the same build, only the default sources are used.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
CPU_INDEX = os.environ.get("TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
# first version that reads a wheel's dependencies without downloading the wheel
LEAST_PIP = "pip>=23.2"
CONNECT_SECONDS = 8  # time limit in seconds for each address of the index
CUDA = re.compile(r"(nvidia|cuda)-")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A version of PyTorch that pip would install."""

    version: str
    has_cuda: bool


def torch_requirement() -> Requirement:
    """Return the requirement of torch in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^torch = \[.*"(torch[^"]*)"', text, re.MULTILINE)
    assert match is not None, "pyproject.toml has no extra named torch"
    return Requirement(match[1])


def installed_version(python: str) -> tuple[str | None, str]:
    """Return the torch version that an interpreter imports (or None), and the error message."""
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [python, "-c", "import torch; print(torch.__version__)"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    lines = (done.stdout if done.returncode == 0 else done.stderr).split("\n")
    last = ([line for line in lines if line] or ["no message"])[-1]
    return (last, "") if done.returncode == 0 else (None, last)


def pip(python: str, *arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `pip install` for a Python interpreter, with the versions in constraints.txt."""
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    constraints = ("-c", str(ROOT / "constraints.txt"))
    stream = subprocess.PIPE if quiet else None
    return subprocess.run(
        [*command, *constraints, *arguments], stdout=stream, stderr=stream, text=True, check=False
    )


def candidate(python: str, wanted: str, *options: str) -> tuple[Candidate | None, str]:
    """Return a pair: the torch that pip would install (or None), and pip's error message."""
    ask = ("--dry-run", "--no-deps", "--ignore-installed", "--report", "-")
    done = pip(python, *ask, *options, wanted, quiet=True)
    if done.returncode != 0:
        return None, done.stderr
    metadata = json.loads(done.stdout)["install"][0]["metadata"]
    needs = map(Requirement, metadata.get("requires_dist", []))
    has_cuda = any(
        CUDA.match(need.name) and (need.marker is None or need.marker.evaluate({"extra": ""}))
        for need in needs
    )
    return Candidate(version=metadata["version"], has_cuda=has_cuda), ""


def choose(python: str, wanted: str) -> tuple[str, tuple[str, ...]]:
    """Return a pair: the version to install, and the options with which pip finds it."""
    index = ("--extra-index-url", CPU_INDEX) if CPU_INDEX else ()
    quick = ("--retries", "0", "--timeout", str(CONNECT_SECONDS))
    found, message = candidate(python, wanted, *quick, *index)
    if found is None or not index:
        found, message = candidate(python, wanted)
    if found is None:
        raise SystemExit(f"{message}\nerror: pip finds no {wanted} for {python}")
    if not found.has_cuda:
        in_default_sources, _ = candidate(python, f"torch=={found.version}")
        return found.version, () if in_default_sources else index
    where = f"at {CPU_INDEX}" if index else "because TORCH_INDEX is empty"
    print(
        f"found no CPU build {where}; torch {found.version} has CUDA and is several gigabytes",
        file=sys.stderr,
    )
    return found.version, ()


def check(version: str, python: str) -> None:
    """Exit with an error if a version of torch is outside the allowed range."""
    allowed = torch_requirement().specifier
    if not allowed.contains(version, prereleases=True):
        raise SystemExit(
            f"error: {python} has torch {version}; Slipstream needs torch{allowed}. Upgrade it, or"
            f" install a newer one in front of it: {python} -m pip install 'torch{allowed}'"
        )


def main() -> None:
    """Install torch if it is missing, and check its version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="path of the environment's Python interpreter")
    python = parser.parse_args().python
    version, _ = installed_version(python)
    if version is None:
        if pip(python, LEAST_PIP).returncode != 0:
            raise SystemExit(f"error: {python} has no {LEAST_PIP}, and it cannot be installed")
        chosen, options = choose(python, str(torch_requirement()))
        print(f"installing torch {chosen}", flush=True)
        if pip(python, *options, f"torch=={chosen}").returncode != 0:
            raise SystemExit(f"error: torch {chosen} could not be installed")
        version, reason = installed_version(python)
        if version is None:
            raise SystemExit(f"error: torch was installed and cannot be imported: {reason}")
    check(version, python)


if __name__ == "__main__":
    main()
