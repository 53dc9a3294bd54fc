"""Predictions of a compiled model for files.

The model is a package on this machine, or a model on a server that follows the Open Inference
Protocol, version 2.
"""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slipstream.errors import UnsupportedError, UsageError, reason_of
from slipstream.infer.graph.graph import Array
from slipstream.infer.images.folders import ENDINGS
from slipstream.infer.run.session import Model, load
from slipstream.serve.protocol.datatypes import BYTES, JSON_LENGTH, array_of, datatype_of
from slipstream.serve.refusals import RequestRefusedError

URL = re.compile(r"(?P<server>https?://[^/?#]+)/*(?:v2/models/(?P<model>[^?#]+?)/*)?")
SECONDS = 60.0  # timeout for an answer of a server; chosen by hand


@dataclass(frozen=True, slots=True)
class FilePrediction:
    """The outputs of a model for a file.

    Args:
        outputs: Outputs by name.
        classes: Names of the classes by class number; empty (the default) if the names are unknown.
    """

    outputs: Mapping[str, Array]
    classes: Mapping[int, str] = field(default_factory=dict[int, str])


class FilePredictor(Protocol):
    """The interface of a model that makes predictions for files."""

    def predict(self, file: Path) -> FilePrediction:
        """Return the prediction for an image, .npy or .npz file; blocks."""
        ...


def open_predictor(target: str, token: str | None = None) -> FilePredictor:
    """Open the model that a target names; blocks while the model is loaded.

    Args:
        target: Path of a package, http://host:port of a server with one model, or
            http://host:port/v2/models/NAME.
        token: Access token for the server; None (the default) sends no token.

    Raises UsageError or UnsupportedError if the model cannot be opened.
    """
    if target.startswith(("http://", "https://")):
        return RemotePredictor(target, token)
    return LocalPredictor(Path(target))


class LocalPredictor:
    """A model of a package that is loaded in this process."""

    def __init__(self, path: Path) -> None:
        self._model: Model = load(path)

    def predict(self, file: Path) -> FilePrediction:
        """Return the prediction for a file; see `FilePredictor.predict`."""
        images = self._model.manifest.images
        content = _content(file, None if images is None else images.input)
        found: Any = self._model(_batched(content, self._model))
        names = [output.name for output in self._model.manifest.outputs]
        outputs = found if isinstance(found, dict) else dict(zip(names, [found], strict=True))
        return FilePrediction(outputs, dict(enumerate(self._model.classes)))


