"""Make the virtual environment of a checkout, based on the Python that runs this script.

The new environment can import the PyTorch of this Python, even if this Python is in a virtual
environment itself. The script uses only the standard library.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

OUTER = "outer_environment.pth"


def has_torch(python: str | Path) -> bool:
    """Return whether a Python can import torch."""
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [python, "-c", "import torch"]
    return subprocess.call(command, env=environ, stderr=subprocess.DEVNULL) == 0


def link_outer_environment(inner: Path) -> None:
    """Let a new environment also import the packages of the current Python's environment.

    In the search order, the new environment's own packages come first. `--system-site-packages`
    would only include packages of the Python from which the current environment was made. The
    package folders of the current environment are added together with their .pth files, which
    editable installations need.
    """
    outer = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in outer]
    packages = subprocess.run(
        [inner / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(packages, OUTER).write_text("".join(lines))


def make(folder: Path) -> None:
    """Make the environment in a folder."""
    sees_torch = has_torch(sys.executable)
    print(f"making {folder}" + (f" with the PyTorch of {sys.executable}" if sees_torch else ""))
    try:
        venv.create(folder, system_site_packages=sees_torch, with_pip=True, symlinks=True)
    except BaseException:
        shutil.rmtree(
            folder, ignore_errors=True
        )  # otherwise the incomplete environment would look like a complete one
        raise
    if not sees_torch:
        return
    if sys.prefix != sys.base_prefix:
        link_outer_environment(folder)
    if not has_torch(folder / "bin" / "python"):
        print(f"the PyTorch of {sys.executable} cannot be imported from {folder}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    make(parser.parse_args().folder)
