"""model.slip: a plain zip of a graph, the recipe to run it by, and how both were found.

    manifest.json   what it is, what it takes and gives, the recipe, and every other member with its
                    size and SHA-256
    model.onnx      the graph that the recipe runs, after the rewrites (operators of ours are of the
                    domain "slipstream"); or source.onnx, the graph as it was imported
    weights-0.bin   and so on: its large constants, which ONNX calls external data. They are int8,
                    bfloat16 or float16 where the recipe's engine computes with them so
    check.npz       one input and the results for it, to see at load that they are the same here
    report.json     what was tried, and why this was chosen

Packages that were made earlier may have blobs/..., what OpenVINO had compiled; nobody reads it.
Members are stored as they are, so any tool for zip and ONNX reads them once they are unpacked.
Nothing of it is executed or unpickled, and nothing is believed: each member is checked before it is
used.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slipstream.errors import UsageError
from slipstream.infer.accuracy.promise import Accuracy
from slipstream.infer.engines.protocol import Recipe, Small
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.machine import Machine
from slipstream.infer.package.members import MANIFEST, Member, Members, wrong
from slipstream.infer.package.report import Report
from slipstream.infer.package.small_constants import made_small, made_whole
from slipstream.infer.package.stored_graph import WEIGHTS, Pieces, graph_files, read_graph

FORMAT = 3  # 2 had the weights inside of the graph
REPORT, CHECK = "report.json", "check.npz"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content makes the same file


class Tensor(BaseModel):
    """An input or output: its name, NumPy's name of its dtype, and its shape; of outputs -1 is a
    size that follows from the numbers of an input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: str
    shape: tuple[int, ...]


class Reading(BaseModel):
    """How files and images of any size become an input.

    Args:
        input: its name; it is uint8 (n, height, width, channels).
        size: pixels of the shorter side before the middle is cut out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str
    size: int = Field(ge=1)


class Manifest(BaseModel):
    """What a package says about itself.

    Args:
        format: of the file.
        slipstream: version that wrote it.
        graph: member with what the recipe runs.
        inputs: of the model.
        outputs: of it.
        images: how image files become an input; None where none does.
        classes: names of the classes by number; none where they are not known.
        recipe: how it runs.
        threads: that it was chosen for.
        accuracy: what it promises.
        machine: on which it was compiled.
        members: all others, with their sizes and hashes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    format: int = FORMAT
    slipstream: str = Field(default_factory=lambda: version("slipstream"))
    graph: Literal["model.onnx", "source.onnx"]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    # Packages store it as "pictures", so that old ones can be read.
    images: Reading | None = Field(
        default=None, validation_alias="pictures", serialization_alias="pictures"
    )
    classes: tuple[str, ...] = ()
    recipe: Recipe
    threads: int = Field(ge=1)
    accuracy: Accuracy
    machine: Machine
    members: dict[str, Member] = Field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One input, and what the model gave for it when it was compiled."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


@dataclass(frozen=True)
class Package:
    """A package in memory.

    Args:
        manifest: its members are filled in by `write`.
        make_graph: gives what the recipe runs, the same at every call.
        report: of the compilation.
        check: an input and its results.
        small: constants that are written as the engine reads them; unknown of one that was read.
    """

    manifest: Manifest
    make_graph: Callable[[], Graph]
    report: Report
    check: Check
    small: Mapping[str, Small] = field(default_factory=dict[str, Small])

    @property
    def graph(self) -> Graph:
        """What the recipe runs. Of a package that was read it is made when it is first asked for:
        UsageError where its member is no graph, or another one than the manifest tells of."""
        return self.make_graph()


def tensors(graph: Graph, names: list[str] | tuple[str, ...]) -> tuple[Tensor, ...]:
    """What a package says of values of a graph; -1 is a size that follows from the numbers of an
    input."""
    found = [(name, graph.value(name)) for name in names]
    return tuple(
        Tensor(
            name=name,
            dtype=str(value.dtype or np.dtype(np.float32)),
            shape=tuple(size if isinstance(size, int) else -1 for size in value.shape or ()),
        )
        for name, value in found
    )


# ---- writing -----------------------------------------------------------------------------------


