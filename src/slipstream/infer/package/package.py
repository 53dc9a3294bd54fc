"""Write and read model.slip: a plain zip of a graph, the recipe that runs it, and a report.

- manifest.json: the inputs, the outputs, the recipe, and size and SHA-256 of every other member.
- model.onnx: the graph after the rewrites; Slipstream's operators are in the domain "slipstream".
- source.onnx (in place of model.onnx): the graph as it was imported, if the recipe runs that graph.
- weights-0.bin and so on: the large constants, which ONNX calls external data. The constants are
  int8, bfloat16 or float16 if the recipe's engine computes with such numbers.
- check.npz: the inputs of one run and the outputs; a machine that loads the package runs these
  inputs, and must compute nearly the same outputs.
- report.json: the candidates that were tried, and the reason for the choice.

Packages of earlier versions may have members blobs/..., which contain models that OpenVINO had
compiled; these members are not read. Members are not compressed. Any tool for ONNX can read the
model once the zip is unpacked. Nothing in a package is executed or unpickled, and each member is
checked before it is used.
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
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slipstream.errors import UsageError, reason_of
from slipstream.infer.accuracy.promise import Accuracy
from slipstream.infer.engines.protocol import Recipe, Small
from slipstream.infer.graph.added_dtypes import as_unsigned, from_unsigned
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.machine import Machine
from slipstream.infer.package.members import MANIFEST, Member, Members, damaged
from slipstream.infer.package.report import Report
from slipstream.infer.package.small_constants import compress_constants, restore_constants
from slipstream.infer.package.stored_graph import WEIGHTS, Pieces, graph_files, read_graph

FORMAT = 3  # format 2 had the weights inside the graph
REPORT, CHECK = "report.json", "check.npz"
EPOCH = (1980, 1, 1, 0, 0, 0)  # date of all members, so that equal contents make equal files


class Tensor(BaseModel):
    """An input or output of a model.

    Args:
        name: Name of the input or output in the graph.
        dtype: NumPy's name of the dtype.
        shape: Sizes of the dimensions; -1 stands for a size that is known only after a run, because
            it depends on the elements of an input.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: str
    shape: tuple[int, ...]


class Reading(BaseModel):
    """Description of how image files of any size are converted to an input of a model.

    Args:
        input: Name of the input, which is uint8 (n, height, width, channels).
        size: Length in pixels to which the shorter side of an image is resized before the centre
            crop.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str
    size: int = Field(ge=1)


class Manifest(BaseModel):
    """Description of a package; the package contains it as manifest.json.

    Args:
        format: Version of the file format.
        slipstream: Version of Slipstream that wrote the package.
        graph: Name of the package's member that contains the graph to run.
        inputs: Inputs of the model.
        outputs: Outputs of the model.
        images: Description of the input that accepts image files (default None: no input accepts
            them).
        classes: Names of the classes, in the order of the class indices (default: empty; the names
            are unknown).
        recipe: Engine, precisions and options with which the graph is run.
        threads: Number of threads for which the recipe was chosen.
        accuracy: Measured difference of the package's outputs from the imported model's in float32.
        machine: Machine on which the model was compiled.
        members: Size and SHA-256 of every member except the manifest itself, by name.
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
    """The inputs of one run, and the outputs that the compiled model computed from them."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


@dataclass(frozen=True)
class Package:
    """A package in memory.

    Args:
        manifest: Description of the package; `write` fills in the list of members.
        make_graph: Function that returns the graph to run; it returns the same graph at every call.
        report: Report of the compilation.
        check: The inputs of one run, and the outputs.
        small: Types of fewer bits in which `write` stores constants, by the constant's name. The
            engine rounds these constants anyway. The default is empty, and a package that was read
            from a file has an empty mapping, too.
    """

    manifest: Manifest
    make_graph: Callable[[], Graph]
    report: Report
    check: Check
    small: Mapping[str, Small] = field(default_factory=dict[str, Small])

    @property
    def graph(self) -> Graph:
        """The graph that the recipe runs: either the rewritten or the imported graph.

        If the package was read from a file, the graph is read at the first use. Reading raises
        UsageError if the member is no graph, or if the graph's inputs and outputs are not those of
        the manifest.
        """
        return self.make_graph()


def tensors(graph: Graph, names: list[str] | tuple[str, ...]) -> tuple[Tensor, ...]:
    """Return the name, dtype and shape of each of the graph's values `names`, for a manifest."""
    values = [(name, graph.value(name)) for name in names]
    return tuple(
        Tensor(
            name=name,
            dtype=str(value.dtype or np.dtype(np.float32)),
            shape=tuple(size if isinstance(size, int) else -1 for size in value.shape or ()),
        )
        for name, value in values
    )


# ---- writing -----------------------------------------------------------------------------------


