"""A wheel of the Slipstream that is running, for hosts that have none of their own.

An installed package is its files and its metadata, so a wheel can be made of them again. This works
for a normal and for an editable installation.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import threading
import zipfile
from functools import cache
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

from slipstream.errors import UnsupportedError

_SKIPPED = ("__pycache__",)


_lock = threading.Lock()


def build_own_wheel(python: tuple[int, ...], machine: str) -> Path:
    """Return the path of a wheel of this Slipstream, which is made once for this process.

    Args:
        python: Version of Python on the host, such as (3, 11).
        machine: Kind of processor of the host, such as "x86_64".

    Raises:
        UnsupportedError: the compiled parts of this installation do not run there.
    """
    own = distribution("slipstream")
    tag = _tag(own)
    _check(tag, python, machine)
    with _lock:  # hosts are prepared at the same time, and all of them get the same wheel
        return _build(tag)


@cache
def _build(tag: str) -> Path:
    own = distribution("slipstream")
    name = f"slipstream-{own.version}"
    folder = Path(tempfile.mkdtemp(prefix="slipstream-wheel-"))
    path = folder / f"{name}-{tag}.whl"
    records: list[str] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:

        def add(member: str, data: bytes) -> None:
            wheel.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{member},sha256={digest},{len(data)}")

        for member, source in sorted(_files().items()):
            add(member, source.read_bytes())
        info = f"{name}.dist-info"
        add(f"{info}/METADATA", (own.read_text("METADATA") or "").encode())
        add(f"{info}/WHEEL", _wheel_file(tag))
        add(f"{info}/entry_points.txt", (own.read_text("entry_points.txt") or "").encode())
        wheel.writestr(f"{info}/RECORD", "\n".join([*records, f"{info}/RECORD,,", ""]))
    return path


def _files() -> dict[str, Path]:
    """Return the files of the package by their names in the wheel; compiled ones may lie apart."""
    files: dict[str, Path] = {}
    for folder in _folders():
        for path in folder.rglob("*"):
            if path.is_file() and not any(part in _SKIPPED for part in path.parts):
                files[f"slipstream/{path.relative_to(folder)}"] = path
    return files


def _folders() -> list[Path]:
    spec = find_spec("slipstream._core")
    package = find_spec("slipstream")
    assert spec is not None
    assert spec.origin is not None
    assert package is not None
    assert package.origin is not None
    return list(dict.fromkeys([Path(spec.origin).parent, Path(package.origin).parent]))


def _tag(own: Distribution) -> str:
    for line in (own.read_text("WHEEL") or "").splitlines():
        if line.startswith("Tag: "):
            return line.removeprefix("Tag: ").strip()
    raise UnsupportedError(
        "this Slipstream was not installed by pip, so it cannot be brought to other hosts; install"
        " it with pip, or set software.environment: existing"
    )


def _wheel_file(tag: str) -> bytes:
    text = f"Wheel-Version: 1.0\nGenerator: slipstream\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return text.encode()


def _check(tag: str, python: tuple[int, ...], machine: str) -> None:
    interpreter, abi, platform = tag.split("-", 2)
    here = int(interpreter.removeprefix("cp3"))
    fits = python[1] >= here if abi == "abi3" else python[1] == here
    if not fits or machine not in platform:
        raise UnsupportedError(
            f"this Slipstream is built for Python 3.{here} on {platform}, and the host has"
            f" Python 3.{python[1]} on {machine}; name another Python in software.python, or"
            " install Slipstream there and set software.environment: existing"
        )
