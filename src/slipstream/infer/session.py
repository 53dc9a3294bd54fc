"""Compiled models, ready to be called."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, cast

import numpy as np

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy import Comparison
from slipstream.infer.engines import Executable, engine_of
from slipstream.infer.graph import Array
from slipstream.infer.machine import usable_cores
from slipstream.infer.package import Check, Manifest, Package, Tensor, read
from slipstream.infer.report import Report

Inputs: TypeAlias = "Mapping[str, Any] | Sequence[Any] | Any"
Outputs: TypeAlias = "Array | dict[str, Array]"

LEAST_DB = 15.0  # of results here beside those at compile time; bytes round a little differently


class Model:
    """A compiled model: call it.

        with infer.load("model.slip") as model:
            logits = model(image)

    Every method may be called by any number of threads at a time. Calls block and let other threads
    of Python run; those that run at a time share the processor's cores, so each takes longer.
    """

    def __init__(self, package: Package, executable: Executable) -> None:
        """`executable` is closed by this object from now on."""
        self._manifest = package.manifest
        self._report = package.report
        self._executable = executable
        self._callers = ThreadPoolExecutor(
            max(package.manifest.recipe.streams, 1), thread_name_prefix="slipstream-infer"
        )
        self._is_closed = False

    @property
    def manifest(self) -> Manifest:
        """What it takes and gives, how it runs, and how accurate it is."""
        return self._manifest

    @property
    def report(self) -> Report:
        """What was tried when it was compiled."""
        return self._report

    def __call__(self, *inputs: Any, **named: Any) -> Outputs:
        """Run the model on one input, or one batch, as its shape says.

        Args:
            inputs: a dictionary by name, or arrays in the order of the model's inputs: NumPy
                arrays, or anything that has `__dlpack__` and is in the processor's memory. Of the
                dtypes and shapes in `manifest.inputs`; where the batch is 1, it may be left out.
            named: or by keyword.

        Returns: the output's array where there is only one, else a dictionary by name. They belong
        to the caller. Shapes are those in `manifest.outputs`.

        Raises UsageError for inputs that are missing, unknown, or of another dtype or shape.
        """
        return self._run(self._taken(inputs, named))

    def submit(self, *inputs: Any, **named: Any) -> Future[Outputs]:
        """Run the model in the background; see `__call__`. Inputs are checked at once, and are not
        to be written to until the result is there. As many run at a time as the recipe has streams,
        the others wait in line."""
        return self._callers.submit(self._run, self._taken(inputs, named))

    def batch(self, several: Sequence[Inputs]) -> list[Outputs]:
        """Run the model on several inputs, each as one call takes it; results in their order."""
        taken = [
            self._taken((item,) if not isinstance(item, tuple) else item, {}) for item in several
        ]
        return list(self._callers.map(self._run, taken))

    def close(self) -> None:
        """Wait for calls that were submitted, and give all memory back."""
        if not self._is_closed:
            self._is_closed = True
            self._callers.shutdown()
            self._executable.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        recipe = self._manifest.recipe
        inputs = ", ".join(
            f"{item.name} {item.dtype} {item.shape}" for item in self._manifest.inputs
        )
        return f"<Model of {inputs} by {recipe.engine} in {recipe.precision}>"

    def _run(self, inputs: dict[str, Array]) -> Outputs:
        found = self._executable.run(inputs)
        outputs = {item.name: found[item.name] for item in self._manifest.outputs}
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def _taken(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Array]:
        """Every input by name, checked."""
        if self._is_closed:
            raise UsageError("the model is closed; load it again")
        wanted = {item.name: item for item in self._manifest.inputs}
        given = _by_name(inputs, named, list(wanted))
        missing, strange = (
            sorted(wanted.keys() - given.keys()),
            sorted(given.keys() - wanted.keys()),
        )
        if missing or strange:
            words = [f"input {name!r} is missing" for name in missing]
            words += [f"there is no input {name!r}" for name in strange]
            raise UsageError(f"{', '.join(words)}; the model has {', '.join(wanted)}")
        return {name: _array(given[name], tensor) for name, tensor in wanted.items()}


def load(path: str | Path, threads: int | None = None, *, check: bool = True) -> Model:
    """Load a compiled model.

    Args:
        path: of a file that `slipstream compile` or `infer.compile` made.
        threads: that one call uses, 1 or more; default those that it was compiled for, or the cores
            that there are, if these are fewer.
        check: run it once, and hold the results against those at compile time.

    Raises UsageError for a file that is no such package, or damaged; UnsupportedError where its
    engine is not there, and where its results are different on this machine. Blocks.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; allowed: 1 and more")
    package = read(Path(path))
    manifest = package.manifest
    engine = engine_of(manifest.recipe.engine)
    reason = engine.available()
    if reason is not None:
        raise UnsupportedError(f"{path} needs the engine {engine.name}: {reason}")
    count = threads or min(manifest.threads, usable_cores())
    with tempfile.TemporaryDirectory(prefix="slipstream-infer-") as folder:
        for name, data in package.blobs.items():
            Path(folder, name).write_bytes(data)
        executable = engine.prepare(package.graph, manifest.recipe, count, Path(folder))
    if check:
        _hold(path, package.check, executable)
    return Model(package, executable)


def _hold(path: str | Path, check: Check, executable: Executable) -> None:
    """The results for the package's example are those at compile time."""
    comparison = Comparison()
    comparison.add(executable.run(check.inputs), check.outputs)
    if comparison.snr_db < LEAST_DB:
        executable.close()
        raise UnsupportedError(
            f"{path}: its results here are not those at compile time (signal to noise"
            f" {comparison.snr_db:.0f} dB, and {LEAST_DB:g} is the least); compile the model here"
        )


def _by_name(inputs: tuple[Any, ...], named: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        given = {str(name): item for name, item in cast("Mapping[Any, Any]", inputs[0]).items()}
    elif len(inputs) > len(names):
        raise UsageError(f"{len(inputs)} inputs are given; the model has {', '.join(names)}")
    else:
        given = dict(zip(names, inputs, strict=False))
    twice = sorted(given.keys() & named.keys())
    if twice:
        raise UsageError(f"the input {', '.join(twice)} is given twice")
    return {**given, **named}


def _array(given: Any, tensor: Tensor) -> Array:
    array = given if isinstance(given, np.ndarray) else _of_dlpack(given, tensor.name)
    if str(array.dtype) != tensor.dtype:
        raise UsageError(
            f"input {tensor.name!r} is {array.dtype}, and has to be {tensor.dtype};"
            f" convert it: .astype('{tensor.dtype}')"
        )
    if array.shape != tensor.shape:
        if (1, *array.shape) != tensor.shape:
            raise UsageError(
                f"input {tensor.name!r} has the shape {array.shape}, and has to have {tensor.shape}"
            )
        array = array[None]
    return np.ascontiguousarray(array)


def _of_dlpack(given: Any, name: str) -> Array:
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    if not callable(getattr(given, "__dlpack__", None)):
        raise UsageError(f"input {name!r} is a {kind}; give a NumPy array, or one with __dlpack__")
    try:
        return np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"input {name!r}: NumPy cannot take the {kind}: {error}; copy it to the processor's"
            " memory, detached"
        ) from error