def write(path: Path, package: Package, check: Callable[[Path], None] = lambda path: None) -> None:
    """Write a package. After a failure, a file at `path` is unchanged.

    Args:
        path: File to write. If the file exists, it is replaced in one step.
        package: Package to write.
        check: Function that is called with the path of the complete temporary file, before it is
            renamed to `path` (default: no check). Exceptions of `check` are passed on.

    Raises:
        UsageError: the file cannot be written.
    """
    contents: dict[str, Pieces] = {
        **graph_files(compress_constants(package.graph, package.small), package.manifest.graph),
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
        raise UsageError(f"{path} cannot be written: {reason_of(error)}") from error
    finally:
        part.unlink(missing_ok=True)


def _member(pieces: Pieces) -> Member:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return Member(size=sum(map(len, pieces)), sha256=digest.hexdigest())


def _add(archive: zipfile.ZipFile, name: str, pieces: Pieces) -> None:
    """Write a member piece by piece, because the weights may be as large as the whole memory."""
    info = zipfile.ZipInfo(name, EPOCH)
    info.file_size = sum(map(len, pieces))  # beyond 4 GiB the zip needs larger size fields
    with archive.open(info, "w") as file:
        for piece in pieces:
            file.write(piece)


def _check_bytes(check: Check) -> bytes:
    file = io.BytesIO()
    arrays = {f"input:{name}": array for name, array in check.inputs.items()}
    arrays |= {f"output:{name}": array for name, array in check.outputs.items()}
    # Names of values may be invalid file names, so arrays are numbered and a list has the names.
    names = np.array(json.dumps(list(arrays)))
    numbered: dict[str, Any] = {
        str(at): as_unsigned(array) for at, array in enumerate(arrays.values())
    }
    np.savez(file, names=names, **numbered)
    return file.getvalue()


# ---- reading -----------------------------------------------------------------------------------


def read(path: Path) -> Package:
    """Read a package and check its members against the manifest.

    The graph is read when it is first used; until then the file stays open.

    Args:
        path: File of the package.

    Raises:
        UsageError: the file does not exist, is no zip, or has a format that is newer than this
            version of Slipstream. The error is also raised if a member is missing or unexpected, or
            has a wrong size or content.
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
    """Check that the file has all members that the manifest lists, and return the manifest."""
    manifest = _manifest(members.path, members.manifest())
    members.expect(manifest.members, (manifest.graph, REPORT, CHECK))
    return manifest


def _manifest(path: Path, data: bytes) -> Manifest:
    try:
        content = json.loads(data)
        number = content["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, f"{MANIFEST} has no format: {error}") from error
    if not isinstance(number, int) or number < 1:
        raise damaged(path, f"{MANIFEST} has format {number!r}, not a number from 1 to {FORMAT}")
    if number > FORMAT:
        raise UsageError(
            f"{path} has format {number}, and slipstream {version('slipstream')} reads up to"
            f" {FORMAT}; it was made by a newer version: install that, or compile the model again"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(map(str, first["loc"]))
        reason = f"{MANIFEST}: {field_name}: {first['msg']}"
        if number < FORMAT:
            raise UsageError(
                f"{path} has format {number} of an older version of slipstream, which slipstream"
                f" {version('slipstream')} cannot read ({reason}); compile the model again"
            ) from error
        raise damaged(path, reason) from error


def _graph(members: Members, manifest: Manifest) -> Graph:
    weights = members.read_all(members.names(WEIGHTS))
    stored = members.read(manifest.graph).tobytes()
    graph = restore_constants(read_graph(stored, weights, f"{members.path}: {manifest.graph}"))
    if (tensors(graph, list(graph.inputs)), tensors(graph, graph.outputs)) != (
        manifest.inputs,
        manifest.outputs,
    ):
        raise damaged(members.path, f"{MANIFEST} and {manifest.graph} differ in inputs or outputs")
    return graph


def _check_images(path: Path, manifest: Manifest) -> None:
    """Check that the image input exists and is uint8 (n, height, width, 1 or 3)."""
    if manifest.images is None:
        return
    name = manifest.images.input
    shapes = [item.shape for item in manifest.inputs if (item.name, item.dtype) == (name, "uint8")]
    if not any(len(shape) == 4 and shape[3] in (1, 3) and 0 not in shape for shape in shapes):
        raise damaged(
            path,
            f"{MANIFEST} reads images as {name!r}, which is no uint8 input of shape "
            "(n, height, width, 1 or 3)",
        )


def _report(path: Path, data: bytes) -> Report:
    try:
        return Report.model_validate_json(data)
    except ValidationError as error:
        raise damaged(path, f"{REPORT}: {error.errors()[0]['msg']}") from error


def _check(path: Path, data: bytes, manifest: Manifest) -> Check:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            names: list[str] = json.loads(str(file["names"]))
            arrays = {name: file[str(at)] for at, name in enumerate(names)}
        expected = {f"input:{item.name}" for item in manifest.inputs}
        expected |= {f"output:{item.name}" for item in manifest.outputs}
        if arrays.keys() != expected:
            raise ValueError(
                f"it has {', '.join(sorted(arrays))}, not {', '.join(sorted(expected))}"
            )
        inputs = {
            item.name: _checked(arrays[f"input:{item.name}"], item) for item in manifest.inputs
        }
        outputs = {
            item.name: _checked(arrays[f"output:{item.name}"], item) for item in manifest.outputs
        }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise damaged(path, f"{CHECK}: {reason_of(error)}") from error
    return Check(inputs, outputs)


def _checked(array: Array, tensor: Tensor) -> Array:
    array = from_unsigned(array, tensor.dtype)
    sizes = zip(array.shape, tensor.shape, strict=False)
    is_of_shape = array.ndim == len(tensor.shape) and all(b in (a, -1) for a, b in sizes)
    if str(array.dtype) != tensor.dtype or not is_of_shape:
        raise ValueError(
            f"{tensor.name} is {array.dtype} {array.shape}, not {tensor.dtype} {tensor.shape}"
        )
    return np.asarray(array, order="C")
