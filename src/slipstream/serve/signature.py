"""The signature of a model: checks of a request's inputs, and batches made of several requests.

A row is one sample. A model has rows if the first dimension of all its inputs and outputs has the
same size, which is the number of rows of a run. A request to such a model may have fewer or more
rows than a run, and small requests share a run.
"""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.images.reader import ImageReader, TooManyPixelsError
from slipstream.infer.package.package import Reading, Tensor
from slipstream.serve.protocol.datatypes import BYTES, datatype_of, has_datatype
from slipstream.serve.refusals import Reason, RequestRefusedError, invalid

Arrays: TypeAlias = "dict[str, Array]"
InputValue: TypeAlias = "Array | list[memoryview]"


@dataclass(frozen=True, slots=True)
class RequestInputs:
    """The checked inputs of a request.

    Args:
        inputs: Inputs by name, with the model's dtypes; if the model has rows, each input has
            `rows` rows.
        rows: Number of samples; 1 if the model has no rows.
    """

    inputs: Arrays
    rows: int

    @property
    def num_bytes(self) -> int:
        """Size of the inputs in bytes."""
        return sum(each.nbytes for each in self.inputs.values())


class Signature:
    """The inputs and outputs of a model.

    Args:
        inputs: Inputs of the model's package.
        outputs: Outputs of the model's package.
        most_rows: Largest number of rows of a request.
        images: Options for the input that accepts image files; None (the default) if no input
            accepts files.

    Raises UsageError if the protocol has no datatype for an input or an output.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        most_rows: int,
        images: Reading | None = None,
    ) -> None:
        for tensor in (*inputs, *outputs):
            if not has_datatype(tensor.dtype):
                raise UsageError(
                    f"{tensor.name!r} is {tensor.dtype}, which the Open Inference Protocol cannot"
                    " send; convert it to a type of NumPy, or to bfloat16, inside the model"
                )
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.rows = _rows((*inputs, *outputs))
        self._most_rows = most_rows
        self._tensors = {each.name: each for each in inputs}
        self._reader: tuple[str, ImageReader] | None = None
        if images is not None:
            _, height, width, channels = self._tensors[images.input].shape
            reader = ImageReader(size=images.size, height=height, width=width, channels=channels)
            self._reader = images.input, reader

    def shape_of(self, tensor: Tensor) -> list[int]:
        """Return the shape of an input or output, with -1 for the number of rows."""
        return list(tensor.shape) if self.rows is None else [-1, *tensor.shape[1:]]

    def described(self, tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
        """Return the name, datatype and shape of inputs or outputs in the form of the metadata."""
        return [
            {"name": each.name, "datatype": datatype_of(each.dtype), "shape": self.shape_of(each)}
            for each in tensors
        ]

    def check(self, given: Mapping[str, InputValue]) -> RequestInputs:
        """Check the inputs of a request, and return them as arrays.

        Args:
            given: Inputs by name, as tensors or as the bytes of image files.

        Raises RequestRefusedError if an input is missing, unknown, or of the wrong datatype or
        shape.
        """
        missing = [name for name in self._tensors if name not in given]
        unknown = [name for name in given if name not in self._tensors]
        if missing or unknown:
            words = [f"input {name!r} is missing" for name in missing]
            words += [f"there is no input {name[:64]!r}" for name in unknown]
            raise invalid(f"{', '.join(words)}; the model has {', '.join(self._tensors)}")
        inputs = {name: self._one(self._tensors[name], value) for name, value in given.items()}
        counts = {name: len(array) for name, array in inputs.items()} if self.rows else {"": 1}
        if len(set(counts.values())) > 1:
            raise invalid(f"inputs have different numbers of rows: {_counts(counts)}")
        return RequestInputs(inputs, next(iter(counts.values())))

    def runs(self, requests: Sequence[RequestInputs]) -> Iterator[Arrays]:
        """Yield the inputs of each run of a batch; zeros fill up the last run.

        Args:
            requests: Inputs of the requests in the batch.
        """
        if self.rows is None or (len(requests) == 1 and requests[0].rows == self.rows):
            yield requests[0].inputs
            return
        joined = {name: _joined([each.inputs[name] for each in requests]) for name in self._tensors}
        count = sum(each.rows for each in requests)
        for begin in range(0, count, self.rows):
            yield {name: _filled(each[begin : begin + self.rows], self.rows)
                   for name, each in joined.items()}  # fmt: skip

    def split(self, runs: Sequence[Arrays], requests: Sequence[RequestInputs]) -> list[Arrays]:
        """Divide a batch's outputs among the requests of the batch.

        Args:
            runs: Outputs of each run that the method `runs` yielded.
            requests: Inputs of the requests in the batch.
        """
        if self.rows is None or (len(requests) == 1 and requests[0].rows == self.rows):
            return [runs[0]]
        joined = {each.name: _joined([run[each.name] for run in runs]) for each in self.outputs}
        parts: list[Arrays] = []
        begin = 0
        for request in requests:
            end = begin + request.rows
            parts.append({name: array[begin:end] for name, array in joined.items()})
            begin = end
        return parts

    def _one(self, tensor: Tensor, given: InputValue) -> Array:
        array = self._read(tensor, given) if isinstance(given, list) else given
        if array.dtype != np.dtype(tensor.dtype):
            raise invalid(
                f"input {tensor.name!r} is {datatype_of(array.dtype)}; {self._allowed(tensor)}"
            )
        wanted = self.shape_of(tensor)
        fits = len(wanted) == array.ndim and all(
            have == want or (want == -1 and 1 <= have <= self._most_rows)
            for have, want in zip(array.shape, wanted, strict=True)
        )
        if not fits:
            raise invalid(
                f"input {tensor.name!r} has the shape {list(array.shape)}; {self._allowed(tensor)}"
            )
        return array

    def _allowed(self, tensor: Tensor) -> str:
        words = f"it has to be {datatype_of(tensor.dtype)} {self.shape_of(tensor)}"
        if self.rows is not None:
            words += f", with 1 to {self._most_rows} rows for -1"
        if self._reader is not None and self._reader[0] == tensor.name:
            words += f"; or {BYTES} [rows], image files"
        return words

    def _read(self, tensor: Tensor, files: list[memoryview]) -> Array:
        if self._reader is None or self._reader[0] != tensor.name:
            raise invalid(f"input {tensor.name!r} is {BYTES}; {self._allowed(tensor)}")
        if not 1 <= len(files) <= self._most_rows:
            raise invalid(f"input {tensor.name!r} has {len(files)} files; {self._allowed(tensor)}")
        images = np.empty((len(files), *tensor.shape[1:]), np.uint8)
        for number, file in enumerate(files):
            try:
                self._reader[1](file, images[number])
            except UsageError as error:
                too_large = isinstance(error, TooManyPixelsError)
                reason = Reason.TOO_LARGE if too_large else Reason.INVALID
                words = f"input {tensor.name!r}, file {number}: {error}"
                raise RequestRefusedError(reason, words) from error
        return images


def _rows(tensors: Sequence[Tensor]) -> int | None:
    """Return the number of rows of a run.

    Return None if a dimension has no fixed size, or if the first dimensions differ in size.
    """
    if any(size < 0 for each in tensors for size in each.shape):
        return None
    firsts = {each.shape[0] if each.shape else 0 for each in tensors}
    return firsts.pop() if len(firsts) == 1 and firsts != {0} else None


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _filled(array: Array, rows: int) -> Array:
    if len(array) == rows:
        return array
    filled = np.zeros((rows, *array.shape[1:]), array.dtype)
    filled[: len(array)] = array
    return filled


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