def write(path: Path, package: Package, check: Callable[[Path], None] = lambda path: None) -> None:
    """Write a package; what was at `path` is replaced at once, or stays if anything fails.

    Args:
        path: of the file.
        package: to write.
        check: called with the file before it is at its place; what it raises is passed on.

    Raises UsageError where the file cannot be written.
    """
    contents: dict[str, Pieces] = {
        **graph_files(made_small(package.graph, package.small), package.manifest.graph),
        CHECK: [_check_bytes(package.check)],
        REPORT: [package.report.model_dump_json(indent=1).encode()],
    }
    members = {name: _member(pieces) for name, pieces in contents.items()}
    manifest = package.manifest.model_copy(update={"members": members})
    text = manifest.model_dump_json(indent=1, by_alias=True).encode()
    part = path.with_name(path.name + ".part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            for name, pieces in {MANIFEST: [text], **contents}.items():
                _add(archive, name, pieces)
        check(part)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _member(pieces: Pieces) -> Member:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return Member(size=sum(map(len, pieces)), sha256=digest.hexdigest())


def _add(archive: zipfile.ZipFile, name: str, pieces: Pieces) -> None:
    """Write a member piece by piece, as weights may be as large as memory."""
    info = zipfile.ZipInfo(name, EPOCH)
    info.file_size = sum(map(len, pieces))  # how large the fields for its sizes have to be
    with archive.open(info, "w") as file:
        for piece in pieces:
            file.write(piece)


def _check_bytes(check: Check) -> bytes:
    file = io.BytesIO()
    arrays = {f"input:{name}": array for name, array in check.inputs.items()}
    arrays |= {f"output:{name}": array for name, array in check.outputs.items()}
    # Values may have names that are no file's: they are numbered, and the names come along.
    names = np.array(json.dumps(list(arrays)))
    np.savez(file, names=names, **{str(at): array for at, array in enumerate(arrays.values())})  # type: ignore[arg-type]
    return file.getvalue()


# ---- reading -----------------------------------------------------------------------------------


def read(path: Path) -> Package:
    """Read a package. Its graph stays in the file, which stays open, until it is asked for; every
    member is checked against the manifest before anything is done with it.

    Raises UsageError for whatever is not as it should be: no such file, no zip, a format newer than
    this version knows, a member that is missing, too many, of the wrong size or content.
    """
    members = Members(path)
    manifest = _expected(members)
    _check_images(path, manifest)
    return Package(
        manifest=manifest,
        make_graph=functools.cache(lambda: _graph(members, manifest)),
        report=_report(path, members.read(REPORT).tobytes()),
        check=_check(path, members.read(CHECK).tobytes(), manifest),
    )


def _expected(members: Members) -> Manifest:
    """The manifest; all members that it tells of are there."""
    manifest = _manifest(members.path, members.manifest())
    members.expect(manifest.members, (manifest.graph, REPORT, CHECK))
    return manifest


def _manifest(path: Path, data: bytes) -> Manifest:
    try:
        found = json.loads(data)
        number = found["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise wrong(path, f"{MANIFEST} says no format: {error}") from error
    if not isinstance(number, int) or number < 1:
        raise wrong(path, f"{MANIFEST} says format {number!r}")
    if number > FORMAT:
        raise UsageError(
            f"{path} has format {number}, and slipstream {version('slipstream')} reads up to"
            f" {FORMAT}; it was made by a newer version: install that, or compile the model again"
        )
    try:
        return Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise wrong(path, f"{MANIFEST}: {place}: {first['msg']}") from error


def _graph(members: Members, manifest: Manifest) -> Graph:
    weights = members.read_all(members.names(WEIGHTS))
    stored = members.read(manifest.graph).tobytes()
    graph = made_whole(read_graph(stored, weights, f"{members.path}: {manifest.graph}"))
    if (tensors(graph, list(graph.inputs)), tensors(graph, graph.outputs)) != (
        manifest.inputs,
        manifest.outputs,
    ):
        raise wrong(members.path, f"{MANIFEST} and {manifest.graph} differ in inputs or outputs")
    return graph


def _check_images(path: Path, manifest: Manifest) -> None:
    """Raise UsageError if the input for images is none of the model's."""
    if manifest.images is None:
        return
    name = manifest.images.input
    shapes = [item.shape for item in manifest.inputs if (item.name, item.dtype) == (name, "uint8")]
    if not any(len(shape) == 4 and shape[3] in (1, 3) and 0 not in shape for shape in shapes):
        raise wrong(path, f"{MANIFEST} names an input for images that is none")


def _report(path: Path, data: bytes) -> Report:
    try:
        return Report.model_validate_json(data)
    except ValidationError as error:
        raise wrong(path, f"{REPORT}: {error.errors()[0]['msg']}") from error


def _check(path: Path, data: bytes, manifest: Manifest) -> Check:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            names: list[str] = json.loads(str(file["names"]))
            arrays = {name: file[str(at)] for at, name in enumerate(names)}
        named = {f"input:{item.name}" for item in manifest.inputs}
        named |= {f"output:{item.name}" for item in manifest.outputs}
        if arrays.keys() != named:
            raise ValueError(f"it has {', '.join(sorted(arrays))}")
        inputs = {
            item.name: _checked(arrays[f"input:{item.name}"], item) for item in manifest.inputs
        }
        outputs = {
            item.name: _checked(arrays[f"output:{item.name}"], item) for item in manifest.outputs
        }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise wrong(path, f"{CHECK}: {error}") from error
    return Check(inputs, outputs)


def _checked(array: Array, tensor: Tensor) -> Array:
    sizes = zip(array.shape, tensor.shape, strict=False)
    is_of_shape = array.ndim == len(tensor.shape) and all(b in (a, -1) for a, b in sizes)
    if str(array.dtype) != tensor.dtype or not is_of_shape:
        raise ValueError(f"{tensor.name} is {array.dtype} {array.shape}")
    return np.asarray(array, order="C")
