"""Magika, a model that recognises the type of a file from its bytes."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from slipstream.bench.pretrained.case import Array, Pretrained, Run, Sample, Task
from slipstream.bench.pretrained.packages import package_file

MODEL = "models/standard_v3_3"
PADDING = 256  # value of missing bytes if a file is too short
# BLOCK bytes are read at the beginning and at the end of a file. Blanks at the outer ends are
# stripped, and the model sees PART bytes of each block.
BLOCK, PART = 4096, 1024
PER_KIND = 40
LARGEST = 64_000_000

# Types of files by suffix. Other suffixes of the same types are left out.
KINDS = {
    ".py": "python",
    ".pyc": "pythonbytecode",
    ".so": "elf",
    ".json": "json",
    ".toml": "toml",
    ".md": "markdown",
    ".html": "html",
    ".css": "css",
    ".js": "javascript",
    ".svg": "svg",
    ".xml": "xml",
    ".png": "png",
    ".jpg": "jpeg",
    ".gif": "gif",
    ".npy": "npy",
    ".npz": "npz",
    ".onnx": "onnx",
    ".exe": "pebin",
    ".proto": "proto",
    ".csv": "csv",
    ".yaml": "yaml",
    ".wav": "wav",
    ".sh": "shell",
    ".cc": "cpp",
    ".c": "c",
}


@cache
def labels() -> list[str]:
    """Return the names of the file types that the model predicts, in the order of its classes."""
    config = json.loads(package_file("magika", f"{MODEL}/config.min.json").read_text())
    return list(config["target_labels_space"])


def features(path: Path) -> Array:
    """Return the model's input for a file, from its first and last bytes: int32 (1, 2048)."""
    with path.open("rb") as stream:
        begin = stream.read(BLOCK)
        stream.seek(max(path.stat().st_size - BLOCK, 0))
        end = stream.read(BLOCK)
    result = np.full((1, 2 * PART), PADDING, np.int32)
    begin, end = begin.lstrip()[:PART], end.rstrip()[-PART:]
    result[0, : len(begin)] = np.frombuffer(begin, np.uint8)
    result[0, 2 * PART - len(end) :] = np.frombuffer(end, np.uint8)
    return result


@cache
def known_files() -> tuple[tuple[Path, int], ...]:
    """Return files of Python's library and of the installed packages, with their classes.

    There are up to 40 files of each type, each from a different folder.
    """
    roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platlib")]
    paths_of: dict[str, dict[Path, Path]] = {suffix: {} for suffix in KINDS}
    for path in _files(roots):
        paths_of[path.suffix].setdefault(path.parent, path)
    classes = labels()
    files: list[tuple[Path, int]] = []
    for suffix, by_folder in paths_of.items():
        order = np.random.default_rng(0).permutation(len(by_folder))[:PER_KIND]
        paths = list(by_folder.values())
        files += [(paths[int(number)], classes.index(KINDS[suffix])) for number in order]
    return tuple(files)


def _files(roots: list[Path]) -> Iterator[Path]:
    for root in roots:
        for path in sorted(root.rglob("*")):
            is_kind = path.suffix in KINDS and path.is_file()
            if is_kind and 64 <= path.stat().st_size <= LARGEST:
                yield path


def _task(is_short: bool) -> Task:
    files = known_files()[:: 4 if is_short else 1]
    samples: list[Sample] = [({"bytes": features(path)}, kind) for path, kind in files[::2]]
    held_out = files[1::2]

    def judge(run: Run) -> float:
        right = [
            next(iter(run({"bytes": features(path)}).values())).argmax() == kind
            for path, kind in held_out
        ]
        return float(np.mean(right))

    return Task(_shuffled(samples), judge)


def _shuffled(samples: list[Sample]) -> list[Sample]:
    """Shuffle samples, so that the first ones, which calibrate the model, have all file types."""
    return [samples[number] for number in np.random.default_rng(1).permutation(len(samples))]


FILE_TYPES = Pretrained(
    name="file-types",
    title="Magika 1.0",
    package="magika",
    licence="Apache-2.0",
    measure="kinds of files that agree with their endings",
    model=lambda: package_file("magika", f"{MODEL}/model.onnx"),
    task=_task,
    shapes={"bytes": (1, 2 * PART)},
)