class RemotePredictor:
    """A model on a server.

    Args:
        url: URL of the server, or of one of the server's models.
        token: Access token; None if the server needs no token.
    """

    def __init__(self, url: str, token: str | None) -> None:
        found = URL.fullmatch(url)
        if found is None:
            raise UsageError(f"{url}: allowed: http://host:port or http://host:port/v2/models/NAME")
        self._server, self._token = found["server"], token
        self._path = f"{self._server}/v2/models/{found['model'] or self._only()}"
        self._metadata = self._get(self._path)

    def predict(self, file: Path) -> FilePrediction:
        """Return the prediction for a file; see `FilePredictor.predict`."""
        with _protocol(self._server):
            inputs = [str(each["name"]) for each in self._metadata["inputs"]]
        content = _content(file, inputs[0] if len(inputs) == 1 else None)
        if not isinstance(content, Mapping):
            content = {inputs[0]: np.array([content], object)}
        arrays = _named(content, inputs)
        raw = {name: _raw(array) for name, array in arrays.items()}
        given = [_tensor(name, array, len(raw[name])) for name, array in arrays.items()]
        request = {"inputs": given, "parameters": {"binary_data_output": True}}
        head = json.dumps(request).encode()
        body = b"".join([head, *raw.values()])
        content, fields = self._read(f"{self._path}/infer", body, {JSON_LENGTH: str(len(head))})
        with _protocol(self._server):
            end = int(fields.get(JSON_LENGTH, len(content)))
            return _answer(json.loads(content[:end])["outputs"], memoryview(content)[end:])

    def _only(self) -> str:
        found = self._get(f"{self._server}/v2/models")
        with _protocol(self._server):
            names = [str(name) for name in found["models"]]
        if len(names) != 1:
            listed = ", ".join(f"{self._server}/v2/models/{name}" for name in names)
            raise UsageError(f"{self._server} has {len(names)} models; name one of {listed}")
        return names[0]

    def _get(self, url: str) -> Any:
        content, _ = self._read(url, None, {})
        with _protocol(self._server):
            return json.loads(content)

    def _read(
        self, url: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[bytes, Mapping[str, str]]:
        if self._token is not None:
            headers = {**headers, "authorization": f"Bearer {self._token}"}
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                fields = {name.lower(): value for name, value in response.headers.items()}
                return response.read(), fields
        except urllib.error.HTTPError as error:
            raise UnsupportedError(f"{url}: {_reason(error)}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            words = getattr(reason, "strerror", None) or str(reason) or type(error).__name__
            raise UnsupportedError(f"{url} cannot be reached: {' '.join(words.split())}") from error


@contextmanager
def _protocol(server: str) -> Generator[None]:
    """Replace an error inside the context by one which says that the server breaks the protocol."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, RequestRefusedError) as error:
        raise UnsupportedError(
            f"{server} does not answer as the Open Inference Protocol, version 2, says:"
            f" {type(error).__name__}: {error}"
        ) from error


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the reason that a server gives for refusing a request."""
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"


def _content(file: Path, image: str | None) -> bytes | Mapping[str, Array]:
    """Return the bytes of an image file, or the arrays of a .npy or .npz file by name.

    The array of a .npy file has the name "", which stands for the model's only input.
    """
    if file.suffix in (".npy", ".npz"):
        try:
            with file.open("rb") as opened:
                found = np.load(opened, allow_pickle=False)
                is_several = isinstance(found, np.lib.npyio.NpzFile)
                return dict(found.items()) if is_several else {"": found}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UsageError(f"{file}: NumPy cannot read it: {reason_of(error)}") from error
    if file.suffix.lower() not in ENDINGS:
        kinds = ", ".join([".npy", ".npz", *sorted(ENDINGS)])
        raise UsageError(f"{file}: unknown kind of file; allowed: {kinds}")
    if image is None:
        raise UsageError(
            f"{file} is an image, but the model accepts none; pass a .npy or .npz file"
        )
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _batched(content: bytes | Mapping[str, Array], model: Model) -> Any:
    """Return the arguments for the model; an image is repeated until it fills the model's batch."""
    manifest = model.manifest
    if isinstance(content, Mapping):
        return _named(content, [each.name for each in manifest.inputs])
    assert manifest.images is not None
    shapes = {each.name: each.shape for each in manifest.inputs}
    count = shapes[manifest.images.input][0]
    return {manifest.images.input: content if count == 1 else [content] * count}


def _named(arrays: Mapping[str, Array], inputs: Sequence[str]) -> Mapping[str, Array]:
    if "" in arrays and len(inputs) == 1:
        return {inputs[0]: arrays[""]}
    if "" in arrays:
        raise UsageError(f"the model has the inputs {', '.join(inputs)}; give an .npz file of them")
    return arrays


def _raw(array: Array) -> bytes:
    """Return a tensor's bytes for the protocol; 4 bytes with its length precede each file."""
    if array.dtype == object:
        return b"".join(len(file).to_bytes(4, "little") + file for file in array.tolist())
    return array.tobytes()


def _tensor(name: str, array: Array, size: int) -> dict[str, Any]:
    try:
        datatype = BYTES if array.dtype == object else datatype_of(array.dtype)
    except KeyError as error:
        raise UsageError(f"{name} is {array.dtype}, which the protocol does not have") from error
    parameters = {"binary_data_size": size}
    shape = list(array.shape)
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}


def _answer(outputs: Sequence[Mapping[str, Any]], raw: memoryview) -> FilePrediction:
    arrays: dict[str, Array] = {}
    classes: dict[int, str] = {}
    at = 0
    for each in outputs:
        name, size = each["name"], each["parameters"]["binary_data_size"]
        arrays[name] = array_of(raw[at : at + size], each["datatype"], each["shape"], name)
        labels, names = arrays[name].ravel().tolist(), each["parameters"].get("classes", ())
        classes |= dict(zip(labels, names, strict=False))
        at += size
    return FilePrediction(arrays, classes)
